from dataclasses import replace
from datetime import timedelta

from tests.analytics.report.made import BEGIN, WINDOW, Drop, Growth, Lag, bad_day, nothing
from trunkline.analytics.report.plots import Plot
from trunkline.analytics.report.results import Alert, QueueReading, Silence, Window
from trunkline.analytics.report.sections import LIMITS, MAX_SERIES, Section, sections
from trunkline.analytics.report.tables import Table


def section(found: list[Section], name: str) -> Section:
    return next(each for each in found if each.id == name)


def part(of: Section, name: str) -> Plot | Table:
    return next(each for each in of.parts if each.id == name)


def test_sections_without_results_say_so() -> None:
    found = sections(nothing())
    assert len(found) == 13
    assert all(not each.parts and each.nothing for each in found)


def test_what_is_not_recorded_is_not_denied() -> None:
    found = sections(replace(nothing(), recorded=frozenset(("message.publish", "message.delivered"))))
    assert section(found, "drops").nothing == "Not recorded: message.dropped."
    assert section(found, "traffic").nothing == "No message was published or delivered."
    assert section(found, "alarms").nothing == "Not recorded: alarm.activated, alarm.deactivated."
    assert section(found, "queues").nothing == "No message waited for a client."
    unknown = section(sections(nothing()), "drops").nothing
    assert unknown == "The log has nothing of that, and does not say whether it is recorded."
    narrow = sections(replace(nothing(), recorded=frozenset(("message.dropped",)), narrowed=["clients", "topics"]))
    assert section(narrow, "drops").nothing == "No message was dropped. Only some clients and topics are recorded."


def test_alarms_that_are_on_are_first() -> None:
    table = part(section(sections(bad_day("odd")), "alarms"), "alarm-times")
    assert isinstance(table, Table)
    assert [[row[0].text, row[3].text, row[4].text] for row in table.rows] == [
        ["events.disk", "before", "goes on"],
        ["sessions_full", "2025-06-01 14:30:30", "2025-06-01 14:31:30"],
    ]


def test_every_section_has_parts_with_names_of_their_own() -> None:
    found = sections(bad_day())
    names = [each.id for each in found] + [part.id for each in found for part in each.parts]
    assert all(each.parts for each in found)
    assert len(set(names)) == len(names)


def test_traffic_is_what_the_rows_say() -> None:
    results = replace(nothing(), timeline=[Window(BEGIN, 3, 30, 6, 60)])
    plot = part(section(sections(results), "traffic"), "traffic-bytes")
    assert isinstance(plot, Plot)
    assert plot.table == [["2025-06-01 14:30:00", "30\N{NO-BREAK SPACE}B", "60\N{NO-BREAK SPACE}B"]]


def test_latency_says_when_windows_were_grouped() -> None:
    long = replace(bad_day(), end=BEGIN + timedelta(seconds=WINDOW * 1000))
    assert "worst of 5 windows" in section(sections(long), "latency").words
    assert "worst" not in section(sections(bad_day()), "latency").words


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


def test_who_flaps_most_is_first() -> None:
    later = BEGIN + timedelta(seconds=1)
    rows = [
        Alert("flapping", "client", "a", BEGIN, later, 5),
        Alert("flapping", "client", "b", BEGIN, None, 9),
    ]
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
    assert len(plot.series) == MAX_SERIES
    assert (plot.series[-1].name, plot.series[-1].figure) == ("other reasons", "18 in all")
    assert len(table.rows) == 8


def test_as_many_reasons_as_fit_are_all_told_apart() -> None:
    rows = [Drop(BEGIN, f"reason {number}", 1) for number in range(MAX_SERIES)]
    plot = section(sections(replace(nothing(), drops=rows)), "drops").parts[0]
    assert isinstance(plot, Plot)
    assert [each.name for each in plot.series] == [f"reason {number}" for number in range(MAX_SERIES)]


def test_what_is_full_first_is_first() -> None:
    rows = [
        Growth("", "retained.count", "n1", 34, 0.0, None, None),
        Growth("c", "queue_length", "n1", 900, 0.5, 4500, 7200),
        Growth("d", "queue_length", "n1", 1000, -0.25, 1000, 0),
        Growth("e", "queue_length", "n1", 7, None, None, None),
    ]
    table = part(section(sections(replace(nothing(), growth=rows)), "queues"), "queue-growth")
    assert isinstance(table, Table)
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["queue_length", "d", "1k", "1k", "\N{MINUS SIGN}15 a minute", "is full"],
        ["queue_length", "c", "900", "4.5k", "+30 a minute", "2\N{NO-BREAK SPACE}h"],
        ["retained.count", "n1", "34", "–", "+0 a minute", "–"],
        ["queue_length", "e", "7", "–", "–", "–"],
    ]
    assert table.note == LIMITS


def test_the_longest_queues_are_drawn() -> None:
    rows = [QueueReading(BEGIN, f"c{number}", number, number, BEGIN) for number in range(9)]
    plot = part(section(sections(replace(nothing(), queues=rows)), "queues"), "queue-lengths")
    assert isinstance(plot, Plot)
    assert [each.name for each in plot.series] == ["c8", "c7", "c6", "c5", "c4"]


def test_those_who_are_silent_still_are_first() -> None:
    rows = [Silence("a", BEGIN, 1.0, BEGIN), Silence("b", BEGIN, 1.0, None)]
    table = part(section(sections(replace(nothing(), silences=rows)), "silent"), "silent-clients")
    assert isinstance(table, Table)
    assert [(row[0].text, row[3].text) for row in table.rows] == [("b", "goes on"), ("a", "2025-06-01 14:30:00")]


def test_alerts_stand_with_what_was_refused() -> None:
    rows = [Alert("logins", "peer", "192.0.2.1", BEGIN, None, 57)]
    table = part(section(sections(replace(nothing(), alerts=rows)), "denials"), "alerts")
    assert isinstance(table, Table)
    assert [cell.text for cell in table.rows[0]] == [
        "failed logins",
        "192.0.2.1",
        "2025-06-01 14:30:00",
        "goes on",
        "57",
    ]


def test_who_is_most_behind_is_first() -> None:
    found = section(sections(replace(nothing(), lags=[Lag("a", 1, 0.5), Lag("b", 2, 3)])), "pipeline")
    table = part(found, "consumers")
    assert isinstance(table, Table)
    assert [row[0].text for row in table.rows] == ["b", "a"]
