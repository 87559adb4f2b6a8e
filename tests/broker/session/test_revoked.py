"""Which topics a client got by lost subscriptions alone."""

import pytest

from trunkline.broker.session.revoked import Revoked


def revoked(denied: list[str], kept: list[str]) -> Revoked:
    made = Revoked()
    for filter in denied:
        made.deny(filter)
    for filter in kept:
        made.keep(filter)
    return made


@pytest.mark.parametrize(
    ("denied", "kept", "topic", "concerned"),
    [
        (["a"], [], "a", True),
        (["a"], [], "b", False),
        (["a/#"], [], "a", True),
        (["a/#"], ["+/b"], "a/b", False),
        (["a/#"], ["+/b"], "a/c", True),
        (["$share/g/a/+"], [], "a/b", True),
        (["a/+"], ["$share/g/a/b"], "a/b", False),
        (["#"], [], "$SYS/x", False),
        ([], ["a"], "a", False),
    ],
)
def test_what_came_by_them_alone(denied: list[str], kept: list[str], topic: str, concerned: bool) -> None:
    assert revoked(denied, kept).concerns(topic) is concerned


def test_it_knows_what_was_taken_away() -> None:
    assert sorted(revoked(["b", "$share/g/a"], ["c"])) == ["$share/g/a", "b"]


def test_what_is_subscribed_to_again_is_no_longer_concerned() -> None:
    lost = revoked(["a/#"], [])
    lost.keep("a/b")
    assert [lost.concerns(topic) for topic in ("a/b", "a/c")] == [False, True]
