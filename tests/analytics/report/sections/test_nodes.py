from dataclasses import replace

from tests.analytics.report.made import Lag, bad_day, nothing
from tests.analytics.report.sections.parts import part, section
from trunkline.analytics.report.sections.order import sections
from trunkline.analytics.report.tables import Table


def test_alarms_that_are_on_are_first() -> None:
    table = part(section(sections(bad_day("odd")), "alarms"), "alarm-times")
    assert isinstance(table, Table)
    assert [[row[0].text, row[3].text, row[4].text] for row in table.rows] == [
        ["events.disk", "before", "goes on"],
        ["sessions_full", "2025-06-01 14:30:30", "2025-06-01 14:31:30"],
    ]


def test_who_is_most_behind_is_first() -> None:
    found = section(sections(replace(nothing(), lags=[Lag("a", 1, 0.5), Lag("b", 2, 3)])), "pipeline")
    table = part(found, "consumers")
    assert isinstance(table, Table)
    assert [row[0].text for row in table.rows] == ["b", "a"]
