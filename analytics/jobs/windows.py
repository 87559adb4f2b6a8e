"""Event time: which events a job sees, how late they may be, windows of them, and the busiest names of each window."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trunkline.analytics.jobs.job import Options
from trunkline.analytics.options import DAY, Positive


class MessageOptions(Options):
    """The options of jobs about messages."""

    window: Annotated[Positive, Field(le=30 * DAY)] = 60.0
    """Seconds of one window."""
    levels: Annotated[int, Field(ge=1, le=128)] = 1
    """Topic levels that make a prefix: with 2, a/b/c counts as a/b."""
    internal: bool = False
    """Whether topics that begin with $ count too."""


def interval(seconds: float) -> str:
    """As Spark reads it."""
    return f"{round(seconds * 1_000_000)} microseconds"


def heard(events: DataFrame, kinds: Sequence[str], lateness: float, *, time: str = "time") -> DataFrame:
    """The events of these kinds; a stream waits `lateness` seconds for late ones, by the column `time`.

    Time goes on with every row, also with rows that are left out here (`node.tick`) or by a `where` behind it: so a
    window closes when its node is idle. An event without weight counts once.
    """
    if events.isStreaming:
        # Spark pushes conditions below the watermark, these and those of the job, and rows that they leave out would
        # not count as time. It pushes none past what might be different each time, such as this, which is always true.
        events = events.withWatermark(time, interval(lateness)).where(F.spark_partition_id() >= 0)
    return events.where(F.col("kind").isin(*kinds)).withColumn("weight", F.coalesce("weight", F.lit(1)))


def window(seconds: float, *, slide: float | None = None, time: str = "time") -> Expression:
    """Windows of this length, aligned to the epoch; an event on a border belongs to the later one. With `slide`, a
    window begins every so many seconds."""
    return F.window(time, interval(seconds), None if slide is None else interval(slide)).alias("window")


def born() -> Expression:
    """When the broker took the message over: to the microsecond, and the same for all events of a message, since its id
    begins with it. Of other events, their own time."""
    ticks = F.conv(F.hex(F.substring("guid", 1, 8)), 16, 10).cast("bigint")
    return F.coalesce(F.timestamp_micros(ticks), F.col("time"))


def of_messages(
    events: DataFrame, kinds: Sequence[str], options: MessageOptions, wait: float, *, time: str = "born"
) -> DataFrame:
    """Events of these kinds with the columns `born`, `prefix` and `latency_us` (always filled in); a stream waits
    `wait` seconds for late ones, by `time`."""
    found = heard(events.withColumn("born", born()), kinds, wait, time=time)
    if not options.internal:
        found = found.where(~F.col("topic").startswith("$"))
    return found.withColumns(
        {
            "prefix": F.substring_index("topic", "/", options.levels),
            "latency_us": F.coalesce("latency_us", F.unix_micros("time") - F.unix_micros("born")),
        }
    )


def is_live() -> Expression:
    """Whether a delivery followed at once, so that its time is a latency; or the log does not say how it came."""
    return F.col("delivery").isNull() | (F.col("delivery") == "live")


def is_retained() -> Expression:
    """Whether it goes to a new subscription: not because the message was published."""
    return F.col("delivery").eqNullSafe("retained")


def busiest(counted: DataFrame, order: str, k: int, totals: Sequence[str]) -> DataFrame:
    """The first `k` rows of each window by `order`, falling, ties by `name`; with `rank` from 1, `share` of that, the
    sums `total_*` of the window, and `names`, how many there were. `counted` is grouped by `window`.

    It is an aggregation, since a stream knows no ranks.
    """
    columns = [column for column in counted.columns if column != "window"]
    first = F.struct((-F.coalesce(order, F.lit(0))).alias("falling"), F.col("name"))
    ranked = counted.groupBy("window").agg(
        F.min_by(F.struct(*columns), first, k).alias("best"),
        *[F.sum(total).alias(f"total_{total}") for total in totals],
        F.count("*").alias("names"),
    )
    rows = ranked.select("*", F.posexplode("best").alias("place", "row")).drop("best")
    total = F.col(f"total_{order}")
    return rows.select("*", "row.*", (F.col("place") + 1).alias("rank")).withColumn(
        "share", F.when(total > 0, F.col(order) / total)
    )
