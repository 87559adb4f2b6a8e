from dataclasses import replace
from datetime import timedelta

from tests.analytics.report.made import BEGIN, nothing, whole
from tests.analytics.report.sections.parts import part, section
from trunkline.analytics.report.plots import Plot
from trunkline.analytics.report.results import Alert, Silence, Top, Window
from trunkline.analytics.report.sections.order import sections
from trunkline.analytics.report.tables import Table


def test_churn_has_those_who_went_below() -> None:
    plot = part(
        section(
            sections(replace(nothing(), timeline=[Window(BEGIN, connected=5, disconnected=2, refused=1)])),
            "connections",
        ),
        "churn",
    )
    assert isinstance(plot, Plot)
    assert [(each.name, each.figure) for each in plot.series] == [
        ("connected", "5 in all"),
        ("refused", "1 in all"),
        ("disconnected", "2 in all"),
    ]


def test_who_flaps_and_of_how_many() -> None:
    later = BEGIN + timedelta(seconds=1)
    rows = [
        Alert("flapping", "client", "b", BEGIN, None, 9),
        Alert("flapping", "client", "a", BEGIN, later, 5),
    ]
    table = part(section(sections(replace(nothing(), flapping=Top(rows, 300))), "flapping"), "flapping-clients")
    assert isinstance(table, Table)
    assert table.total == 300
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["b", "9", "2025-06-01 14:30:00", "goes on"],
        ["a", "5", "2025-06-01 14:30:00", "2025-06-01 14:30:01"],
    ]


def test_those_who_are_silent_still_go_on() -> None:
    rows = [Silence("b", BEGIN, 1.0, None), Silence("a", BEGIN, 1.0, BEGIN)]
    table = part(section(sections(replace(nothing(), silences=whole(rows))), "silent"), "silent-clients")
    assert isinstance(table, Table)
    assert [(row[0].text, row[3].text) for row in table.rows] == [("b", "goes on"), ("a", "2025-06-01 14:30:00")]


def test_alerts_stand_with_what_was_refused() -> None:
    rows = [Alert("logins", "peer", "192.0.2.1", BEGIN, None, 57)]
    table = part(section(sections(replace(nothing(), alerts=whole(rows))), "denials"), "alerts")
    assert isinstance(table, Table)
    assert [cell.text for cell in table.rows[0]] == [
        "failed logins",
        "–",
        "192.0.2.1",
        "2025-06-01 14:30:00",
        "goes on",
        "57",
    ]
