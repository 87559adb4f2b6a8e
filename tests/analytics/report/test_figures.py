from typing import TYPE_CHECKING

from tests.analytics.events_made import at, frame, row
from trunkline.analytics.report.cutting import rows_of
from trunkline.analytics.report.figures import (
    MAX_LEVELS,
    alerts,
    branches,
    delays,
    findings,
    growth,
    left,
    refusals,
    silences,
    sizes,
    timeline,
    use,
    use_by,
    ways,
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


def test_use_is_by_one_of_what_connections_have(spark: "SparkSession") -> None:
    both = {"listener": "tcp", "protocol": 5}
    rows = [
        row("client.connected", 1, username="a", **both),
        row("message.publish", 2, username="a", size=10, weight=2, **both),
        row("message.delivered", 2, username="b", size=10, listener="tcp", protocol=4),
        row("message.delivered", 2, size=7),
        row("message.dropped", 2, username="c", **both),
    ]
    used = use(frame(spark, rows))
    found = {
        column: {one.name: tuple(one)[1:] for one in rows_of(use_by(used, column))}
        for column in ("username", "listener", "protocol")
    }
    nobody = (0, 0, 0, 1, 7, 1)
    assert found == {
        "username": {"a": (1, 2, 20, 0, 0, 2), "b": (0, 0, 0, 1, 10, 1), None: nobody},
        "listener": {"tcp": (1, 2, 20, 1, 10, 3), None: nobody},
        "protocol": {5: (1, 2, 20, 0, 0, 2), 4: (0, 0, 0, 1, 10, 1), None: nobody},
    }


def test_topics_spread_where_names_follow_the_same_levels(spark: "SparkSession") -> None:
    names = ["plant/1/up", "plant/2/up", "plant/2/down", "plant", "/x", "/y", "a/b/c"]
    topics = spark.createDataFrame([(name,) for name in names], "name string")
    assert sorted(tuple(one) for one in rows_of(branches(topics))) == [
        ("+", 3, 7),
        ("/+", 2, 2),
        ("plant/+", 2, 3),
        ("plant/2/+", 2, 2),
    ]


def test_the_levels_of_a_topic_are_bounded(spark: "SparkSession") -> None:
    deep = "/".join("l" * MAX_LEVELS)
    topics = spark.createDataFrame([(f"{deep[:-1]}{last}/{last}",) for last in "xy"], "name string")
    topics = topics.union(spark.createDataFrame([(f"{deep}/{last}",) for last in "xy"], "name string"))
    assert [tuple(one) for one in rows_of(branches(topics))] == [(f"{deep[:-1]}+", 3, 4)]


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


def test_begin_and_end_of_an_alert_are_one(spark: "SparkSession") -> None:
    def told(state: str, time: float, count: int, subject: str = "c") -> tuple[object, ...]:
        return at(time), "flapping", state, "client", subject, count, at(1)

    rows = [told("end", 9, 40), told("begin", 1, 11), told("begin", 1, 11, "d")]
    columns = "time timestamp, alert string, state string, scope string, subject string, count bigint, began timestamp"
    found = rows_of(alerts(spark.createDataFrame(rows, columns)))
    assert sorted((row.subject, row.begin, row.end, row.events) for row in found) == [
        ("c", at(1), at(9), 40),
        ("d", at(1), None, 11),
    ]


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
