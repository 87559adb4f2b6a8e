"""Repeats are known, in whatever order they come, and nothing new is ever taken for one."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.analytics.sinks.deduplicator import Deduplicator


def numbers(batch: str, row: str) -> list[tuple[str, str]]:
    return [("unit", "s"), ("trunkline-batch", batch), ("trunkline-row", row)]


def test_a_batch_that_comes_again_in_another_order_is_known() -> None:
    deduplicator = Deduplicator()
    rows = [numbers("q/7", f"{partition}/{number}") for partition in range(3) for number in range(2500)]
    assert all(deduplicator.is_new(row) for row in rows[:5000])
    random.Random(1).shuffle(rows)
    assert sum(deduplicator.is_new(row) for row in rows) == 2500
    assert not any(deduplicator.is_new(row) for row in rows)


def test_messages_of_others_are_always_new() -> None:
    deduplicator = Deduplicator()
    for properties in ([], [("trunkline-batch", "q/1")], [("trunkline-row", "0/1")], [("a", "b")]):
        assert deduplicator.is_new(properties)
        assert deduplicator.is_new(properties)


@given(st.lists(st.tuples(st.text("q/1:é", max_size=4), st.text("0179/a", max_size=6))))
def test_texts_are_told_apart_as_they_are(rows: list[tuple[str, str]]) -> None:
    """`7`, `07` and `/7` are three rows, wherever batch ends and row begins."""
    deduplicator, seen = Deduplicator(), set[tuple[str, str]]()
    for row in rows:
        assert deduplicator.is_new(numbers(*row)) == (row not in seen)
        seen.add(row)


def test_what_is_remembered_is_bounded_and_the_oldest_is_forgotten() -> None:
    deduplicator = Deduplicator(limit=2)
    first, second, third = (numbers(f"q/{batch}", "0/0") for batch in range(3))
    assert all(map(deduplicator.is_new, (first, second)))
    assert not deduplicator.is_new(first)  # so it is the second that is oldest now
    assert deduplicator.is_new(third)
    assert [deduplicator.is_new(row) for row in (first, third, second)] == [False, False, True]


def test_numbers_of_any_size_cost_no_more() -> None:
    deduplicator = Deduplicator(limit=1)
    for row in ("0/" + "9" * 60_000, "0/999999999999999999", "x" * 65_535):
        assert deduplicator.is_new(numbers("q/0", row))
        assert not deduplicator.is_new(numbers("q/0", row))


def test_it_must_remember_something() -> None:
    with pytest.raises(ValueError, match="lets everything pass"):
        Deduplicator(limit=0)
