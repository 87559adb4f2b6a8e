"""Dead subscriptions and unheard topics, by the machine, by Spark and by plain Python."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pytest

from tests.analytics.events_made import Row, assert_rows, at, frame, microseconds, row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")
from trunkline.analytics.jobs.machines import Subject, play
from trunkline.analytics.jobs.unheard import Lives, SubscriptionEvent, unheard

AFTER = 40.0
ENDS = ("session.discarded", "session.terminated", "session.created")


def seen(rows: Iterable[Row]) -> list[SubscriptionEvent]:
    return [
        SubscriptionEvent(
            microseconds(one["time"]),
            one["node"],
            one["incarnation"],
            number,
            one["kind"],
            one["weight"],
            one.get("filter"),
            one.get("topic"),
        )
        for number, one in enumerate(rows)
    ]


def told(
    rows: Iterable[Row], until: float, *, after: float = AFTER, limit: int = 100
) -> list[tuple[str, str, float, int]]:
    """The changes that a machine tells of: state, filter, seconds, deliveries."""
    machine = Lives(round(after * 1e6), limit, True, Subject("client", "c"))
    results = play(machine, seen(rows), microseconds(at(until)))
    return [(one["state"], one["filter"], (one["time"] - microseconds(at(0))) / 1e6, one["count"]) for one in results]


def subscribed(filter: str, time: float) -> Row:
    return row("session.subscribed", time, client_id="c", filter=filter)


@pytest.mark.parametrize("first", ["session.subscribed", "session.subscription"])
@pytest.mark.parametrize("again", ["session.subscribed", "session.subscription"])
def test_what_was_there_when_recording_began_is_watched_from_then_on(first: str, again: str) -> None:
    """Recording that begins again makes nothing younger."""
    rows = [row(kind, time, client_id="c", filter="a") for kind, time in ((first, 0), (again, 30))]
    assert told(rows, 45) == [("dead", "a", AFTER, 0)]


def delivered(topic: str, time: float, **columns: object) -> Row:
    return row("message.delivered", time, client_id="c", topic=topic, **columns)


def test_a_delivery_at_the_last_moment_is_in_time() -> None:
    rows = [subscribed("a/+", 0), delivered("a/1", AFTER)]
    assert told(rows, 2 * AFTER - 0.000001) == []
    assert told(rows, 2 * AFTER) == [("dead", "a/+", 2 * AFTER, 1)]
    assert told([subscribed("a/+", 0), delivered("a/1", AFTER + 0.000001)], AFTER + 1) == [
        ("dead", "a/+", AFTER, 0),
        ("heard", "a/+", AFTER + 0.000001, 1),
    ]


@pytest.mark.parametrize(
    ("filter", "topic", "heard"),
    [
        ("$share/g/a/+", "a/1", True),
        ("$share/g/a/+", "b/1", False),
        ("a/#", "a", True),
        ("#", "$SYS/load", False),
        ("+/load", "$SYS/load", False),
        ("$SYS/#", "$SYS/load", True),
        ("a/+", "a/1/x", False),
        ("A/1", "a/1", False),
    ],
)
def test_filters_match_by_the_rules_of_mqtt(filter: str, topic: str, heard: bool) -> None:
    rows = [subscribed(filter, 0), delivered(topic, 30, weight=5)]
    assert told(rows, 50) == ([] if heard else [("dead", filter, AFTER, 0)])
    assert told(rows, 70) == [("dead", filter, 70.0, 5) if heard else ("dead", filter, AFTER, 0)]


@pytest.mark.parametrize("end", [*ENDS, "session.unsubscribed"])
def test_an_end_closes_subscriptions(end: str) -> None:
    rows = [subscribed("a", 0), subscribed("b", 0), row(end, 30, client_id="c", filter="a")]
    left = [] if end in ENDS else [("dead", "b", AFTER, 0)]
    assert told(rows, 45) == left
    rows = [subscribed("a", 0), row(end, 45, client_id="c", filter="a"), subscribed("a", 50)]
    assert told(rows, 95) == [("dead", "a", AFTER, 0), ("closed", "a", 45.0, 0), ("dead", "a", 90.0, 0)]


def test_no_more_subscriptions_are_watched_than_allowed() -> None:
    rows = [subscribed("a", 0), subscribed("b", 1), row("session.unsubscribed", 2, client_id="c", filter="a")]
    assert told([*rows, subscribed("c", 3)], 60, limit=1) == [("dead", "c", 43.0, 0)]


def test_subscriptions_to_internal_topics_do_not_count(spark: "SparkSession") -> None:
    rows = [
        row(kind, 0, client_id="c", filter=f"{group}{filter}")
        for kind in ("session.subscribed", "session.subscription")
        for filter, group in (("$SYS/#", ""), ("$SYS/x", "$share/g/"), (kind, ""))
    ]
    rows.append(row("node.tick", 50))
    options = unheard.read_options({"subject": "subscriptions", "after": 40})
    found = unheard(frame(spark, rows), options).collect()
    assert sorted(one["filter"] for one in found) == ["session.subscribed", "session.subscription"]


def test_topics_that_nobody_hears(spark: "SparkSession") -> None:
    def routed(topic: str, time: float, receivers: int = 0, weight: int = 1) -> Row:
        return row("message.routed", time, topic=topic, receivers=receivers, weight=weight)

    def dropped(topic: str, time: float, reason: str = "no_subscribers") -> Row:
        return row("message.dropped", time, topic=topic, client_id="p", reason=reason)

    rows = [
        # both kinds are about the same message, and perhaps only one of them was recorded
        *(routed("a", time, weight=2) for time in (0, 59.999999)),
        *(dropped("a", time) for time in (0, 1, 2, 59.999999)),
        *(dropped("b", 60.0 + time) for time in range(3)),
        *(dropped("c", time, "queue_full") for time in range(5)),
        *(routed("c", time, 1) for time in range(5)),
        routed("few", 1),
        routed("few", 2),
    ]
    options = unheard.read_options({"subject": "topics", "window": "1m", "at_least": 3})
    about = {"subject": "topic", "state": "unheard", "client_id": None, "filter": None}
    assert_rows(
        unheard(frame(spark, rows), options),
        [
            about | {"topic": "a", "since": at(0), "time": at(60), "last": at(59.999999), "count": 4},
            about | {"topic": "b", "since": at(60), "time": at(120), "last": at(62), "count": 3},
        ],
        ("topic", "time"),
    )
