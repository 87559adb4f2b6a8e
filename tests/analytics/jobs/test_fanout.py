"""Deliveries per publish, against a loop over the events."""

from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
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
    stream,
)
from trunkline.analytics.jobs.catalogue import find
from trunkline.analytics.options import OptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from trunkline.analytics.jobs.job import Job

pytest.importorskip("pyspark")

KEY = ("window_start", "rank")
COUNTS = ("messages", "bytes_in", "deliveries", "bytes_out")


@pytest.fixture(scope="module")
def fanout() -> "Job[Any]":
    return find("fanout")


def ranked(groups: dict[Any, dict[str, Any]], window: int, order: str, k: int) -> list[Row]:
    """The rows of the result, from counts by (start of the window, name)."""
    rows = []
    for start in {start for start, _ in groups}:
        here = {name: counts for (at, name), counts in groups.items() if at == start}
        best = sorted(here, key=lambda name: (-here[name][order], name))
        totals = {f"total_{each}": sum(counts[each] for counts in here.values()) for each in COUNTS}
        for rank, name in enumerate(best[:k], 1):
            counts = here[name]
            rows.append(
                {
                    "window_start": start,
                    "window_end": start + timedelta(seconds=window),
                    "rank": rank,
                    "name": name,
                    "amplification": counts["deliveries"] / counts["messages"] if counts["messages"] else None,
                    "share": counts[order] / totals[f"total_{order}"] if totals[f"total_{order}"] else None,
                    "names": len(here),
                    **counts,
                    **totals,
                }
            )
    return rows


