"""Growth of queues, by Spark and by plain Python."""

from typing import TYPE_CHECKING

import pytest

from tests.analytics.events_made import Row, assert_rows, at, collected, frame, row, stream
from trunkline.analytics.options import OptionError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")
from trunkline.analytics.jobs.queues import QueuesOptions, queues


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"slide": "2m", "window": "1m"}, "a slide of 120 s leaves holes between windows of 60 s"),
        ({"limits": "retained.count=many"}, "retained.count"),
        ({"limits": "retained.cont=5"}, "there is no metric 'retained.cont'; did you mean retained.count?"),
        ({"metrics": "queue.count,typo"}, "there is no metric 'typo'"),
        ({"min_samples": 1}, "min_samples"),
    ],
)
def test_wrong_options_are_named(given: dict[str, object], problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        queues.read_options(given)


def test_options_from_text() -> None:
    assert queues.read_options({"metrics": "plugins.own.any"}).metrics == ("plugins.own.any",)
    options = queues.read_options({"limits": "retained.count=5, queue.bytes = 1e6,"})
    assert options.limits == {"retained.count": 5.0, "queue.bytes": 1e6}
    assert options == QueuesOptions(limits={"retained.count": 5.0, "queue.bytes": 1e6})


def readings(client: str | None, *values: tuple[float, float], limit: int | None = None) -> list[Row]:
    if client is None:
        return [
            row("node.stats", second, name="retained.count", value=value, value_limit=limit) for second, value in values
        ]
    return [
        row("session.stats", second, client_id=client, queue_length=int(value), queue_limit=limit)
        for second, value in values
    ]


def test_a_line_through_the_readings_says_when_the_limit_is_reached(spark: "SparkSession") -> None:
    rows = [
        *readings("grows", *((second, 9_000 + 10 * second) for second in range(60)), limit=10_000),
        # of two readings at the same time, the later row is the last one
        *readings("grows", (59, 9_700), limit=10_000),
        *readings("shrinks", (0, 900), (20, 500), (40, 100), limit=1_000),
        *readings("full", (0, 10_000), (30, 9_000), (59.9, 10_001), limit=10_000),
        *readings("short", (30, 5), (31, 9), limit=10),
        *readings("unlimited", (0, 1), (20, 2), (40, 3)),
        *readings("lowered", (0, 50), limit=100),
        *readings("lowered", (1, 50), limit=40),
        *readings(None, (0, 4_000), (30, 4_300), (50, 4_500), (60, 1), limit=9_999),
        row("node.stats", 1, name="messages.received", value=1.0),
        row("session.stats", 1, client_id="inflight", inflight=50, inflight_limit=100, weight=7),
        row("node.tick", 100),
    ]
    options = {"window": "1m", "metrics": "retained.count, queue.bytes", "limits": "retained.count=5000"}
    # readings that hold are steps, of which few are a little less steep than a line through their corners
    wanted: list[Row] = [
        {"client_id": "grows", "samples": 61, "last": 9_700.0, "max": 9_700.0, "limit": 10_000.0, "limit_from": "log"},
        {"client_id": "shrinks", "slope": -20 * 8 / 9, "last": 100.0, "max": 900.0, "full_in": None},
        {"client_id": "full", "samples": 3, "full_in": 0.0, "limit": 10_000.0},
        {"client_id": "short", "samples": 2, "slope": None, "full_in": None, "limit": 10.0},
        {"client_id": "unlimited", "slope": 8 / 9 / 20, "limit": None, "limit_from": None, "full_in": None},
        {"client_id": "lowered", "limit": 40.0, "full_in": 0.0},
        {"client_id": "inflight", "metric": "inflight", "samples": 1, "limit": 100.0, "limit_from": "log"},
        {
            "client_id": None,
            "metric": "retained.count",
            "last": 4_500.0,
            "limit": 5_000.0,
            "limit_from": "option",
        },
    ]
    second = {"client_id": None, "metric": "retained.count", "window_start": at(60), "samples": 1, "last": 1.0}
    key = ("window_start", "client_id", "metric")
    assert_rows(
        queues(frame(spark, rows), queues.read_options(options)),
        [*({"window_start": at(0), "metric": "queue_length"} | one for one in wanted), second],
        key,
    )
    soon = queues.read_options({**options, "slide": "30s", "full_within": "50s", "max_queue_length": 0})
    found = queues(frame(spark, rows), soon).collect()
    assert {(one["client_id"], one["limit_from"]) for one in found} == {(None, "option")}
    higher = queues.read_options({**options, "max_queue_length": 10_300})
    (found,) = queues(frame(spark, rows), higher).where("client_id = 'grows'").collect()
    assert (found["limit"], found["limit_from"]) == (10_300, "option")
    assert found["full_in"] == pytest.approx(600 / 10, rel=0.05)


def test_a_reading_holds_until_the_next_and_the_end(spark: "SparkSession") -> None:
    """The same queues, read when they change or every second."""
    changed = [(0.0, 0), (1.0, 30), (2.0, 60), (3.0, 90), (30.0, 91), (31.0, 95)]
    steps = [max(value for time, value in changed if time <= second) for second in range(60)]
    rows = [
        *readings("changed", *changed, limit=1_000),
        *readings("steady", *enumerate(steps), limit=1_000),
        *readings("flat", (0, 40), limit=40),
        # times like these leave a rest of rounding
        *readings("same", *[(0.1 + 19.7 * number, 40.0) for number in range(4)], limit=1_000),
        row("node.tick", 60),
        # of another node the events end before the window does
        *(one | {"node": "n2"} for one in readings("short", (0, 0), (1, 10), (2, 20), limit=1_000)),
        row("node.tick", 3, node="n2"),
        # too little to say how it goes on
        *(one | {"node": "n3"} for one in readings("shorter", (0, 0), (1, 10), (2, 20), limit=1_000)),
        row("node.tick", 2.9, node="n3"),
    ]
    options = QueuesOptions(window=60, min_span=3)
    found = {
        one["client_id"]: one
        for one in queues(frame(spark, rows), options).where("window_start < '2025-06-01 12:01'").collect()
    }
    assert found["changed"]["slope"] == pytest.approx(found["steady"]["slope"], rel=1e-6)
    assert found["changed"]["full_in"] == pytest.approx((1_000 - 95) / found["changed"]["slope"])
    assert (found["flat"]["slope"], found["flat"]["full_in"]) == (None, 0.0)
    assert (found["same"]["slope"], found["same"]["full_in"]) == (0.0, None)
    assert found["short"]["slope"] == pytest.approx(10 * 8 / 9)
    assert (found["shorter"]["slope"], found["shorter"]["full_in"]) == (None, None)


@pytest.mark.parametrize("end", ["session.terminated", "session.discarded"])
def test_nothing_is_left_of_a_session_that_ended(spark: "SparkSession", end: str) -> None:
    rows = [
        *readings("c", (0, 1), (20, 20), (40, 40), limit=40),
        row(end, 41, client_id="c"),
        row(end, 42, client_id="never read"),
        row("node.tick", 59),
    ]
    (found,) = queues(frame(spark, rows), QueuesOptions(window=60)).collect()
    assert (found["samples"], found["last"], found["max"], found["full_in"]) == (3, 0.0, 40.0, None)


def test_a_stream_takes_the_windows_end_for_the_end(spark: "SparkSession", tmp_path: "Path") -> None:
    rows = [*readings("c", (0, 0), (20, 20), (40, 40), limit=100), row("node.tick", 59)]
    (found,) = collected(
        queues(stream(spark, rows, tmp_path / "in"), QueuesOptions(window=60)), tmp_path / "checkpoint"
    )
    assert found["slope"] == pytest.approx(8 / 9)
    assert found["full_in"] == pytest.approx(60 / found["slope"])
