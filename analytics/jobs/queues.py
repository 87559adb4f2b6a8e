"""Queues that grow, and when they will be full."""

from collections.abc import Mapping
from functools import reduce
from typing import Annotated, Final, Self

from pydantic import BeforeValidator, Field, model_validator
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trunkline.analytics.jobs.job import Options, job
from trunkline.analytics.jobs.windows import heard, window
from trunkline.analytics.options import Names, OptionalPositive, Positive
from trunkline.config.units import Accepts

KINDS: Final = ("session.stats", "node.stats")
#: A session's own figures, which are columns of `session.stats`; all others are a node's.
OF_SESSIONS: Final = ("queue_length", "inflight")


def _limits(value: object) -> object:
    """`name=number` with commas between, as text."""
    if not isinstance(value, str):
        return value
    pairs = [entry.partition("=") for entry in value.split(",") if entry.strip()]
    return {name.strip(): number.strip() for name, _, number in pairs}


_Limits = Annotated[dict[str, float], Accepts("`name=limit` with commas between"), BeforeValidator(_limits)]


class QueuesOptions(Options):
    window: Positive = 300.0
    """Seconds over which the growth is measured."""
    slide: OptionalPositive = None
    """Seconds from one window to the next; as long as the window if not given."""
    metrics: Names = ("queue.count", "queue.bytes", "inflight.count", "retained.count", "retained.bytes")
    """Metrics of nodes to look at, named as in the page on metrics."""
    max_queue_length: Annotated[int, Field(ge=0)] = 10_000
    """Messages: `session.max_queue_length` of the brokers. 0 is no limit."""
    max_inflight: Annotated[int, Field(ge=0)] = 100
    """Messages: `session.max_inflight` of the brokers. 0 is no limit."""
    limits: _Limits = Field({"retained.count": 1_000_000.0})
    """Limits of metrics of nodes, as `name=limit` with commas between them."""
    min_samples: Annotated[int, Field(ge=2)] = 3
    """Readings that a window must have before it has a slope."""
    full_within: OptionalPositive = None
    """Seconds: only what is or will be full by then. Everything if not given."""

    @model_validator(mode="after")
    def _no_holes(self) -> Self:
        if self.slide is not None and self.slide > self.window:
            raise ValueError(f"a slide of {self.slide:g} s leaves holes between windows of {self.window:g} s")
        return self


def _readings(events: DataFrame, options: QueuesOptions) -> DataFrame:
    """A row for each figure."""
    of_session = F.col("kind") == "session.stats"

    def reading(metric: Expression, value: str) -> Expression:
        return F.struct(metric.alias("metric"), F.col(value).cast("double").alias("reading"))

    figures = F.when(of_session, F.array(*(reading(F.lit(name), name) for name in OF_SESSIONS)))
    wanted = of_session | F.col("name").isin(*options.metrics)
    return (
        heard(events, KINDS, options.lateness)
        .where(wanted)
        .select(
            "time",
            "node",
            F.when(of_session, F.col("client_id")).alias("client_id"),
            F.struct("time", "incarnation", "seq").alias("order"),
            F.inline(figures.otherwise(F.array(reading(F.col("name"), "value")))),
        )
        .where("reading is not null")
    )


def _limit(options: QueuesOptions) -> Expression:
    of_sessions = dict(zip(OF_SESSIONS, (options.max_queue_length, options.max_inflight), strict=True))
    session = _choice({name: float(limit) for name, limit in of_sessions.items() if limit})
    return F.when(F.col("client_id").isNotNull(), session).otherwise(_choice(options.limits))


def _choice(values: Mapping[str, float]) -> Expression:
    nothing = F.lit(None).cast("double")
    return reduce(
        lambda chosen, pair: F.when(F.col("metric") == pair[0], F.lit(pair[1])).otherwise(chosen),
        values.items(),
        nothing,
    )


@job(
    options=QueuesOptions,
    kinds=KINDS,
    columns="""
        node string The node.
        client_id string Whose session it is; null for a metric of the node.
        metric string `queue_length` or `inflight` of a session, or the name of a metric.
        samples bigint Readings in the window.
        last double The last of them.
        max double The largest of them.
        slope double Growth per second, by least squares; null with fewer than `min_samples`.
        limit double What it may grow to; null when nothing limits it.
        full_in double Seconds from the window's last reading until the limit, if it goes on like this; 0 when it is
          full, null when it does not grow or has no limit.
    """,
    key=("window_start", "node", "client_id", "metric"),
)
def queues(events: DataFrame, options: QueuesOptions) -> DataFrame:
    """Queues that grow, and when they will be full.

    In each window and for each session that the broker recorded figures of (those with the longest queues), and each
    chosen metric of each node, a straight line is laid through the readings. Its slope and the last reading say when
    the limit is reached. Readings are not counts: a weight of more than 1 changes nothing.
    """
    readings = _readings(events, options).withColumn("window", window(options.window, slide=options.slide))
    # small numbers: of seconds since the epoch, squares would not be exact
    seconds = (F.unix_micros("time") - F.unix_micros("window.start")) / 1e6
    results = readings.groupBy("window", "node", "client_id", "metric").agg(
        F.count("reading").alias("samples"),
        F.max_by("reading", "order").alias("last"),
        F.max("reading").alias("max"),
        F.regr_slope("reading", seconds).alias("slope"),
    )
    slope, room = F.col("slope"), F.col("limit") - F.col("last")
    full_in = F.when(room <= 0, F.lit(0.0)).when(slope > 0, room / slope)
    results = (
        results.withColumn("slope", F.when(F.col("samples") >= options.min_samples, slope))
        .withColumn("limit", _limit(options))
        .withColumn("full_in", full_in)
    )
    return results if options.full_within is None else results.where(F.col("full_in") <= options.full_within)
