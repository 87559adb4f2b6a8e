"""Event time: what is seen, and what makes time go on."""

from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.analytics.events_made import assert_rows, at, frame, guid, row, stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")


def test_an_event_on_a_border_belongs_to_the_later_window(spark: "SparkSession") -> None:
    from pyspark.sql import functions as F

    from trunkline.analytics.jobs.windows import heard, window

    events = frame(
        spark,
        [
            row("a", 9.999999, weight=None),
            row("a", 10, weight=2),
            row("b", 12.4, weight=4),
            row("a", 12.5, weight=8),
            row("c", 12.5, weight=100),
            row("a", -0.000001, weight=16),
        ],
    )
    chosen = heard(events, ("a", "b"), 5.0)
    counted = chosen.groupBy(window(2.5)).agg(F.sum("weight").alias("n")).select("window.*", "n")
    assert_rows(
        counted,
        [
            {"start": at(start), "end": at(start + 2.5), "n": n}
            for start, n in ((7.5, 1), (10, 6), (12.5, 8), (-2.5, 16))
        ],
        ["start"],
    )


def test_no_condition_comes_before_the_time_of_a_stream(spark: "SparkSession", tmp_path: Path) -> None:
    """Spark would rather look at conditions first. Rows that fail them would not count as time, so that a window stays
    open where nothing but `node.tick` comes."""
    from pyspark.sql import functions as F

    from trunkline.analytics.jobs.windows import heard

    events = heard(stream(spark, [], tmp_path), ("message.routed",), 5.0).where(~F.col("topic").startswith("$"))
    with redirect_stdout(StringIO()) as plan:
        events.explain("extended")
    optimized = plan.getvalue().partition("Optimized Logical Plan")[2].partition("Physical Plan")[0]
    above, mark, below = optimized.partition("EventTimeWatermark")
    assert mark
    assert "message.routed" in above
    assert "Filter" not in below


def test_a_message_knows_when_it_was_published(spark: "SparkSession") -> None:
    from trunkline.analytics.jobs.windows import MessageOptions, of_messages

    delivered = "message.delivered"
    events = frame(
        spark,
        [
            row(delivered, 3, topic="a/b/c", guid=guid(at(1.000001), 2**64 - 1), latency_us=5),
            row(delivered, 4, topic="a", guid=guid(at(1))),
            row(delivered, 5, topic="/a/b"),
            row(delivered, 6, topic="$SYS/x", guid=guid(at(1))),
            row("message.acked", 7, topic="a", guid=guid(at(1))),
        ],
    )
    found = of_messages(events, (delivered,), MessageOptions(levels=2), 5.0)
    assert_rows(
        found,
        [
            {"seq": 0, "born": at(1.000001), "prefix": "a/b", "latency_us": 5},
            {"seq": 1, "born": at(1), "prefix": "a", "latency_us": 3_000_000},
            {"seq": 2, "born": at(5), "prefix": "/a", "latency_us": 0},
        ],
        ["seq"],
    )
