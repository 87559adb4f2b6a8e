from typing import TYPE_CHECKING

from tests.analytics.events_made import Row, at, frame, guid, row
from trunkline.analytics.report.cutting import rows_of
from trunkline.analytics.report.figures import (
    alerts,
    delays,
    findings,
    gauges,
    growth,
    last_stays,
    left,
    refusals,
    silences,
    sizes,
    stays,
    timeline,
    ways,
    written,
)
from trunkline.events.schema import Flag

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OF_C = {"client_id": "c", "peer": "192.0.2.1"}


def test_sums_of_windows_heed_weights_and_borders(spark: "SparkSession") -> None:
    events = frame(
        spark,
        [
            row("message.publish", 0.0, size=10),
            row("message.publish", 4.999999, size=5, weight=10),
            row("message.publish", 5.0, size=1),
            row("message.delivered", 1.0, size=7),
            row("message.dropped", 1.0, reason="expired", size=3),
            row("message.dropped", 1.0, reason="queue_full"),
            row("client.connected", 6.0),
            row("client.connack", 6.0, reason_code=0),
            row("client.connack", 6.0, reason_code=5),
            row("node.tick", 7.0),
        ],
    )
    found = {
        (row["time"], row["sort"], row["reason"]): (row["events"], row["bytes"]) for row in rows_of(timeline(events, 5))
    }
    assert found == {
        (at(0), "published", None): (11, 60),
        (at(5), "published", None): (1, 1),
        (at(0), "delivered", None): (1, 7),
        (at(0), "dropped", "expired"): (1, 3),
        (at(0), "dropped", "queue_full"): (1, 0),
        (at(5), "connected", None): (1, 0),
        (at(5), "refused", None): (1, 0),
    }


def test_who_has_left_in_order(spark: "SparkSession") -> None:
    def ended(client_id: str, second: float, code: int) -> dict[str, object]:
        return row("client.disconnected", second, client_id=client_id, reason_code=code)

    events = [
        row("client.connected", 0.0, client_id="left"),
        *(ended("left", 1.0, 0), ended("with will", 1.0, 4), ended("lost", 1.0, 128)),
        *(ended("back", 1.0, 0), row("client.connected", 2.0, client_id="back")),
    ]
    assert {(one.client_id, one.left) for one in rows_of(left(frame(spark, events)))} == {
        ("left", at(1)),
        ("with will", at(1)),
    }


def test_refusals_count_once_each(spark: "SparkSession") -> None:
    allowed = int(Flag.ALLOWED)
    events = frame(
        spark,
        [
            row("client.connack", 0, reason_code=0x86, **OF_C),
            row("client.connack", 1, reason_code=0x86, **OF_C),
            row("client.connack", 2, reason_code=0, **OF_C),
            row("client.acl_decided", 3, action="publish", topic="t", flags=0, **OF_C),
            row("message.dropped", 3, reason="not_authorized", topic="t", publisher="c", **OF_C),
            row("message.dropped", 4, reason="not_authorized", topic="t", publisher="c", weight=2, **OF_C),
            row("message.dropped", 5, reason="not_authorized", topic="t", publisher="d", **OF_C),
            row("message.dropped", 6, reason="expired", topic="t", publisher="d", **OF_C),
            row("client.acl_decided", 7, action="subscribe", topic="f/#", flags=0, **OF_C),
            row("client.acl_decided", 8, action="subscribe", topic="g/#", flags=allowed, **OF_C),
        ],
    )
    found = {(row["action"], row["topic"], row["reason_code"]): row["times"] for row in rows_of(refusals(events))}
    assert found == {
        ("connect", None, 0x86): 2,
        ("publish", "t", None): 3,
        ("receive", "t", None): 1,
        ("subscribe", "f/#", None): 1,
    }


def test_delays_are_percentiles_of_all_deliveries_of_a_window(spark: "SparkSession") -> None:
    rows = [row("message.delivered", number / 100, latency_us=number) for number in range(1, 101)]
    rows += [row("message.delivered", 7, latency_us=None), row("message.acked", 7, latency_us=5)]
    rows += [row("message.delivered", 1, latency_us=10**9, delivery=way) for way in ("waited", "retained", "resent")]
    (found,) = rows_of(delays(frame(spark, rows), 5))
    assert (found["time"], found["deliveries"]) == (at(0), 100)
    assert (found["p50"], found["p95"], found["p99"]) == (50, 95, 99)


