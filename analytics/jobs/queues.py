"""Queues that grow, and when they will be full."""

from collections.abc import Collection
from typing import Annotated, Final, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trunkline.analytics.jobs.job import Options, job
from trunkline.analytics.jobs.windows import heard, window
from trunkline.analytics.options import Names, OptionalPositive, Positive
from trunkline.broker.metrics import Gauges, Metrics
from trunkline.config.key_path import nearest
from trunkline.config.units import Accepts

#: With these a session ends, and its queue.
ENDS: Final = ("session.discarded", "session.terminated")
#: Growth in a second below which it is none: what the rounding of readings that stay the same leaves.
FLAT: Final = 1e-9
KINDS: Final = ("session.stats", "node.stats", *ENDS)
#: A session's own figures, which are columns of `session.stats`, and those of their limits; all others are a node's.
OF_SESSIONS: Final = {"queue_length": "queue_limit", "inflight": "inflight_limit"}


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
    max_queue_length: Annotated[int | None, Field(ge=0)] = None
    """Messages that may wait for a client, in place of the limit that the log has. 0 is no limit."""
    max_inflight: Annotated[int | None, Field(ge=0)] = None
    """Messages that a client may have in flight, in place of the limit that the log has. 0 is no limit."""
    limits: _Limits = Field({})
    """Limits of metrics of nodes in place of those that the log has, as `name=limit` with commas between them. 0 is no
    limit."""
    min_samples: Annotated[int, Field(ge=2)] = 3
    """Readings that a window must have before it has a slope."""
    min_span: OptionalPositive = None
    """Seconds from the first of them to the end of the window, or of the events, before it has one; half of the window
    if not given."""
    full_within: OptionalPositive = None
    """Seconds: only what is or will be full by then. Everything if not given."""

    @field_validator("metrics", "limits")
    @classmethod
    def _are_metrics(cls, names: Collection[str]) -> Collection[str]:
        known = Metrics().snapshot().keys() | Gauges().snapshot().keys()
        for name in names:
            if name not in known and not name.startswith("plugins."):  # plugins have what names they like
                raise ValueError(f"there is no metric {name!r}{nearest(name, known)}")
        return names

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.min_span is not None and self.min_span > self.window:
            raise ValueError(f"a min_span of {self.min_span:g} s is longer than windows of {self.window:g} s")
        if self.slide is not None and self.slide > self.window:
            raise ValueError(f"a slide of {self.slide:g} s leaves holes between windows of {self.window:g} s")
        return self


def _readings(events: DataFrame, options: QueuesOptions) -> DataFrame:
    """A row for each figure, and zeros at the end of a session."""
    kind = F.col("kind")

    def reading(metric: Expression, value: Expression, limit: Expression) -> Expression:
        return F.struct(
            metric.alias("metric"), value.cast("double").alias("reading"), limit.cast("double").alias("recorded")
        )

    nothing = F.lit(None)
    of_session = F.array(*(reading(F.lit(name), F.col(name), F.col(limit)) for name, limit in OF_SESSIONS.items()))
    at_end = F.array(*(reading(F.lit(name), F.lit(0), nothing) for name in OF_SESSIONS))
    of_node = F.array(reading(F.col("name"), F.col("value"), F.col("value_limit")))
    return (
        heard(events, KINDS, options.lateness)
        .where((kind != "node.stats") | F.col("name").isin(*options.metrics))
        .select(
            "time",
            "incarnation",
            "seq",
            "node",
            F.when(kind != "node.stats", F.col("client_id")).alias("client_id"),
            kind.isin(*ENDS).alias("ended"),
            F.inline(F.when(kind == "session.stats", of_session).when(kind.isin(*ENDS), at_end).otherwise(of_node)),
        )
        .where("reading is not null")
    )


def _given(options: QueuesOptions) -> dict[tuple[bool, str], float]:
    """Limits by whether they are a session's, and the metric."""
    of_sessions = zip(OF_SESSIONS, (options.max_queue_length, options.max_inflight), strict=True)
    given = {(True, name): float(limit) for name, limit in of_sessions if limit is not None}
    return given | {(False, name): limit for name, limit in options.limits.items()}


