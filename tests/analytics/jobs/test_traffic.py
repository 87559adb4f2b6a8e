"""The busiest names of each window, against a loop over the events."""

from collections import Counter, defaultdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.analytics.events_made import START, Row, assert_rows, at, collected, frame, made, row, stream, table
from trunkline.analytics.jobs.catalogue import find
from trunkline.analytics.options import OptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from trunkline.analytics.jobs.job import Job

pytest.importorskip("pyspark")

KEY = ("window_start", "rank")


@pytest.fixture(scope="module")
def traffic() -> "Job[Any]":
    return find("traffic")


def expected(
    events: pa.Table, window: int, name: str, order: str = "messages", k: int = 10, kind: str = "message.routed"
) -> list[Row]:
    """By the definition; `name` is a column, or `prefix` for the first topic level."""
    client = "publisher" if kind == "message.routed" else "client_id"
    counts: dict[Any, Counter[tuple[str, str]]] = defaultdict(Counter)
    clients: dict[Any, set[str]] = defaultdict(set)
    for event in events.to_pylist():
        if event["kind"] != kind or event["topic"].startswith("$"):
            continue
        start = START + (event["time"] - START) // timedelta(seconds=window) * timedelta(seconds=window)
        what = event["topic"].split("/")[0] if name == "prefix" else event[name]
        counts[start]["messages", what] += event["weight"]
        counts[start]["bytes", what] += event["size"] * event["weight"]
        clients[start, what].add(event[client])
    rows = []
    for start, count in counts.items():
        names = {what for _, what in count}
        totals = {each: sum(count[each, what] for what in names) for each in ("messages", "bytes")}
        ranked = sorted(names, key=lambda what: (-count[order, what], what))
        rows += [
            {
                "window_start": start,
                "window_end": start + timedelta(seconds=window),
                "rank": rank,
                "name": what,
                "messages": count["messages", what],
                "bytes": count["bytes", what],
                "share": count[order, what] / totals[order],
                "clients": len(clients[start, what]),
                "total_messages": totals["messages"],
                "total_bytes": totals["bytes"],
                "names": len(names),
            }
            for rank, what in enumerate(ranked[:k], 1)
        ]
    return rows


def test_recorded_events_give_what_a_loop_over_them_gives(spark: "SparkSession", traffic: "Job[Any]") -> None:
    events = made(6_000, duration=120.0)
    given = frame(spark, events)
    results = traffic(given)
    assert [(field.name, field.dataType.simpleString()) for field in results.schema] == [
        (column.name, column.type) for column in traffic.columns
    ]
    assert_rows(results, expected(events, 60, "topic"), KEY)
    options = traffic.read_options({"by": "client", "order": "bytes", "k": 3, "count": "delivered"})
    assert_rows(traffic(given, options), expected(events, 60, "client_id", "bytes", 3, "message.delivered"), KEY)


def test_a_stream_gives_the_same_but_for_what_comes_too_late(
    spark: "SparkSession", traffic: "Job[Any]", tmp_path: Path
) -> None:
    events = made(4_000, seed=3, duration=120.0)
    too_late, in_time = (
        row("message.routed", second, topic="a/b", size=10**6, publisher="c", node="n2") for second in (5, 115)
    )
    given = [events.slice(0, 2000), events.slice(2000), table([too_late, in_time])]
    options = traffic.read_options({"window": "10s", "by": "prefix", "k": 2})
    rows = collected(traffic(stream(spark, given, tmp_path / "events"), options), tmp_path / "checkpoint")
    assert_rows(rows, expected(pa.concat_tables([events, table([in_time])]), 10, "prefix", k=2), KEY)


def messages() -> list[Row]:
    def one(seconds: float, topic: str, size: int = 1, publisher: str = "p", weight: int = 1) -> Row:
        return row("message.routed", seconds, topic=topic, size=size, publisher=publisher, weight=weight)

    return [
        one(59.999999, "last/of/the/window"),
        *[one(60, topic, publisher=publisher) for topic in ("b", "c", "a") for publisher in ("p", "q")],
        one(61, "many", weight=7),
        one(62, "wide", size=100),
        one(63, "own", publisher=""),
        one(64, "$SYS/load", weight=100),
        one(119.999999, "a", weight=0, size=5),
    ]


def test_ties_borders_and_weights(spark: "SparkSession", traffic: "Job[Any]") -> None:
    """Equal counts go by the name, whatever the bytes; the broker itself is no client."""
    found = traffic(frame(spark, messages()), traffic.read_options({"k": 6}))
    names = ["many", "a", "b", "c", "own", "wide"]
    counts = [7, 2, 2, 2, 1, 1]
    clients = [1, 2, 2, 2, 0, 1]
    rows = [
        {"window_start": at(60), "rank": rank, "name": name, "messages": count, "clients": different}
        | {"total_messages": 15, "total_bytes": 114, "names": 6}
        for rank, (name, count, different) in enumerate(zip(names, counts, clients, strict=True), 1)
    ]
    rows.append({"window_start": at(0), "rank": 1, "name": "last/of/the/window", "messages": 1, "share": 1.0})
    assert_rows(found, rows, KEY)


def test_sketches_count_exactly_what_they_can_hold(spark: "SparkSession", traffic: "Job[Any]") -> None:
    options = traffic.read_options({"method": "sketch", "k": 3, "internal": "true"})
    found = traffic(frame(spark, messages()[:-1]), options)
    window = {"window_start": at(60), "total_messages": 115, "names": 7, "bytes": None, "clients": None}
    rows = [
        window | {"rank": 1, "name": "$SYS/load", "messages": 100, "share": 100 / 115},
        window | {"rank": 2, "name": "many", "messages": 7},
        window | {"rank": 3, "messages": 2},
        {"window_start": at(0), "rank": 1, "name": "last/of/the/window", "messages": 1, "names": 1},
    ]
    assert_rows(found, rows, KEY)


@pytest.mark.parametrize("given", [{"method": "sketch", "order": "bytes"}, {"method": "sketch", "sketch_items": 9}])
def test_a_sketch_cannot_do_everything(traffic: "Job[Any]", given: dict[str, object]) -> None:
    with pytest.raises(OptionError, match=r"job traffic: (a sketch counts|sketch_items must)"):
        traffic.read_options(given)
