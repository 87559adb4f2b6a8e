from dataclasses import replace
from datetime import timedelta

from tests.analytics.report.made import BEGIN, WINDOW, bad_day, nothing
from tests.analytics.report.sections.parts import part, section
from trunkline.analytics.report.plots import Plot
from trunkline.analytics.report.results import GAUGES, GaugeLevels, GaugeSums
from trunkline.analytics.report.sections.gauges import TITLES
from trunkline.analytics.report.sections.order import sections
from trunkline.analytics.report.sections.section import MAX_SERIES
from trunkline.analytics.report.tables import Table


def test_each_gauge_has_a_title() -> None:
    assert TITLES.keys() == GAUGES.keys()


def test_a_gauge_is_told_in_its_unit_and_drawn_if_it_changed() -> None:
    found = section(sections(bad_day("odd")), "gauges")
    assert [each.id for each in found.parts] == [
        "gauge-levels",
        "gauge-connections-count",
        "gauge-loop-lag-microseconds",
    ]
    table = found.parts[0]
    assert isinstance(table, Table)
    assert [[cell.text.replace("\N{NO-BREAK SPACE}", " ") for cell in row] for row in table.rows][::3] == [
        ["Clients connected", "n1", "10", "99", "219", "2025-06-01 14:59:50", "199", "220, 99.6% of it at most"],
        ["How late the event loop is", "n1", "0 µs", "9 µs", "1.2 s", "2025-06-01 14:30:40", "70 µs", "–"],
    ]


def test_of_many_nodes_the_highest_are_drawn_and_the_title_says_so() -> None:
    nodes = [f"n{number}" for number in range(MAX_SERIES + 2)]
    windows = [
        GaugeLevels(BEGIN + timedelta(seconds=second), node, "sessions.count", 1, 2, 3 + number, WINDOW)
        for number, node in enumerate(nodes)
        for second in (0, WINDOW)
    ]
    sums = [
        GaugeSums(node, "sessions.count", 1, 2, 3 + number, BEGIN, 2, None, None, False)
        for number, node in enumerate(nodes)
    ]
    results = replace(nothing(), gauges=windows, gauge_sums=sums)
    plot = part(section(sections(results), "gauges"), "gauge-sessions-count")
    assert isinstance(plot, Plot)
    assert plot.title == "Sessions, of the highest 5 of 7 nodes"
    assert [each.name for each in plot.series] == nodes[:1:-1]
    assert plot.table[0][1] == "2 (1 to 9)"