def test_only_live_deliveries_are_in_time_and_the_bound_is(spark: "SparkSession") -> None:
    ages = (10_000, 10_001, 100_000, 100_001, 1_000_000, 1_000_001)
    rows = [row("message.delivered", 1, latency_us=age, weight=3) for age in ages]
    rows += [row("message.delivered", 1, latency_us=1, delivery=way) for way in ("waited", "retained", "resent")]
    (found,) = rows_of(delays(frame(spark, rows), 5))
    assert [found[name] for name in ("within_10_ms", "within_100_ms", "within_1_s", "deliveries")] == [3, 9, 15, 18]


def test_sizes_end_with_their_bounds(spark: "SparkSession") -> None:
    rows = [row("message.publish", 1, size=size, weight=2) for size in (0, 1, 100, 101, 1_000_001)]
    assert [tuple(one) for one in rows_of(sizes(frame(spark, [*rows, row("message.publish", 1)])))] == [
        (0, 2, 0, 0),
        (100, 4, 202, 100),
        (1000, 2, 202, 101),
        (None, 2, 2_000_002, 1_000_001),
    ]


def test_ways_are_how_messages_came(spark: "SparkSession") -> None:
    rows = [row("message.delivered", 1, latency_us=age, delivery="retained", weight=2) for age in (5, 6, 90)]
    rows += [row("message.delivered", 1, latency_us=1), row("message.acked", 1, latency_us=7)]
    found = [(one.way, one.deliveries, one.p50, one.oldest) for one in rows_of(ways(frame(spark, rows)))]
    assert found == [("retained", 6, 6, 90), ("unknown", 1, 1, 1)]


def test_an_alert_is_one_from_its_first_event_to_the_last_so_far(spark: "SparkSession") -> None:
    def told(state: str, time: float, last: float, count: int, subject: str = "c") -> tuple[object, ...]:
        return at(time), "flapping", state, "client", subject, count, at(2), at(1), at(last)

    rows = [
        *(told("end", 9, 5, 40), told("begin", 2, 2, 11)),
        *(told("begin", 2, 2, 11, "d"), told("on", 9, 9, 48, "d")),
        *(told("on", 2, 2, 11, "e"), told("begin", 2, 2, 11, "e")),
    ]
    columns = "time timestamp, alert string, state string, scope string, subject string, count bigint, began timestamp"
    columns += ", since timestamp, last timestamp"
    found = rows_of(alerts(spark.createDataFrame(rows, columns)))
    assert sorted((row.subject, row.begin, row.end, row.events) for row in found) == [
        ("c", at(1), at(5), 40),
        ("d", at(1), None, 48),
        ("e", at(1), None, 11),
    ]


def test_what_was_written_and_lost_counts_by_client_and_message(spark: "SparkSession") -> None:
    def happened(kind: str, client_id: str, number: int, reason: str | None = None, weight: int = 1) -> Row:
        return row(kind, number, client_id=client_id, guid=guid(at(0), number), reason=reason, weight=weight)

    rows = [
        *(happened("message.delivered", "a", number) for number in (1, 1, 2, 3)),
        happened("message.dropped", "a", 1, "session_ended", 4),
        happened("message.dropped", "b", 2, "session_ended"),
        happened("message.dropped", "a", 3, "expired"),
        happened("message.dropped", "a", 9, "queue_full"),
    ]
    assert [one.messages for one in rows_of(written(frame(spark, rows)))] == [4]


def test_a_gauge_has_the_sum_of_what_it_held_within_its_window(spark: "SparkSession") -> None:
    def read(second: float, value: float, node: str = "n1", name: str = "sessions.count") -> Row:
        return row("node.stats", second, node=node, name=name, value=value, value_limit=10.0)

    rows = [read(1, 4), read(3, 8), read(3, 6), read(11, 6), read(2, 1, "n2"), read(2, 99, name="other.count")]
    found = {(one.node, one.time): one for one in rows_of(gauges(frame(spark, rows), 10))}
    assert found.keys() == {("n1", at(0)), ("n1", at(10)), ("n2", at(0))}
    first = found["n1", at(0)]
    assert (first.low, first.high, first.high_at, first.share) == (4, 8, at(3), 0.8)
    assert (first.first_at, first.at, first["last"], first.limit) == (at(1), at(3), 6, 10)
    assert (first.held, first.summed) == (2, 8)
    assert (found["n1", at(10)].held, found["n2", at(0)].summed) == (0, 0)


