from dataclasses import replace
from datetime import timedelta

from tests.analytics.report.made import BEGIN, WINDOW, Drop, Sizes, bad_day, nothing
from tests.analytics.report.sections.parts import part, section
from trunkline.analytics.report.plots import Plot
from trunkline.analytics.report.results import Window
from trunkline.analytics.report.sections.order import sections
from trunkline.analytics.report.sections.section import MAX_SERIES
from trunkline.analytics.report.tables import Table


def test_traffic_is_what_the_rows_say() -> None:
    results = replace(nothing(), timeline=[Window(BEGIN, 3, 30, 6, 60)])
    plot = part(section(sections(results), "traffic"), "traffic-bytes")
    assert isinstance(plot, Plot)
    assert plot.table == [["2025-06-01 14:30:00", "30\N{NO-BREAK SPACE}B", "60\N{NO-BREAK SPACE}B"]]


def test_sizes_of_payloads_are_written_as_other_sizes_are() -> None:
    sizes = [Sizes(most, 1, 9, 9) for most in (100, 1000, None)]
    results = replace(nothing(), timeline=[Window(BEGIN, 3, 30, 6, 60)], sizes=sizes)
    table = part(section(sections(results), "traffic"), "payload-sizes")
    assert isinstance(table, Table)
    assert [row[0].text for row in table.rows] == ["100\N{NO-BREAK SPACE}B", "1\N{NO-BREAK SPACE}kB", "more"]


def test_latency_says_when_windows_were_grouped() -> None:
    long = replace(bad_day(), end=BEGIN + timedelta(seconds=WINDOW * 1000))
    assert "worst of 5 windows" in section(sections(long), "latency").words
    assert "worst" not in section(sections(bad_day()), "latency").words


def test_rare_reasons_are_one_in_the_plot_and_apart_in_the_table() -> None:
    rows = [Drop(BEGIN, f"reason {number}", 10 - number) for number in range(8)]
    found = section(sections(replace(nothing(), drops=rows)), "drops")
    plot, table = found.parts
    assert isinstance(plot, Plot)
    assert isinstance(table, Table)
    assert len(plot.series) == MAX_SERIES
    assert (plot.series[-1].name, plot.series[-1].figure) == ("other reasons", "18 in all")
    assert len(table.rows) == 8


def test_as_many_reasons_as_fit_are_all_told_apart() -> None:
    rows = [Drop(BEGIN, f"reason {number}", 1) for number in range(MAX_SERIES)]
    plot = section(sections(replace(nothing(), drops=rows)), "drops").parts[0]
    assert isinstance(plot, Plot)
    assert [each.name for each in plot.series] == [f"reason {number}" for number in range(MAX_SERIES)]
