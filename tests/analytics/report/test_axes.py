from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.analytics.report import axes
from trunkline.analytics.report.axes import MAX_POINTS, Grid

NOON = datetime(2025, 6, 1, 12, tzinfo=UTC)


def row(second: float, value: float) -> tuple[datetime, float]:
    return NOON + timedelta(seconds=second), value


def grid(seconds: float, window: float = 10, most: int = MAX_POINTS) -> Grid:
    return Grid(NOON, NOON + timedelta(seconds=seconds), window, most)


def test_windows_without_rows_are_zero_or_nothing() -> None:
    rows = [row(0, 3), row(20, 4), row(20, 1)]
    assert grid(40).sums(rows) == [3, 0, 5, 0]
    assert grid(40).highest(rows) == [3, None, 4, None]


def test_rows_outside_do_not_count() -> None:
    rows = [row(-10, 3), row(40, 4)]
    assert grid(40).sums(rows) == [0, 0, 0, 0]


def test_too_many_windows_are_grouped() -> None:
    found = grid(100, 10, most=4)
    assert (found.grouped, found.size, found.step) == (3, 4, 30)
    assert found.end == NOON + timedelta(seconds=120)
    rows = [row(second, 1) for second in range(0, 100, 10)]
    assert found.sums(rows) == [3, 3, 3, 1]


def test_a_year_of_seconds_fits() -> None:
    assert grid(365 * 86_400, 1).size <= MAX_POINTS


def test_a_moment_is_one_window() -> None:
    assert grid(0).size == 1


def test_the_last_of_a_window_holds_until_its_time() -> None:
    def reading(begin: float, highest: float, last: float, until: float) -> tuple[datetime, float, float, datetime]:
        return NOON + timedelta(seconds=begin), highest, last, NOON + timedelta(seconds=until)

    assert grid(70).held([reading(10, 9, 3, 40), reading(50, 5, 5, 500)]) == [None, 9, 3, 3, None, 5, 5]
    # emptied within a window
    assert grid(30).held([reading(0, 200, 0, 300)]) == [200, 0, 0]
    # from before, by a node that stopped within the window, and of two nodes
    assert grid(30).held([reading(-20, 9, 4, 11), reading(20, 7, 7, 21), reading(20, 8, 8, 21)]) == [4, 4, 8]


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
    assert axes.linear(low, high).marks == pytest.approx(values)


@given(st.floats(-1e12, 0), st.floats(1e-9, 1e12))
def test_linear_holds_everything_with_few_marks(low: float, high: float) -> None:
    scale = axes.linear(low, high)
    assert scale.low <= low + 1e-9 * (high - low)
    assert scale.high >= high - 1e-9 * (high - low)
    assert 2 <= len(scale.marks) <= 7
    assert scale.position(scale.marks[0]) == pytest.approx(0, abs=1e-9)
    assert scale.position(scale.marks[-1]) == pytest.approx(1)


def test_logarithmic_marks_are_powers_of_ten() -> None:
    scale = axes.logarithmic(180, 38_000)
    assert scale.marks == [100, 1000, 10_000, 100_000]
    assert scale.position(1000) == pytest.approx(1 / 3)
    assert scale.position(0) == 0
    assert len(axes.logarithmic(1e-6, 1e12).marks) <= 8


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
    assert [label for _, label in Grid(NOON, NOON + length, length.total_seconds()).marks()] == words


def test_times_stand_where_they_belong() -> None:
    assert Grid(NOON - timedelta(minutes=1), NOON + timedelta(minutes=3), 60).marks(2) == [
        (0.25, "12:00"),
        (0.75, "12:02"),
    ]


def test_many_years_have_few_marks() -> None:
    assert 0 < len(Grid(NOON, NOON + timedelta(days=365 * 40), 86_400).marks()) <= 9


def test_spans_of_grouped_windows_are_theirs_together() -> None:
    grid = Grid(NOON, NOON + timedelta(seconds=40), 10, most=2)
    levels = [
        (NOON, (1.0, 2.0, 3.0)),
        (NOON + timedelta(seconds=10), (0.0, 4.0, 9.0)),
        (NOON - timedelta(1), (7, 7, 7)),
    ]
    assert grid.spans(levels) == [(0.0, 3.0, 9.0), None]
