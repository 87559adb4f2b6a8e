"""Event time: what is seen, and what makes time go on."""

from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.analytics.events_made import assert_rows, at, frame, row, stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")


def test_an_event_on_a_border_belongs_to_the_later_window(spark: "SparkSession") -> None:
    from pyspark.sql import functions as F

    from trunkline.analytics.jobs.windows import heard, window, window_bounds

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
    counted = chosen.groupBy(window(2.5)).agg(F.sum("weight").alias("n")).select(*window_bounds(), "n")
    assert_rows(
        counted,
        [
            {"window_start": at(start), "window_end": at(start + 2.5), "n": n}
            for start, n in ((7.5, 1), (10, 6), (12.5, 8), (-2.5, 16))
        ],
        ["window_start"],
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
