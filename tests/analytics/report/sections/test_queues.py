from dataclasses import replace

from tests.analytics.report.made import BEGIN, Growth, nothing, whole
from tests.analytics.report.sections.parts import part, section
from trunkline.analytics.report.plots import Plot
from trunkline.analytics.report.results import QueueReading
from trunkline.analytics.report.sections.order import sections
from trunkline.analytics.report.sections.queues import LIMITS
from trunkline.analytics.report.tables import Table


def test_what_is_full_says_so() -> None:
    rows = [
        Growth("d", "queue_length", "n1", 1000, -0.25, 1000, 0),
        Growth("c", "queue_length", "n1", 900, 0.5, 4500, 7200),
        Growth("", "retained.count", "n1", 34, 0.0, None, None),
        Growth("e", "queue_length", "n1", 7, None, None, None),
    ]
    table = part(section(sections(replace(nothing(), growth=whole(rows))), "queues"), "queue-growth")
    assert isinstance(table, Table)
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["queue_length", "d", "n1", "1k", "1k", "\N{MINUS SIGN}15 a minute", "is full"],
        ["queue_length", "c", "n1", "900", "4.5k", "+30 a minute", "2\N{NO-BREAK SPACE}h"],
        ["retained.count", "–", "n1", "34", "–", "+0 a minute", "–"],
        ["queue_length", "e", "n1", "7", "–", "–", "–"],
    ]
    assert table.note == LIMITS


def test_the_longest_queues_are_drawn() -> None:
    rows = [QueueReading(BEGIN, f"c{number}", number, number, BEGIN) for number in range(9)]
    plot = part(section(sections(replace(nothing(), queues=rows)), "queues"), "queue-lengths")
    assert isinstance(plot, Plot)
    assert [each.name for each in plot.series] == ["c8", "c7", "c6", "c5", "c4"]