def test_stays_are_told_by_how_they_ended(spark: "SparkSession") -> None:
    rows = [("left", 1, 4.0), ("left", 2, 5.0), ("left", 1, 60.0), ("open", 1, 1.0), ("lost", 3, None)]
    found = rows_of(stays(spark.createDataFrame(rows, "how string, weight bigint, duration double")))
    assert [(one.how, one.connections, one.longest, one.brief) for one in found] == [
        ("left", 4, 60.0, 1),
        ("lost", 3, None, 0),
        ("open", 1, 1.0, 0),
    ]


def test_the_last_stay_is_the_open_one(spark: "SparkSession") -> None:
    rows = [
        ("a", 1, 5.0, at(0), at(5), "left", "n1"),
        ("a", 1, 7.0, at(6), None, "open", "n2"),
        ("b", 2, 5.0, at(0), at(5), "left", "n1"),
        ("b", 1, None, None, at(9), "lost", "n1"),
        ("c", 1, 5.0, at(0), at(5), "left", "n1"),
    ]
    columns = "client_id string, weight int, duration double, began timestamp, ended timestamp, how string, node string"
    found = {one.client_id: one for one in rows_of(last_stays(spark.createDataFrame(rows, columns), ["a", "b"]))}
    assert {name: (one.connections, one.seconds, one.how, one.node) for name, one in found.items()} == {
        "a": (2, 12.0, "open", "n2"),
        "b": (3, 10.0, "lost", "n1"),
    }


def test_begin_and_end_of_a_silence_are_one(spark: "SparkSession") -> None:
    def told(state: str, time: float, client_id: str) -> tuple[object, ...]:
        return at(time), state, client_id, at(1), 2.0

    rows = [told("end", 9, "c"), told("begin", 5, "c"), told("begin", 5, "d"), told("begin", 5, "left before")]
    columns = "time timestamp, state string, client_id string, last_seen timestamp, usual double"
    gone = [("left before", at(4)), ("d", at(6)), ("c", at(2))]
    found = silences(
        spark.createDataFrame([*rows, told("forgotten", 99, "e")], columns),
        spark.createDataFrame(gone, "client_id string, left timestamp"),
    )
    assert sorted((row.client_id, row.last_seen, row.usual, row.end) for row in rows_of(found)) == [
        ("c", at(1), 2.0, at(9)),
        ("d", at(1), 2.0, None),
    ]


def test_findings_of_an_incarnation_are_sums(spark: "SparkSession") -> None:
    rows = [("gap", 3, 9), ("gap", 4, 5), ("incarnation", 100, 2)]
    columns = "check string, node string, incarnation bigint, consumer string, rows bigint, since timestamp, until "
    columns += "timestamp, seconds double, reason string"
    made = [(check, "n", 1, None, count, at(1), at(end), None, "killed") for check, count, end in rows]
    found = {row.check: (row.rows, row.until) for row in rows_of(findings(spark.createDataFrame(made, columns)))}
    assert found == {"gap": (7, at(9)), "incarnation": (100, at(2))}


def queue(client_id: str | None, begin: float, highest: float, full_in: float | None = None) -> tuple[object, ...]:
    return (
        at(begin),
        at(begin + 10),
        "n",
        client_id,
        "queue_length",
        float(highest),
        float(highest),
        1.0,
        500.0,
        full_in,
    )


QUEUES = (
    "window_start timestamp, window_end timestamp, node string, client_id string, metric string, last double, max "
    "double, "
    "slope double, limit double, full_in double"
)


def test_growth_is_that_of_the_end(spark: "SparkSession") -> None:
    """A queue that filled hours ago, and was emptied, will not be full."""
    rows = [queue("old", 0, 200, 70.0), queue("new", 92, 7, 50.0), queue("new", 94, 8, 40.0), queue(None, 95, 1)]
    found = sorted(rows_of(growth(spark.createDataFrame(rows, QUEUES), at(100))), key=lambda row: row.client_id)
    assert [(row.client_id, row.last, row.full_in) for row in found] == [("", 1, None), ("new", 7, 50.0)]
