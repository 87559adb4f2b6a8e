from dataclasses import replace

from tests.analytics.report.made import BEGIN, Drop, bad_day, nothing
from trunkline.analytics.report.findings import SEVERITIES, findings, tiles, totals
from trunkline.analytics.report.results import Health, Who, Window


def test_nothing_stands_out_where_nothing_happened() -> None:
    assert findings(nothing()) == []
    assert {tile.figure for tile in tiles(nothing())} == {"0", "–"}


def test_all_that_went_wrong_is_told_and_leads_somewhere() -> None:
    assert [(found.name, found.section, found.text) for found in findings(bad_day("odd"))] == [
        ("missing", "pipeline", "5 events cannot be read: figures are too low."),
        ("unwritten", "pipeline", "The exporter lost 40 events: figures are too low."),
        ("alarms", "alarms", "Alarms that are on: events.disk."),
        ("dropped", "drops", "1\N{NARROW NO-BREAK SPACE}152 messages did not reach a subscriber."),
        ("losers", "queues", "Too slow or away too long, and lost 40 messages: archive, odd."),
        ("clocks", "nodes", "Clocks were corrected 1 time: durations across that are not exact."),
        ("flapping", "flapping", "2 clients flapped: pump-17, odd."),
        ("silent", "silent", "1 client fell silent: meter-3."),
        ("guesses", "denials", "Many logins failed from 203.0.113.7."),
        ("filling", "queues", "Will be full, the first in 5.06\N{NO-BREAK SPACE}h: queue_length of archive."),
        ("near", "gauges", "Came near their limit, or reached it: connections.count of n1."),
        ("late", "gauges", "The event loop was late, at most by 1.2\N{NO-BREAK SPACE}s: n1."),
        ("moving", "connections", "1 client went to and fro between nodes: pump-17."),
        ("grown", "gauges", "Grew, and did not come back: connections.count of odd."),
        ("uneven", "nodes", "Uneven load, with most of it on n1 (published), n1 (delivered), n1 (clients connected)."),
        ("brief", "connections", "200 connections of 300 lasted less than 5\N{NO-BREAK SPACE}s."),
        ("heavy", "topics", "Most deliveries are of few messages, each to many: odd."),
        ("dead", "topics", "2 subscriptions got nothing for 15\N{NO-BREAK SPACE}min, of archive, odd."),
    ]


def test_the_most_severe_comes_first() -> None:
    severities = [SEVERITIES.index(found.severity) for found in findings(bad_day())]
    assert severities == sorted(severities)
    assert {*severities} == {0, 1, 2}


def test_deliveries_are_what_was_written_or_lost_and_each_counts_once() -> None:
    rows = [Drop(BEGIN, "session_ended", 40)]
    results = replace(nothing(), timeline=[Window(BEGIN, published=100, delivered=90)], drops=rows, written=30)
    found = {tile.name: (tile.figure, tile.more) for tile in tiles(results)}
    assert found["Lost"] == ("40", "40% of deliveries; 30 were delivered first")
    assert totals(results).lost_delivered == 30


def test_messages_that_nobody_wants_are_no_loss() -> None:
    rows = [Drop(BEGIN, "no_subscribers", 100), Drop(BEGIN, "queue_full", 1)]
    assert [finding.text for finding in findings(replace(nothing(), drops=rows))] == [
        "1 message did not reach a subscriber."
    ]
    assert findings(replace(nothing(), drops=rows[:1])) == []


def test_messages_without_subscribers_are_no_lost_deliveries() -> None:
    rows = [Drop(BEGIN, "no_subscribers", 50), Drop(BEGIN, "queue_full", 1), Drop(BEGIN, "expired", 7)]
    results = replace(nothing(), timeline=[Window(BEGIN, published=100, delivered=99)], drops=rows)
    found = {tile.name: (tile.figure, tile.more) for tile in tiles(results)}
    assert found["Lost"] == ("1", "1% of deliveries")
    assert found["Without subscribers"] == ("50", "50% of messages")


def test_what_is_lost_is_not_all_while_something_was_delivered() -> None:
    results = replace(
        nothing(), timeline=[Window(BEGIN, published=1, delivered=1)], drops=[Drop(BEGIN, "queue_full", 9_999)]
    )
    assert {tile.name: tile.more for tile in tiles(results)}["Lost"] == "99.99% of deliveries"
    assert {tile.name: tile.more for tile in tiles(nothing())}["Lost"] == "no deliveries"


def test_tiles_add_up() -> None:
    results = bad_day()
    found = {tile.name: tile for tile in tiles(results)}
    assert found["Denied"].figure == "69"
    assert found["Latency, worst p99"].figure == "40\N{NO-BREAK SPACE}ms"
    assert found["Published"].more.endswith("MB")


def test_each_tile_tells_what_it_was_before() -> None:
    results = bad_day()
    assert all(tile.before for tile in tiles(results))
    found = {tile.name: tile.before for tile in tiles(results)}
    assert found["Denied"] == "before: 46 (+50%); 3 clients"
    assert found["Within 100\N{NO-BREAK SPACE}ms"] == "before: 100% (+0%); of 50 live deliveries"
    assert found["Lost"] == "before: 0; 0% of deliveries"
    assert not any(tile.before for tile in tiles(replace(results, before=None)))


def test_what_there_is_none_of_has_not_changed() -> None:
    found = {tile.name: tile.before for tile in tiles(replace(bad_day(), latency=[]))}
    assert found["Latency, worst p99"] == "before: 300\N{NO-BREAK SPACE}µs; usual p50 100\N{NO-BREAK SPACE}µs"
    assert found["Within 100\N{NO-BREAK SPACE}ms"] == "before: 100%; of 50 live deliveries"


def test_what_will_be_full_is_told_by_the_first() -> None:
    results = replace(nothing(), filling=Who(2, ("queue_length of b", "queue_length of a")), full_in=90.0)
    assert [finding.text for finding in findings(results)] == [
        "Will be full, the first in 90\N{NO-BREAK SPACE}s: queue_length of b, queue_length of a."
    ]


def test_what_is_full_is_told_as_that() -> None:
    full, filling = Who(1, ("queue_length of a",)), Who(1, ("retained.count of n",))
    assert [finding.text for finding in findings(replace(nothing(), full=full, filling=filling, full_in=90.0))] == [
        "Full: queue_length of a.",
        "Will be full, the first in 90\N{NO-BREAK SPACE}s: retained.count of n.",
    ]


def test_names_are_the_first_of_all() -> None:
    results = replace(nothing(), losers=Who(5000, ("c0", "c1", "c2", "c3")), lost=9000)
    assert [finding.text for finding in findings(results)] == [
        (
            "Too slow or away too long, and lost 9\N{NARROW NO-BREAK SPACE}000 messages: c0, c1, c2 and "
            "4\N{NARROW NO-BREAK SPACE}997 more."
        )
    ]


def test_a_node_that_was_killed_is_named() -> None:
    rows = [
        Health("n1@1", "n1", BEGIN, BEGIN, 5, 0, 0, 0, "killed"),
        Health("n1@2", "n1", BEGIN, BEGIN, 5, 0, 0, 0, "running"),
    ]
    assert [finding.text for finding in findings(replace(nothing(), health=rows))] == ["Ended without a stop: n1@1."]


def test_refusals_without_guesses_are_counted() -> None:
    assert [finding.text for finding in findings(replace(nothing(), denied=3))] == ["Refused: 3 requests."]
