from dataclasses import replace
from datetime import timedelta

from tests.analytics.report.made import BEGIN, WINDOW, bad_day, nothing
from trunkline.analytics.report.plots import Plot
from trunkline.analytics.report.results import Churn, Drop, Flapping, Lag, Queue, Traffic
from trunkline.analytics.report.sections import MOST_SERIES, Section, sections
from trunkline.analytics.report.tables import Table


def section(found: list[Section], name: str) -> Section:
    return next(each for each in found if each.id == name)


def part(of: Section, name: str) -> Plot | Table:
    return next(each for each in of.parts if each.id == name)


def test_sections_without_results_say_so() -> None:
    found = sections(nothing())
    assert len(found) == 9
    assert all(not each.parts and each.nothing for each in found)


def test_every_section_has_parts_with_names_of_their_own() -> None:
    found = sections(bad_day())
    names = [each.id for each in found] + [part.id for each in found for part in each.parts]
    assert all(each.parts for each in found)
    assert len(set(names)) == len(names)


def test_traffic_is_what_the_rows_say() -> None:
    results = replace(nothing(), traffic=[Traffic(BEGIN, 3, 30, 6, 60)])
    plot = part(section(sections(results), "traffic"), "traffic-bytes")
    assert isinstance(plot, Plot)
    assert plot.table == [["2025-06-01 14:30:00", "30\N{NO-BREAK SPACE}B", "60\N{NO-BREAK SPACE}B"]]


def test_latency_says_when_windows_were_grouped() -> None:
    long = replace(bad_day(), end=BEGIN + timedelta(seconds=WINDOW * 1000))
    assert "worst of 5 windows" in section(sections(long), "latency").words
    assert "worst" not in section(sections(bad_day()), "latency").words


def test_churn_has_those_who_went_below() -> None:
    plot = part(section(sections(replace(nothing(), churn=[Churn(BEGIN, 5, 2, 1)])), "connections"), "churn")
    assert isinstance(plot, Plot)
    assert [(each.name, each.figure) for each in plot.series] == [
        ("connected", "5 in all"),
        ("refused", "1 in all"),
        ("disconnected", "2 in all"),
    ]


def test_who_flaps_most_is_first() -> None:
    later = BEGIN + timedelta(seconds=1)
    rows = [Flapping("a", BEGIN, later, 5), Flapping("b", BEGIN, None, 9)]
    table = part(section(sections(replace(nothing(), flapping=rows)), "flapping"), "flapping-clients")
    assert isinstance(table, Table)
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["b", "9", "2025-06-01 14:30:00", "goes on"],
        ["a", "5", "2025-06-01 14:30:00", "2025-06-01 14:30:01"],
    ]


def test_rare_reasons_are_one_in_the_plot_and_apart_in_the_table() -> None:
    rows = [Drop(BEGIN, f"reason {number}", 10 - number) for number in range(8)]
    found = section(sections(replace(nothing(), drops=rows)), "drops")
    plot, table = found.parts
    assert isinstance(plot, Plot)
    assert isinstance(table, Table)
    assert len(plot.series) == MOST_SERIES
    assert (plot.series[-1].name, plot.series[-1].figure) == ("other reasons", "18 in all")
    assert len(table.rows) == 8


def test_as_many_reasons_as_fit_are_all_told_apart() -> None:
    rows = [Drop(BEGIN, f"reason {number}", 1) for number in range(MOST_SERIES)]
    plot = section(sections(replace(nothing(), drops=rows)), "drops").parts[0]
    assert isinstance(plot, Plot)
    assert [each.name for each in plot.series] == [f"reason {number}" for number in range(MOST_SERIES)]


def test_growth_is_told_a_minute() -> None:
    rows = [Queue(BEGIN + timedelta(seconds=30 * index), "c", 100 - 30 * index) for index in range(3)]
    rows.append(Queue(BEGIN, "once", 7))
    results = replace(nothing(), end=BEGIN + timedelta(seconds=100), queues=rows)
    table = part(section(sections(results), "queues"), "queue-growth")
    assert isinstance(table, Table)
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["c", "100", "40", "\N{MINUS SIGN}60 a minute"],
        ["once", "7", "7", "–"],
    ]


def test_who_is_most_behind_is_first() -> None:
    found = section(sections(replace(nothing(), lags=[Lag("a", 1, 0.5), Lag("b", 2, 3)])), "pipeline")
    table = part(found, "consumers")
    assert isinstance(table, Table)
    assert [row[0].text for row in table.rows] == ["b", "a"]
