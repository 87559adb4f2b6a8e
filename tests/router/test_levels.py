"""`trunkline.router.levels`."""

import pytest

from trunkline.router.levels import tail_matches


@pytest.mark.parametrize(
    ("wanted", "levels", "expected"),
    [
        ("a", "a", True),
        ("a", "b", False),
        ("a", "a/b", False),
        ("a/b", "a", False),
        ("+", "", True),
        ("+/b", "a/b", True),
        ("a/#", "a", True),
        ("a/#", "a/b/c", True),
        ("a/+/#", "a", False),
        ("a/#", "b", False),
    ],
)
def test_tail_matches(wanted: str, levels: str, expected: bool) -> None:
    assert tail_matches(wanted.split("/"), levels.split("/")) is expected


def test_nothing_is_left_of_the_topic() -> None:
    assert tail_matches(["#"], [])
    assert not tail_matches(["+"], [])
