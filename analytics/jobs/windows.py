"""Event time: which events a job sees, how late they may be, and windows of them."""

from typing import Final

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trunkline.analytics.jobs.job import Column

#: Of each result of a window.
BOUNDS: Final = (
    Column("window_start", "timestamp", "Begin of the window."),
    Column("window_end", "timestamp", "Its end, which belongs to the next one."),
)


def interval(seconds: float) -> str:
    """As Spark reads it."""
    return f"{round(seconds * 1_000_000)} microseconds"


def heard(events: DataFrame, kinds: tuple[str, ...], lateness: float, *, time: str = "time") -> DataFrame:
    """The events of these kinds, of which a stream waits `lateness` seconds for late ones.

    Time goes on with every row, also with those that are left out (`node.tick`), here or by a `where` behind it: so a
    window closes when its node is idle. `time` names the column that counts. What has no weight counts once.
    """
    if events.isStreaming:
        # Spark pushes conditions below the watermark, these and those of the job, and rows that they leave out would not
        # count as time. It pushes none past what might be different each time, such as this, which is always true.
        events = events.withWatermark(time, interval(lateness)).where(F.spark_partition_id() >= 0)
    return events.where(F.col("kind").isin(*kinds)).withColumn("weight", F.coalesce("weight", F.lit(1)))


def window(seconds: float, *, slide: float | None = None, time: str = "time") -> Expression:
    """Windows of this length, aligned to the epoch; an event on a border belongs to the later one. With `slide`, one
    begins after each so many seconds."""
    return F.window(time, interval(seconds), None if slide is None else interval(slide)).alias("window")


def window_bounds() -> tuple[Expression, Expression]:
    """The columns `BOUNDS` of a result that was grouped by `window`."""
    return F.col("window.start").alias("window_start"), F.col("window.end").alias("window_end")
