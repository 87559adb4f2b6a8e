"""`trunkline.router.wide`: large sets of nodes, remembered, against the definition of matching."""

from itertools import product
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.router.strategies import filters, topics
from trunkline.mqtt.topics import matches
from trunkline.router import wide
from trunkline.router.trie import FilterTrie

changes = st.lists(st.tuples(st.sampled_from(["set", "remove", "match"]), filters, topics), max_size=40)


@pytest.mark.parametrize("limits", [{"_CAPACITY": 1000}, {"_CAPACITY": 10}, {"_NAMES": 0}])
@given(changes)
def test_like_the_definition_whatever_changes_in_between(
    limits: dict[str, int], events: list[tuple[str, str, str]]
) -> None:
    with patch("trunkline.router.trie._WIDE", 0), patch.multiple(wide, **limits):
        trie: FilterTrie[str] = FilterTrie()
        left: dict[str, str] = {}
        for number, (event, filter, topic) in enumerate(events):
            if event == "set":
                left[filter] = f"{filter} {number}"
                trie.set(filter, left[filter])
            elif event == "remove":
                assert trie.remove(filter) == left.pop(filter, None)
            for _ in range(2):
                expected = sorted(value for each, value in left.items() if matches(each, topic))
                assert sorted(trie.match(topic)) == expected


def of_a_and_plus(levels: int, end: str) -> FilterTrie[str]:
    trie: FilterTrie[str] = FilterTrie()
    for each in product("a+", repeat=levels):
        filter = "/".join(each) + end
        trie.set(filter, filter)
    return trie


def test_varying_the_topic_costs_no_more_than_repeating_it(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = 0
    follow = wide._State.follow  # pyright: ignore[reportPrivateUsage]

    def counting(self: wide._State[str], level: str) -> wide._State[str]:  # pyright: ignore[reportPrivateUsage]
        nonlocal looked
        looked += len(self.nodes) + sum(len(each.values) for each in self.tails)
        return follow(self, level)

    monkeypatch.setattr(wide._State, "follow", counting)  # pyright: ignore[reportPrivateUsage]
    trie = of_a_and_plus(10, "/#")
    beginning = "/".join("a" * 10)
    for number in range(100):
        assert len(trie.match(f"{beginning}/{number}")) == 1024
        assert len(trie.match(f"{beginning}/{number}/x/{number}")) == 1024
    assert 0 < looked < 4 * 1024


def test_long_ends_of_many_filters_are_followed_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 0
    follow = wide._Tails.follow  # pyright: ignore[reportPrivateUsage]

    def counting(self: Any, level: str) -> Any:
        nonlocal steps
        steps += 1
        return follow(self, level)

    monkeypatch.setattr(wide._Tails, "follow", counting)  # pyright: ignore[reportPrivateUsage]
    trie = of_a_and_plus(10, "/x" * 50)
    for other in ("/y", "/x/+/#", "/x" * 49 + "/+"):
        beginning = "a" + "/+" * 9
        trie.set(beginning + other, beginning + other)
    assert len(trie.match("/".join("a" * 10) + "/x" * 50)) == 1026
    assert steps <= 2 * 50


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wide, "_CAPACITY", 5000)
    trie = of_a_and_plus(10, "/x/+/y")
    for number in range(200):
        topic = "/".join("a" * 10) + f"/x/{number}/y"
        assert len(trie.match(topic)) == 1024
        assert trie._wide.size <= 5000 + 1024 * 2  # pyright: ignore[reportPrivateUsage]


def test_changes_elsewhere_forget_nothing() -> None:
    trie = of_a_and_plus(10, "/#")
    trie.match("/".join("a" * 10) + "/x")
    size = trie._wide.size  # pyright: ignore[reportPrivateUsage]
    assert size
    trie.set("device/17/+", "other")
    trie.remove("device/17/+")
    assert trie._wide.size == size  # pyright: ignore[reportPrivateUsage]
    trie.remove("/".join("a" * 10) + "/#")
    assert trie._wide.size == 0  # pyright: ignore[reportPrivateUsage]
    assert len(trie.match("/".join("a" * 10) + "/x")) == 1023