def start_of(event: Row, window: int) -> Any:
    born = int.from_bytes(event["guid"][:8], "big") - microseconds(START)
    return at(born // (window * 1_000_000) * window)


def expected(
    events: pa.Table,
    window: int = 60,
    levels: int | None = None,
    order: str = "deliveries",
    k: int = 10,
    within: float = 30.0,
) -> list[Row]:
    groups: dict[Any, dict[str, Any]] = defaultdict(
        lambda: dict.fromkeys((*COUNTS, "receivers"), 0) | {"most_receivers": None}
    )
    for event in events.to_pylist():
        if event["kind"] not in ("message.routed", "message.delivered"):
            continue
        if event["latency_us"] > within * 1_000_000:
            continue
        name = event["topic"] if levels is None else "/".join(event["topic"].split("/")[:levels])
        counts = groups[start_of(event, window), name]
        if event["kind"] == "message.routed":
            counts["messages"] += event["weight"]
            counts["bytes_in"] += event["size"] * event["weight"]
            counts["receivers"] += event["receivers"] * event["weight"]
            counts["most_receivers"] = max(counts["most_receivers"] or 0, event["receivers"])
        else:
            counts["deliveries"] += event["weight"]
            counts["bytes_out"] += event["size"] * event["weight"]
    return ranked(groups, window, order, k)


def test_recorded_events_give_what_a_loop_over_them_gives(spark: "SparkSession", fanout: "Job[Any]") -> None:
    events = made(6_000, duration=120.0)
    given = frame(spark, events)
    results = fanout(given)
    assert [(field.name, field.dataType.simpleString()) for field in results.schema] == [
        (column.name, column.type) for column in fanout.columns
    ]
    assert_rows(results, expected(events), KEY)
    options = fanout.read_options(
        {"window": "20s", "by": "prefix", "levels": 2, "order": "bytes_out", "k": 4, "within": 20}
    )
    assert_rows(fanout(given, options), expected(events, 20, 2, "bytes_out", 4, 20.0), KEY)


def few() -> Iterator[Row]:
    def of(kind: str, born: float, seconds: float, topic: str = "a/b", **more: object) -> Row:
        late = round((seconds - born) * 1e6)
        return row(kind, seconds, topic=topic, guid=guid(at(born)), latency_us=late, size=10, **more)

    yield row("session.subscribed", 0, client_id="one", filter="a/+")
    yield row("session.subscribed", 0, client_id="one", filter="$share/g/a/#")
    yield row("session.subscription", 0, client_id="two", filter="a/+")
    yield of("message.routed", 59.999999, 60, receivers=2, weight=5)
    yield of("message.delivered", 59.999999, 60, client_id="one", weight=5)
    yield of("message.delivered", 59.999999, 89.999999, client_id="two", weight=5)
    yield row("session.unsubscribed", 120, client_id="two", filter="a/+")
    yield of("message.delivered", 60, 61, client_id="two")
    yield of("message.delivered", 60, 90.000001, client_id="one")
    yield of("message.routed", 61, 61, "$SYS/x", receivers=9)
    yield row("session.terminated", 130, client_id="one", reason="expired")
    yield of("message.delivered", 130, 131, client_id="one")
    yield of("message.delivered", 130, 131, client_id="two")


def test_borders_weights_and_deliveries_too_late(spark: "SparkSession", fanout: "Job[Any]") -> None:
    rows = list(few())
    topic = {"name": "a/b", "rank": 1}
    assert_rows(
        fanout(frame(spark, rows)),
        [
            topic
            | {"window_start": at(0), "messages": 5, "bytes_in": 50, "receivers": 10, "most_receivers": 2}
            | {"deliveries": 10, "bytes_out": 100, "amplification": 2.0, "share": 1.0},
            topic | {"window_start": at(60), "messages": 0, "deliveries": 1, "amplification": None},
            topic | {"window_start": at(120), "messages": 0, "deliveries": 2, "bytes_out": 20},
        ],
        KEY,
    )
    assert_rows(
        fanout(frame(spark, rows), fanout.read_options({"by": "filter"})),
        [
            {"window_start": at(0), "rank": 1, "name": "a/+", "messages": 5, "deliveries": 10, "bytes_out": 100},
            {"window_start": at(0), "rank": 2, "name": "$share/g/a/#", "messages": 5, "deliveries": 5, "names": 2},
            {"window_start": at(60), "rank": 1, "name": "a/+", "messages": 1, "deliveries": 1, "names": 1},
        ],
        KEY,
    )


def test_equally_heavy_names_are_in_the_order_of_their_characters(spark: "SparkSession", fanout: "Job[Any]") -> None:
    """Whatever else they have, and also where a size was not recorded."""
    about = {"guid": guid(START), "latency_us": 0, "client_id": "c"}
    sizes = {"ä": 1, "b": 9000, "a": 1, "B": 1, "a/b": None}
    rows = [row("message.delivered", 0, topic=topic, size=size, **about) for topic, size in sizes.items()]
    for options, names in (({}, "B a a/b b ä"), ({"order": "bytes_out"}, "b B a ä a/b")):
        found = fanout(frame(spark, rows), fanout.read_options(options)).orderBy("rank").collect()
        assert [one.name for one in found] == names.split()


def test_filters_need_recorded_events(spark: "SparkSession", fanout: "Job[Any]", tmp_path: Path) -> None:
    events = stream(spark, [], tmp_path)
    with pytest.raises(OptionError, match="by=filter needs recorded events"):
        fanout(events, fanout.read_options({"by": "filter"}))


def test_what_a_new_subscription_gets_is_no_delivery_of_a_publish(spark: "SparkSession", fanout: "Job[Any]") -> None:
    of = {"guid": guid(at(0)), "topic": "t", "size": 5, "client_id": "c", "latency_us": 1}
    ways = ("live", "waited", "resent", "retained", None)
    rows = [
        row("message.routed", 0, receivers=2, **of),
        *(row("message.delivered", 1, delivery=way, **of) for way in ways),
    ]
    (found,) = fanout(frame(spark, rows)).collect()
    assert (found.messages, found.deliveries, found.bytes_out) == (1, 4, 20)
