"""What jobs about messages share: when a message was published, the part of its topic that counts, the busiest names."""

from collections.abc import Sequence

from pydantic import Field
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trunkline.analytics.jobs.job import Options, Seconds
from trunkline.analytics.jobs.windows import heard, window, window_bounds


class MessageOptions(Options):
    window: Seconds = Field(default=60.0, gt=0, le=30 * 86400, description="Seconds of one window.")
    levels: int = Field(
        default=1, ge=1, le=128, description="Topic levels that make a prefix: with 2, a/b/c counts as a/b."
    )
    internal: bool = Field(default=False, description="Whether topics that begin with $ count too.")


def born() -> Expression:
    """When the broker took the message over: to the microsecond, and the same for all events of a message, since its id
    begins with it. Of other events, their own time."""
    ticks = F.conv(F.hex(F.substring("guid", 1, 8)), 16, 10).cast("bigint")
    return F.coalesce(F.timestamp_micros(ticks), F.col("time"))


def of_messages(
    events: DataFrame, kinds: tuple[str, ...], options: MessageOptions, wait: float, *, time: str = "born"
) -> DataFrame:
    """Events of these kinds with the columns `born`, `prefix` and `latency_us` (always filled in), of which a stream waits
    `wait` seconds for those that come late by `time`."""
    found = heard(events.withColumn("born", born()), kinds, wait, time=time)
    if not options.internal:
        found = found.where(~F.col("topic").startswith("$"))
    return found.withColumns(
        {
            "prefix": F.substring_index("topic", "/", options.levels),
            "latency_us": F.coalesce("latency_us", F.unix_micros("time") - F.unix_micros("born")),
        }
    )


def busiest(counted: DataFrame, order: Sequence[str], name: str, k: int, totals: Sequence[str]) -> DataFrame:
    """The first `k` rows of each window by `order`, falling, and by `name` where those are equal; with `rank` from 1,
    the sums `total_*` of the window, and `names`, how many there were. `counted` is grouped by `window`.

    It is an aggregation, since a stream knows no ranks.
    """
    columns = [column for column in counted.columns if column != "window"]
    first = F.struct(*[(-F.col(column)).alias(f"o{number}") for number, column in enumerate(order)], F.col(name))
    ranked = counted.groupBy("window").agg(
        F.min_by(F.struct(*columns), first, k).alias("best"),
        *[F.sum(total).alias(f"total_{total}") for total in totals],
        F.count("*").alias("names"),
    )
    return ranked.select(
        *window_bounds(), *[f"total_{total}" for total in totals], "names", F.posexplode("best").alias("rank", "row")
    ).select(
        "window_start",
        "window_end",
        (F.col("rank") + 1).alias("rank"),
        *[F.col(f"row.{column}").alias(column) for column in columns],
        *[f"total_{total}" for total in totals],
        "names",
    )


def by_window(options: MessageOptions, *columns: str, time: str = "time") -> list[Expression]:
    """What to group by."""
    return [window(options.window, time=time), *[F.col(column) for column in columns]]
