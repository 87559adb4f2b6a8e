"""Growth of queues, by Spark and by plain Python."""

from typing import TYPE_CHECKING

import pytest

from tests.analytics.events_made import Row, assert_rows, at, frame, row
from trunkline.analytics.options import OptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")
from trunkline.analytics.jobs.queues import QueuesOptions, queues


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


def readings(client: str | None, *values: tuple[float, float]) -> list[Row]:
    if client is None:
        return [row("node.stats", second, name="retained.count", value=value) for second, value in values]
    return [row("session.stats", second, client_id=client, queue_length=int(value)) for second, value in values]


def test_a_line_through_the_readings_says_when_the_limit_is_reached(spark: "SparkSession") -> None:
    rows = [
        *readings("grows", *((second, 9_000 + 10 * second) for second in range(60))),
        # of two readings at the same time, the later row is the last one
        *readings("grows", (59, 9_700)),
        *readings("shrinks", (0, 900), (20, 500), (40, 100)),
        *readings("full", (0, 10_000), (30, 9_000), (59.9, 10_001)),
        *readings("short", (30, 5), (31, 9)),
        *readings(None, (0, 4_000), (30, 4_300), (50, 4_500), (60, 1)),
        row("node.stats", 1, name="messages.received", value=1.0),
        row("session.stats", 1, client_id="inflight", inflight=50, weight=7),
        row("node.tick", 100),
    ]
    options = {"window": "1m", "metrics": "retained.count, queue.bytes", "limits": "retained.count=5000"}
    wanted = [
        {"client_id": "grows", "samples": 61, "last": 9_700.0, "max": 9_700.0, "limit": 10_000.0},
        {"client_id": "shrinks", "slope": -20.0, "last": 100.0, "max": 900.0, "full_in": None},
        {"client_id": "full", "samples": 3, "full_in": 0.0},
        {"client_id": "short", "samples": 2, "slope": None, "full_in": None},
        {"client_id": "inflight", "metric": "inflight", "samples": 1, "limit": 100.0},
        {
            "client_id": None,
            "metric": "retained.count",
            "slope": 10.0,
            "last": 4_500.0,
            "limit": 5_000.0,
            "full_in": 50.0,
        },
    ]
    second = {"client_id": None, "metric": "retained.count", "window_start": at(60), "samples": 1, "last": 1.0}
    key = ("window_start", "client_id", "metric")
    assert_rows(
        queues(frame(spark, rows), queues.read_options(options)),
        [*({"window_start": at(0), "metric": "queue_length"} | one for one in wanted), second],
        key,
    )
    soon = queues.read_options({**options, "slide": "30s", "full_within": "50s"})
    found = queues(frame(spark, rows), soon).where("client_id = 'grows'").orderBy("window_start").collect()
    assert [(one["window_start"].second, one["samples"], one["last"]) for one in found] == [
        (0, 61, 9_700),
        (30, 31, 9_700),
    ]
