"""Growth of queues, by Spark and by plain Python."""

from collections import defaultdict
from pathlib import Path
from random import Random
from statistics import linear_regression
from typing import TYPE_CHECKING, Any

import pytest

from tests.analytics.events_made import Row, assert_rows, at, collected, frame, row, stream, table
from trunkline.analytics.jobs.job import OptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")
from trunkline.analytics.jobs.queues import QueuesOptions, queues

WINDOW = 60.0
KEY = ("window_start", "node", "client_id", "metric")
LIMITS = {"queue_length": 10_000.0, "inflight": 100.0, "retained.count": 5_000.0}


def readings() -> list[Row]:
    """About 12,000 of them, of sessions that grow, shrink and stay, and of two nodes; one of these is silent for a while."""
    random = Random(8)
    rows: list[tuple[float, Row]] = []
    for node in ("n1", "n2"):
        for second in range(0, 600, 2):
            if node == "n2" and 200 <= second < 330:
                continue
            moment = float(second) if random.random() < 0.3 else second + random.random()
            values = {
                "queue.count": 1000.0 + 3 * second + random.uniform(-20, 20),
                "retained.count": 4_500.0 + second,
                "messages.received": 7.0 * second,
            }
            for name, value in values.items():
                rows.append((moment, row("node.stats", moment, node=node, name=name, value=value)))
            for number in range(16):
                slope = (number - 4) * 10
                figures = {
                    "client_id": f"c{number}",
                    "queue_length": max(0, 2000 + round(slope * second / 10) + random.randrange(30)),
                    "inflight": min(100, 3 * number + second // 10),
                    "weight": 1 + number % 3,
                }
                rows.append((moment, row("session.stats", moment, node=node, **figures)))
    rows += [(599.5, row("node.tick", 599.5)), (30.0, row("session.stats", 30.0, client_id="short", queue_length=5))]
    # some come late
    return [one for _, one in sorted(rows, key=lambda pair: pair[0] + (random.random() < 0.02) * random.uniform(0, 8))]


def expected(rows: list[Row]) -> list[Row]:
    found: dict[tuple[Any, ...], list[tuple[Any, int, float]]] = defaultdict(list)
    for number, event in enumerate(rows):
        begin = at((event["time"] - at(0)).total_seconds() // WINDOW * WINDOW)
        if event["kind"] == "session.stats":
            for metric in ("queue_length", "inflight"):
                if event.get(metric) is not None:
                    key = begin, event["node"], event["client_id"], metric
                    found[key].append((event["time"], number, float(event[metric])))
        elif event["kind"] == "node.stats" and event["name"] in ("queue.count", "retained.count"):
            found[begin, event["node"], None, event["name"]].append((event["time"], number, event["value"]))
    results = []
    for key, series in found.items():
        series.sort()
        last = series[-1][2]
        slope = None
        if len(series) >= 3:
            slope = linear_regression(
                [(time - key[0]).total_seconds() for time, _, _ in series], [y for _, _, y in series]
            )[0]
        limit = LIMITS.get(key[3])
        full_in = None
        if limit is not None and last >= limit:
            full_in = 0.0
        elif limit is not None and slope is not None and slope > 0:
            full_in = (limit - last) / slope
        more = {"samples": len(series), "last": last, "max": max(y for _, _, y in series), "slope": slope}
        results.append({**dict(zip(KEY, key, strict=True)), **more, "limit": limit, "full_in": full_in})
    return results


def test_growth_is_as_in_plain_python(spark: "SparkSession", tmp_path: Path) -> None:
    rows = readings()
    wanted = expected(rows)
    assert len(rows) > 10_000
    assert len(wanted) > 600
    assert {one["full_in"] is None for one in wanted} == {True, False}
    options = queues.read_options(
        {
            "window": "1m",
            "metrics": "queue.count, retained.count",
            "limits": "retained.count=5000",
        }
    )
    # level series have no slope but that of rounding
    assert_rows(queues(frame(spark, rows), options), wanted, KEY, close=1e-6)
    found = collected(queues(stream(spark, rows, tmp_path / "in", 2), options), tmp_path / "checkpoint")
    assert_rows(found, wanted, KEY, close=1e-6)

    soon = queues.read_options({"window": "1m", "slide": "30s", "full_within": "50s", "lateness": 0})
    tied = [
        row("session.stats", float(second), client_id="x", queue_length=9_000 + 10 * second) for second in range(60)
    ]
    tied += [row("session.stats", 59.0, client_id="x", queue_length=9_700)]
    (first, second) = sorted(
        (one.asDict() for one in queues(frame(spark, tied), soon).collect()), key=lambda one: one["window_start"]
    )
    # of two readings at the same time, the later row is the last one
    assert first["last"] == second["last"] == 9_700
    assert first["samples"] == 61
    assert second["samples"] == 31
    assert queues(frame(spark, table([])), soon).collect() == []


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"slide": "2m", "window": "1m"}, "a slide of 120 s leaves holes between windows of 60 s"),
        ({"limits": "retained.count=many"}, "retained.count"),
        ({"min_samples": 1}, "min_samples"),
    ],
)
def test_wrong_options_are_named(given: dict[str, object], problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        queues.read_options(given)


def test_options_from_text() -> None:
    options = queues.read_options({"limits": "retained.count=5, queue.bytes = 1e6,"})
    assert options.limits == {"retained.count": 5.0, "queue.bytes": 1e6}
    assert options == QueuesOptions(limits={"retained.count": 5.0, "queue.bytes": 1e6})
