from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.analytics.report import scales

NOON = datetime(2025, 6, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("low", "high", "values"),
    [
        (0, 0, [0, 0.25, 0.5, 0.75, 1]),
        (0, 7, [0, 2, 4, 6, 8]),
        (0, 1000, [0, 250, 500, 750, 1000]),
        (0, 0.003, [0, 0.001, 0.002, 0.003]),
        (-30, 50, [-40, -20, 0, 20, 40, 60]),
    ],
)
def test_linear_marks_are_round(low: float, high: float, values: list[float]) -> None:
    assert [mark.value for mark in scales.linear(low, high).marks] == pytest.approx(values)


@given(st.floats(-1e12, 0), st.floats(1e-9, 1e12))
def test_linear_holds_everything_with_few_marks(low: float, high: float) -> None:
    scale = scales.linear(low, high)
    assert scale.low <= low + 1e-9 * (high - low)
    assert scale.high >= high - 1e-9 * (high - low)
    assert 2 <= len(scale.marks) <= 7
    assert scale.marks[0].position == pytest.approx(0, abs=1e-9)
    assert scale.marks[-1].position == pytest.approx(1)


def test_logarithmic_marks_are_powers_of_ten() -> None:
    scale = scales.logarithmic(180, 38_000)
    assert [mark.value for mark in scale.marks] == [100, 1000, 10_000, 100_000]
    assert scale.position(1000) == pytest.approx(1 / 3)
    assert scale.position(0) == 0
    assert len(scales.logarithmic(1e-6, 1e12).marks) <= 8


@pytest.mark.parametrize(
    ("length", "words"),
    [
        (timedelta(seconds=10), ["12:00:00", "12:00:02", "12:00:04", "12:00:06", "12:00:08", "12:00:10"]),
        (timedelta(minutes=30), ["12:00", "12:05", "12:10", "12:15", "12:20", "12:25", "12:30"]),
        (timedelta(hours=24), ["12:00", "15:00", "18:00", "21:00", "02 Jun", "03:00", "06:00", "09:00", "12:00"]),
        (timedelta(days=3), ["12:00", "02 Jun", "12:00", "03 Jun", "12:00", "04 Jun", "12:00"]),
        (timedelta(days=6), ["02 Jun", "03 Jun", "04 Jun", "05 Jun", "06 Jun", "07 Jun"]),
    ],
)
def test_times_are_round(length: timedelta, words: list[str]) -> None:
    assert [said for _, said in scales.times(NOON, NOON + length)] == words


def test_times_stand_where_they_belong() -> None:
    marks = scales.times(NOON - timedelta(minutes=1), NOON + timedelta(minutes=3), 2)
    assert marks == [(0.25, "12:00"), (0.75, "12:02")]


def test_many_years_have_few_marks() -> None:
    assert 0 < len(scales.times(NOON, NOON + timedelta(days=365 * 40))) <= 9
