import re
from datetime import UTC, datetime, timedelta

from trunkline.analytics.report import wording
from trunkline.analytics.report.axes import Grid
from trunkline.analytics.report.plots import SIDE, Band, Series, bands, bars, lines

NOON = datetime(2025, 6, 1, 12, tzinfo=UTC)
GRID = Grid(NOON, NOON + timedelta(seconds=40), 10)


def numbers(path: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?[0-9.]+(?:e-?\d+)?", path)]


def test_a_line_breaks_at_gaps_and_shows_single_points() -> None:
    plot = lines("p", "Latency", GRID, [Series("p50", [4, None, 2, 4])], wording.short, adds_up=False)
    path = plot.series[0].path
    assert path == "M125 0h0M625 500h0L875 0"
    assert plot.series[0].area == ""
    assert plot.series[0].figure == "at most 4"


def test_what_adds_up_has_an_area_and_a_sum() -> None:
    plot = lines("p", "Messages", GRID, [Series("in", [1, 2, 3, 4])], wording.short)
    assert plot.series[0].figure == "10 in all"
    assert plot.series[0].area.endswith("L875 1000L125 1000z")


def test_what_is_far_apart_gets_a_logarithmic_axis() -> None:
    plot = lines("p", "Latency", GRID, [Series("p99", [100, 100, 90, 100_000])], wording.short, adds_up=False)
    assert "logarithmic" in plot.note
    assert [words for _, words in plot.marks] == ["10", "100", "1k", "10k", "100k"]
    assert not lines("p", "Messages", GRID, [Series("in", [1, 1, 1, 100_000])], wording.short).note


def test_bars_stand_on_each_other_and_hang_below() -> None:
    plot = bars("p", "Churn", GRID, [Series("a", [1, 0, 0, 0]), Series("b", [1, 0, 0, 0])], [Series("c", [2, 0, 0, 0])])
    assert [words for _, words in plot.marks] == ["2", "1", "0", "1", "2"]
    assert plot.zero == SIDE / 2
    tops = [re.fullmatch(r"M(\S+) (\S+)V(\S+)h(\S+)V\S+z", each.path) for each in plot.series]
    assert [(match[2], match[3]) for match in tops if match] == [("500", "250"), ("250", "0"), ("500", "1000")]


def test_points_tell_their_values() -> None:
    plot = lines("p", "Latency", GRID, [Series("p50", [None, 7, 0, 8])], wording.short, adds_up=False)
    assert [hit.text for hit in plot.hits] == ["2025-06-01 12:00:10 UTC\np50: 7", "2025-06-01 12:00:30 UTC\np50: 8"]
    assert plot.table[0] == ["2025-06-01 12:00:00", "–"]
    assert plot.headings == ["Time (UTC)", "p50"]
    assert plot.summary == (
        "Latency from 2025-06-01 12:00:00 to 2025-06-01 12:00:40 UTC, a point every 10\N{NO-BREAK SPACE}s. p50: at "
        "most 8."
    )


def test_nothing_leaves_the_drawing() -> None:
    values = [0.0, 1e9, 3.0, 1e-9]
    for plot in (
        lines("p", "P", GRID, [Series("a", values)], wording.short),
        lines("p", "P", GRID, [Series("a", values)], wording.short, adds_up=False),
        lines("p", "P", GRID, [Series("a", [None] * 4)], wording.short, adds_up=False),
        bars("p", "P", GRID, [Series("a", values)], [Series("b", values)]),
    ):
        for each in plot.series:
            assert all(0 <= number <= SIDE for number in numbers(each.path + each.area)), each.path


def test_a_band_goes_along_the_highest_and_back_along_the_lowest() -> None:
    plot = bands("p", "Sessions", GRID, [Band("n1", [(0, 1, 4), (2, 2, 2), None, (1, 2, 3)])], wording.short)
    (drawn,) = plot.series
    assert drawn.path == "M125 750h0L375 500M875 500h0"
    assert drawn.area == "M125 0L375 500L375 500L125 1000zM875 250L875 750z"
    assert drawn.figure == "0 to 4"
    assert [values[1] for values in plot.table] == ["1 (0 to 4)", "2", "–", "2 (1 to 3)"]
