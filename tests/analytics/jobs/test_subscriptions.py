"""Which subscriptions of a client take a topic."""

import pytest

from trunkline.analytics.jobs.subscriptions import ENDED, MAX_TOPICS, Subscriptions


@pytest.fixture
def some() -> Subscriptions[int]:
    subscriptions = Subscriptions[int](5)
    for number, filter in enumerate(("a/#", "+/b", "$share/g/a/b", "#", "$SYS/#")):
        subscriptions.put(filter, number)
    return subscriptions


@pytest.mark.parametrize(
    ("topic", "expected"), [("a/b", [0, 1, 2, 3]), ("a", [0, 3]), ("c/b", [1, 3]), ("$SYS/b", [4]), ("$x", [])]
)
def test_filters_take_topics_by_the_rules_of_mqtt(some: Subscriptions[int], topic: str, expected: list[int]) -> None:
    assert some.matching(topic) == expected
    assert some.matching(topic) == expected


def test_what_comes_and_goes_is_seen_at_once(some: Subscriptions[int]) -> None:
    assert some.matching("a/b") == [0, 1, 2, 3]
    assert some.remove(ENDED, "+/b") == [1]
    assert some.remove(ENDED, "+/b") == []
    assert some.matching("a/b") == [0, 2, 3]
    some.put("a/b", 7)
    assert some.matching("a/b") == [0, 2, 3, 7]
    assert sorted(some.remove("session.created", None)) == [0, 2, 3, 4, 7]
    assert (some.matching("a/b"), len(some)) == ([], 0)


def test_there_are_no_more_than_the_limit(some: Subscriptions[int]) -> None:
    some.put("c", 8)
    some.put("#", 9)
    assert ("c" in some, dict(some.items())["#"], list(some.values())) == (False, 9, [0, 1, 2, 9, 4])


def test_more_topics_than_are_remembered(some: Subscriptions[int]) -> None:
    for number in range(MAX_TOPICS + 10):
        assert some.matching(f"a/{number}") == [0, 3]
    assert some.matching("a/0") == [0, 3]
