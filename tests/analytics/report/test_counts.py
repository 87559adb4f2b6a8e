from typing import TYPE_CHECKING

from tests.analytics.events_made import at, frame, row
from trunkline.analytics.report.counts import (
    MAX_LEVELS,
    MAX_TOPICS,
    branches,
    counted,
    fanout,
    of_clients,
    topics,
    use_by,
)
from trunkline.analytics.report.cutting import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_events_that_are_alike_are_one(spark: "SparkSession") -> None:
    published = [row("message.publish", second, client_id="a", topic="t", size=3, weight=2) for second in (1, 5, 2)]
    dropped = [row("message.dropped", 1, client_id="a", topic="t", reason=reason) for reason in ("expired", "x", "x")]
    routed = [row("message.routed", 1, client_id="a", topic="t", receivers=number) for number in (0, 1, 2)]
    others = [row("client.connack", 1, client_id="a", reason_code=code) for code in (0, 0x87)]
    found = rows_of(counted(frame(spark, [*published, *dropped, *routed, *others, row("node.tick", 9)])))
    assert sorted(((one.kind, one.reason, one.receivers, one.weight, one.bytes) for one in found), key=str) == [
        ("client.connack", None, None, 1, 0),
        ("message.dropped", "expired", None, 1, 0),
        ("message.dropped", "x", None, 2, 0),
        ("message.publish", None, None, 6, 18),
        ("message.routed", None, 0, 1, 0),
        ("message.routed", None, None, 2, 0),
    ]
    assert [one.time for one in found if one.kind == "message.publish"] == [at(5)]


def test_what_messages_became_leaves_out_retained_ones_and_the_brokers_own(spark: "SparkSession") -> None:
    rows = [
        row("message.publish", 1, topic="t", size=5, weight=2),
        row("message.routed", 1, topic="t", size=5, weight=2),
        *(row("message.delivered", 2, topic="t", size=5, delivery=way) for way in ("live", "waited", "retained", None)),
        row("message.delivered", 2, topic="never routed", size=1),
        row("message.delivered", 2, topic="$SYS/x", size=1),
        row("message.publish", 1, topic="unheard", size=1),
    ]
    found = rows_of(fanout(topics(counted(frame(spark, rows)))))
    assert sorted((one.name, one.routed, one.deliveries, one.bytes_out, one.amplification) for one in found) == [
        ("never routed", 0, 1, 1, None),
        ("t", 2, 3, 15, 1.5),
    ]


def test_a_client_has_its_topics_with_most_messages(spark: "SparkSession") -> None:
    rows = [row("message.publish", number, client_id="a", topic=f"t{number % 5}", size=1) for number in range(12)]
    rows += [row("message.dropped", 20, client_id="a", topic="t", reason=reason) for reason in ("x", "y", "y")]
    rows += [row("message.publish", 9, client_id="b", topic="t", size=1)]
    found = {(one.kind, one.reason): one for one in rows_of(of_clients(counted(frame(spark, rows)), ["a"]))}
    published = found["message.publish", None]
    assert (published.events, published.bytes, published["last"]) == (12, 12, at(11))
    assert published.topics == ["t0", "t1", "t2"][:MAX_TOPICS]
    assert {reason: one.events for (kind, reason), one in found.items() if kind == "message.dropped"} == {
        "x": 1,
        "y": 2,
    }


def test_use_is_by_one_of_what_connections_have(spark: "SparkSession") -> None:
    both = {"listener": "tcp", "protocol": 5}
    rows = [
        row("client.connected", 1, username="a", **both),
        row("message.publish", 2, username="a", size=10, weight=2, **both),
        row("message.delivered", 2, username="b", size=10, listener="tcp", protocol=4),
        row("message.delivered", 2, size=7),
        row("message.dropped", 2, username="c", **both),
    ]
    used = counted(frame(spark, rows))
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
