"""Delivery latency and loss, against the same figures worked out by hand and by a loop over the events."""

from collections import defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.analytics.events_made import (
    START,
    Row,
    assert_rows,
    at,
    frame,
    guid,
    made,
    microseconds,
    row,
)
from trunkline.analytics.jobs.catalogue import find

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from trunkline.analytics.jobs.job import Job

pytest.importorskip("pyspark")

KEY = ("window_start", "node", "prefix", "qos")


@pytest.fixture(scope="module")
def latency() -> "Job[Any]":
    return find("latency")


def percentile(values: list[int], share: float) -> float:
    """Interpolated between the neighbours, as most people's tools do."""
    values = sorted(values)
    place = share * (len(values) - 1)
    low = int(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (place - low)


def expected(events: pa.Table, window: float = 60.0, levels: int = 1, within: float = 30.0) -> list[Row]:
    """The definition, message by message."""
    length = round(window * 1_000_000)
    messages: dict[tuple[str, bytes], list[Row]] = defaultdict(list)
    for event in events.to_pylist():
        if event["guid"] is not None and not event["topic"].startswith("$"):
            messages[event["node"], event["guid"]].append(event)
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    for (node, id_), rows in messages.items():
        born = int.from_bytes(id_[:8], "big")
        prefix = "/".join(rows[0]["topic"].split("/")[:levels])
        start = at(0) + timedelta(microseconds=born // length * length - microseconds(START))
        key = start, node, prefix, rows[0]["qos"]
        routed = [one["receivers"] for one in rows if one["kind"] == "message.routed"]
        first: dict[str, dict[str, int]] = {}
        for kind in ("message.delivered", "message.acked", "delivery.completed"):
            first[kind] = {}
            for one in sorted(rows, key=lambda one: one["latency_us"] or 0, reverse=True):
                if one["kind"] == kind and one["latency_us"] <= within * 1_000_000:
                    first[kind][one["client_id"]] = one["latency_us"]
        delivered, acked, completed = first.values()
        if not routed and not delivered:
            continue
        group = groups.setdefault(key, defaultdict(int) | {"times": [], "acks": []})
        group["messages"] += len(routed)
        group["receivers"] += sum(routed)
        group["undelivered"] += max(routed[0] - len(delivered), 0) if routed else 0
        if rows[0]["qos"]:
            group["unacked"] += len(delivered.keys() - acked.keys() - completed.keys())
        group["times"] += delivered.values()
        group["acks"] += [acked[client] for client in delivered if client in acked]
    return [
        {
            "window_start": start,
            "window_end": start + timedelta(seconds=window),
            "node": node,
            "prefix": prefix,
            "qos": qos,
            **{name: group[name] for name in ("messages", "receivers", "undelivered", "unacked")},
            **figures(group["times"], ""),
            **figures(group["acks"], "ack_"),
            "delivered": len(group["times"]),
            "acked": len(group["acks"]),
            "mean_us": sum(group["times"]) / len(group["times"]) if group["times"] else None,
        }
        for (start, node, prefix, qos), group in groups.items()
    ]


def figures(times: list[int], which: str) -> Row:
    if not times:
        return dict.fromkeys((f"{which}p50_us", f"{which}p95_us", f"{which}p99_us", f"{which}max_us"))
    shares = {f"{which}p{share}_us": percentile(times, share / 100) for share in (50, 95, 99)}
    return shares | {f"{which}max_us": max(times)}


def test_recorded_events_give_what_a_loop_over_them_gives(spark: "SparkSession", latency: "Job[Any]") -> None:
    events = made(8_000, duration=120.0)
    results = latency(frame(spark, events), latency.read_options({"completions": "true"}))
    assert [(field.name, field.dataType.simpleString()) for field in results.schema] == [
        (column.name, column.type) for column in latency.columns
    ]
    rows = expected(events)
    assert sum(one["undelivered"] for one in rows) > 20
    assert sum(one["unacked"] for one in rows) > 10
    assert_rows(results, rows, KEY)


def fates() -> list[Row]:
    """A message on a border with three receivers: one gets it twice, one late, one never."""

    def of(kind: str, born: float, seconds: float, number: int = 0, **more: object) -> Row:
        message = {
            "topic": "a/b",
            "qos": 1,
            "guid": guid(at(born), number),
            "latency_us": round((seconds - born) * 1e6),
        }
        return row(kind, seconds, **message | more)

    return [
        of("message.routed", 60, 60, receivers=3),
        of("message.delivered", 60, 60.5, client_id="twice"),
        of("message.delivered", 60, 62.5, client_id="twice"),
        of("message.acked", 60, 63, client_id="twice"),
        of("message.delivered", 60, 90.000001, client_id="late"),
        of("message.dropped", 60, 60, client_id="never", reason="queue_full", latency_us=None),
        of("message.dropped", 60, 60, client_id="twice", reason="redispatched"),
        # the last microsecond of the window before, with three times its weight
        of("message.routed", 59.999999, 60, 1, receivers=1, weight=3),
        of("message.delivered", 59.999999, 89.999999, 1, client_id="just", weight=3),
        # a delivery of what was routed before the events begin, and a message to nobody
        of("message.delivered", 0, 1, 2, client_id="first"),
        of("message.routed", 61, 61, 3, receivers=0),
        of("message.dropped", 61, 61, 3, client_id="publisher", reason="no_subscribers"),
        # of another prefix; refused before it was routed; internal
        of("message.routed", 61, 61, 4, topic="b", receivers=0),
        of("message.dropped", 61, 61, 5, topic="c", client_id="publisher", reason="not_authorized"),
        of("message.routed", 61, 61, 6, topic="$SYS/x", receivers=1),
    ]


def test_borders_repeats_weights_and_gaps(spark: "SparkSession", latency: "Job[Any]") -> None:
    def window(start: float, prefix: str, **figures: object) -> Row:
        return {"window_start": at(start), "node": "n1", "prefix": prefix, "qos": 1, "unacked": None, **figures}

    assert_rows(
        latency(frame(spark, fates())),
        [
            window(
                0, "a", messages=3, receivers=3, delivered=4, undelivered=0, dropped=0, acked=0,
                max_us=30_000_000, p50_us=30_000_000.0, mean_us=22_750_000.0, ack_max_us=None,
            ),
            window(
                60, "a", messages=2, receivers=3, delivered=1, undelivered=2, dropped=1, acked=1,
                p99_us=500_000.0, ack_p50_us=3_000_000.0,
            ),
            window(60, "b", messages=1, receivers=0, delivered=0, undelivered=0, dropped=0, max_us=None, mean_us=None),
        ],
        KEY,
    )  # fmt: skip


def test_without_loss_nothing_is_kept_for_single_messages(spark: "SparkSession", latency: "Job[Any]") -> None:
    results = latency(frame(spark, fates()), latency.read_options({"loss": "false", "percentiles": "approximate"}))
    of_one = {"node": "n1", "prefix": "a", "qos": 1, "messages": None, "receivers": None, "undelivered": None}
    assert_rows(
        results,
        [
            of_one | {"window_start": at(0), "delivered": 4, "p50_us": 1_000_000.0, "acked": 0},
            of_one | {"window_start": at(60), "delivered": 2, "p50_us": 500_000.0, "acked": 1},
        ],
        KEY,
    )


def test_only_live_deliveries_have_a_latency(spark: "SparkSession", latency: "Job[Any]") -> None:
    """One message to six clients, and to a seventh that subscribed later."""

    def told(kind: str, client_id: str, seconds: float, delivery: str | None = None) -> Row:
        of = {"guid": guid(at(0)), "topic": "t", "qos": 1, "client_id": client_id, "publisher": "p"}
        return row(kind, seconds, latency_us=round(seconds * 1_000_000), delivery=delivery, **of)

    rows = [
        row("message.routed", 0, guid=guid(at(0)), topic="t", qos=1, publisher="p", receivers=6),
        told("message.delivered", "live", 1, "live"),
        told("message.acked", "live", 2),
        told("message.delivered", "live and once more", 2, "live"),
        told("message.delivered", "live and once more", 9, "resent"),
        told("message.delivered", "of an earlier version", 3),
        told("message.delivered", "waited", 20, "waited"),
        told("message.acked", "waited", 21),
        told("message.delivered", "only once more", 25, "resent"),
        told("message.delivered", "new", 10, "retained"),
        told("message.acked", "new", 11),
        told("delivery.completed", "new", 11, "retained"),
    ]
    of = {"window_start": at(0), "node": "n1", "prefix": "t", "qos": 1}
    figures = {"delivered": 5, "waited": 2, "undelivered": 1, "acked": 2, "p50_us": 2_000_000.0, "max_us": 3_000_000}
    figures |= {"mean_us": 2_000_000.0, "ack_max_us": 2_000_000, "unacked": 3}
    options = latency.read_options({"completions": "true"})
    assert_rows(latency(frame(spark, rows), options), [of | figures], KEY)
    waited = [one for one in rows if one.get("client_id") in (None, "waited")]
    nobody = {"delivered": 1, "waited": 1, "p50_us": None, "mean_us": None}
    assert_rows(latency(frame(spark, waited)), [of | nobody], KEY)
