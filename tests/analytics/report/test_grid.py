from datetime import UTC, datetime, timedelta

import pytest

from trunkline.analytics.report.grid import MOST_POINTS, Grid

NOON = datetime(2025, 6, 1, 12, tzinfo=UTC)


def row(second: float, value: float) -> tuple[datetime, float]:
    return NOON + timedelta(seconds=second), value


def grid(seconds: float, window: float = 10, most: int = MOST_POINTS) -> Grid:
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
    assert grid(365 * 86_400, 1).size <= MOST_POINTS


def test_a_moment_is_one_window() -> None:
    assert grid(0).size == 1


@pytest.mark.parametrize(("seconds", "window"), [(-1, 10), (10, 0)])
def test_what_is_no_grid_is_refused(seconds: float, window: float) -> None:
    with pytest.raises(ValueError, match="windows of"):
        grid(seconds, window)


def test_levels_hold_until_the_next_reading_but_not_for_long() -> None:
    assert grid(70).held([None, 3, None, None, None, 5, None], 20) == [None, 3, 3, 3, None, 5, 5]