def _chosen(options: QueuesOptions) -> tuple[Expression, Expression]:
    """The limit, and where it is from."""
    limit, origin = F.col("recorded"), F.lit("log")
    for (of_session, metric), given in _given(options).items():
        meant = (F.col("client_id").isNotNull() == of_session) & (F.col("metric") == metric)
        limit = F.when(meant, F.lit(given or None).cast("double")).otherwise(limit)
        origin = F.when(meant, F.lit("option")).otherwise(origin)
    return limit, F.when(F.col("limit").isNotNull(), origin)


def _slope(points: Expression, until: Expression) -> Expression:
    """Of the straight line that is nearest to readings each of which holds until the next, and the last `until`: least
    squares over the time, in seconds from the window's begin."""
    begin = points[0]["at"]
    middle = (begin + until) / 2

    def moment(point: Expression, number: Expression) -> Expression:
        end = F.coalesce(F.get(points, number + 1)["at"], until)
        return point["reading"] * (end - point["at"]) * ((point["at"] + end) / 2 - middle)

    moments = F.aggregate(F.transform(points, moment), F.lit(0.0), lambda sum, one: sum + one)
    line = 12 * moments / F.pow(until - begin, F.lit(3))
    return F.when(until > begin, F.when(F.abs(line) < FLAT, 0.0).otherwise(line))


@job(
    options=QueuesOptions,
    kinds=KINDS,
    columns="""
        node string The node.
        client_id string Whose session it is; null for a metric of the node.
        metric string `queue_length` or `inflight` of a session, or the name of a metric.
        samples bigint Readings in the window.
        last double What it is at the window's end, or at that of the events: the last reading holds, and a session that
          ended has nothing left.
        max double The largest reading.
        slope double Growth per second, by least squares; null with fewer than `min_samples`, less than `min_span`, and
          of a session that ended.
        limit double What it may grow to; null when nothing is known to limit it.
        limit_from string `log`, if the limit was recorded with the reading, or `option`; null without a limit.
        full_in double Seconds from the end of the window, or of the events, until the limit, if it goes on like this; 0
          when it is full, null when it does not grow or has no limit.
    """,
    key=("window_start", "node", "client_id", "metric"),
)
def queues(events: DataFrame, options: QueuesOptions) -> DataFrame:
    """Queues that grow, and when they will be full.

    In each window and for each session that the broker recorded figures of (those with the longest queues), and each
    chosen metric of each node, a straight line is laid through the readings, each of which holds until the next one.
    Its slope and the last reading say when the limit is reached, as far as the log or an option has one. Readings are
    not counts: a weight of more than 1 changes nothing.
    """
    readings = _readings(events, options)
    if events.isStreaming:
        readings = readings.withColumn("newest", F.lit(None).cast("timestamp"))
    else:
        readings = readings.join(F.broadcast(events.groupBy("node").agg(F.max("time").alias("newest"))), "node")
    readings = readings.withColumn("window", window(options.window, slide=options.slide))

    def since(time: Expression) -> Expression:
        # small numbers: of seconds since the epoch, cubes would not be exact
        return (F.unix_micros(time) - F.unix_micros("window.start")) / 1e6

    point = F.struct(since(F.col("time")).alias("at"), "incarnation", "seq", "reading", "ended")
    results = readings.groupBy("window", "node", "client_id", "metric").agg(
        F.count_if(~F.col("ended")).alias("samples"),
        F.max("reading").alias("max"),
        F.max_by("recorded", F.when(~F.col("ended"), F.struct("time", "incarnation", "seq"))).alias("recorded"),
        F.sort_array(F.collect_list(point)).alias("points"),
        F.max("newest").alias("newest"),
    )
    limit, origin = _chosen(options)
    slope, room = F.col("slope"), F.col("limit") - F.col("last")
    goes_on = ~F.element_at("points", -1)["ended"]
    until = since(F.least("newest", "window.end"))
    span = until - F.element_at("points", 1)["at"]
    is_long = (F.col("samples") >= options.min_samples) & (span >= (options.min_span or options.window / 2))
    results = (
        results.where("samples > 0")
        .withColumn("last", F.element_at("points", -1)["reading"])
        .withColumn("slope", F.when(goes_on & is_long, _slope(F.col("points"), until)))
        .withColumn("limit", limit)
        .withColumn("limit_from", origin)
        .withColumn("full_in", F.when(room <= 0, F.lit(0.0)).when(slope > 0, room / slope))
    )
    return results if options.full_within is None else results.where(F.col("full_in") <= options.full_within)
