"""Queues that grow, and when they will be full."""

from collections.abc import Mapping
from functools import reduce
from typing import Annotated, Final, Self

from pydantic import BeforeValidator, Field, model_validator
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trunkline.analytics.jobs.job import Column, Names, Options, Seconds, job
from trunkline.analytics.jobs.windows import BOUNDS, heard, window, window_bounds

KINDS: Final = ("session.stats", "node.stats")
#: A session's own figures; all others are a node's.
QUEUE: Final = "queue_length"
INFLIGHT: Final = "inflight"


def _limits(value: object) -> object:
    """`name=number` with commas between, as text."""
    if not isinstance(value, str):
        return value
    pairs = [entry.partition("=") for entry in value.split(",") if entry.strip()]
    return {name.strip(): number.strip() for name, _, number in pairs}


class QueuesOptions(Options):
    window: Seconds = Field(default=300.0, gt=0, description="Seconds over which the growth is measured.")
    slide: Seconds | None = Field(
        default=None, gt=0, description="Seconds from one window to the next; as long as the window when not given."
    )
    metrics: Names = Field(
        default=("queue.count", "queue.bytes", "inflight.count", "retained.count", "retained.bytes"),
        description="Metrics of nodes to look at, named as in the page on metrics.",
    )
    max_queue_length: int = Field(
        default=10_000, ge=0, description="Messages: `session.max_queue_length` of the brokers. 0 is no limit."
    )
    max_inflight: int = Field(
        default=100, ge=0, description="Messages: `session.max_inflight` of the brokers. 0 is no limit."
    )
    limits: Annotated[dict[str, float], BeforeValidator(_limits)] = Field(
        default={"retained.count": 1_000_000.0},
        description="Limits of metrics of nodes, as `name=limit` with commas between them.",
    )
    min_samples: int = Field(
        default=3, ge=2, description="Readings that a window must have before a growth is told of it."
    )
    full_within: Seconds | None = Field(
        default=None, gt=0, description="Seconds: only what is or will be full by then. Everything when not given."
    )

    @model_validator(mode="after")
    def _no_holes(self) -> Self:
        if self.slide is not None and self.slide > self.window:
            raise ValueError(f"a slide of {self.slide:g} s leaves holes between windows of {self.window:g} s")
        return self


COLUMNS: Final = (
    *BOUNDS,
    Column("node", "string", "The node."),
    Column("client_id", "string", "Whose session it is; null for a metric of the node."),
    Column("metric", "string", "`queue_length` or `inflight` of a session, or the name of a metric."),
    Column("samples", "bigint", "Readings in the window."),
    Column("last", "double", "The last of them."),
    Column("max", "double", "The largest of them."),
    Column("slope", "double", "Growth per second, by least squares; null with fewer than `min_samples`."),
    Column("limit", "double", "What it may grow to; null when nothing limits it."),
    Column(
        "full_in",
        "double",
        "Seconds from the window's last reading until the limit, if it goes on like this; 0 when it is full, null when it "
        "does not grow or has no limit.",
    ),
)


def _readings(events: DataFrame, options: QueuesOptions) -> DataFrame:
    """A row for each figure."""
    of_session = F.col("kind") == "session.stats"
    figures = F.when(
        of_session,
        F.array(
            F.struct(F.lit(QUEUE).alias("metric"), F.col("queue_length").cast("double").alias("reading")),
            F.struct(F.lit(INFLIGHT).alias("metric"), F.col("inflight").cast("double").alias("reading")),
        ),
    ).otherwise(F.array(F.struct(F.col("name").alias("metric"), F.col("value").alias("reading"))))
    wanted = of_session | F.col("name").isin(*options.metrics)
    readings = heard(events, KINDS, options.lateness).where(wanted)
    return readings.select(
        "time",
        "node",
        F.when(of_session, F.col("client_id")).alias("client_id"),
        F.struct("time", "incarnation", "seq").alias("order"),
        F.inline(figures),
    ).where("reading is not null")


def _limit(options: QueuesOptions) -> Expression:
    of_session = {QUEUE: options.max_queue_length, INFLIGHT: options.max_inflight}
    session = _choice({name: float(limit) for name, limit in of_session.items() if limit})
    return F.when(F.col("client_id").isNotNull(), session).otherwise(_choice(options.limits))


def _choice(values: Mapping[str, float]) -> Expression:
    nothing = F.lit(None).cast("double")
    return reduce(
        lambda chosen, pair: F.when(F.col("metric") == pair[0], F.lit(pair[1])).otherwise(chosen),
        values.items(),
        nothing,
    )


@job(
    "queues",
    options=QueuesOptions,
    kinds=KINDS,
    columns=COLUMNS,
    key=("window_start", "node", "client_id", "metric"),
)
def queues(events: DataFrame, options: QueuesOptions) -> DataFrame:
    """How queues, in-flight windows and retained messages grow, and when they will be full if that goes on.

    In each window and for each session that the broker gave figures of (those with the longest queues), and each chosen
    metric of each node, a straight line is laid through the readings. Its slope and the last reading say when the limit is
    reached. Readings are not counts: a weight of more than 1 changes nothing.
    """
    readings = _readings(events, options).withColumn("window", window(options.window, slide=options.slide))
    # small numbers: of seconds since the epoch, squares would not be exact
    seconds = (F.unix_micros("time") - F.unix_micros("window.start")) / 1e6
    grouped = readings.groupBy("window", "node", "client_id", "metric").agg(
        F.count("reading").alias("samples"),
        F.max_by("reading", "order").alias("last"),
        F.max("reading").alias("max"),
        F.regr_slope("reading", seconds).alias("line"),
    )
    slope = F.when(F.col("samples") >= options.min_samples, F.col("line"))
    room = F.col("limit") - F.col("last")
    full_in = F.when(room <= 0, F.lit(0.0)).when(F.col("slope") > 0, room / F.col("slope"))
    results = grouped.select(
        *window_bounds(), "node", "client_id", "metric", "samples", "last", "max", slope.alias("slope")
    )
    results = results.withColumn("limit", _limit(options)).withColumn("full_in", full_in)
    return results if options.full_within is None else results.where(F.col("full_in") <= options.full_within)
