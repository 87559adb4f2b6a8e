"""Delivery latency and loss, with no join: each event of a message says when the message was published."""

from typing import Literal

from pydantic import Field
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trunkline.analytics.jobs.job import Column, Seconds, job
from trunkline.analytics.jobs.messages import MessageOptions, by_window, of_messages
from trunkline.analytics.jobs.windows import BOUNDS, window_bounds

_SHARES = (0.5, 0.95, 0.99)
_GROUP = ("node", "prefix", "qos")


class LatencyOptions(MessageOptions):
    within: Seconds = Field(
        default=30.0,
        gt=0,
        le=86400,
        description="Seconds after its publication in which a delivery or an acknowledgement counts; what comes later "
        "counts as never.",
    )
    loss: bool = Field(
        default=True,
        description="Whether to look for deliveries and acknowledgements that never came. It keeps a row of state for "
        "each delivery until its window closes; without it, messages that are sent twice count twice.",
    )
    completions: bool = Field(
        default=False,
        description="Whether `delivery.completed` is recorded, which tells a subscriber at QoS 0 from one that owes an "
        "acknowledgement. Without it `unacked` is null.",
    )
    percentiles: Literal["exact", "approximate"] = Field(
        default="exact",
        description="Approximate ones are within 1/10,000 of the rank, take less memory, and do not heed the weight of "
        "sampled events.",
    )


def _kinds(options: LatencyOptions) -> tuple[str, ...]:
    timed = ("message.delivered", "message.acked")
    fates = ("message.routed", "message.dropped") if options.loss else ()
    return (*timed, *fates, *(("delivery.completed",) if options.loss and options.completions else ()))


@job(
    "latency",
    options=LatencyOptions,
    kinds=_kinds,
    columns=(
        *BOUNDS,
        Column("node", "string", "The node that delivered."),
        Column("prefix", "string", "The first levels of the topics."),
        Column("qos", "int", "As the publisher sent them."),
        Column("messages", "bigint", "Messages that were routed; null without `loss`."),
        Column("receivers", "bigint", "Deliveries that they were to have; null without `loss`."),
        Column("delivered", "bigint", "Deliveries that happened in time."),
        Column("undelivered", "bigint", "Of `receivers`, those that did not; null without `loss`."),
        Column("dropped", "bigint", "Of `undelivered`, at most: drops that the broker told of; null without `loss`."),
        Column("unacked", "bigint", "Of `delivered`, those never acknowledged in time; null without `completions`."),
        Column("p50_us", "double", "Microseconds from publication to delivery: the median."),
        Column("p95_us", "double", "Its 95th percentile."),
        Column("p99_us", "double", "Its 99th percentile."),
        Column("max_us", "bigint", "The longest."),
        Column("mean_us", "double", "The mean."),
        Column("acked", "bigint", "Acknowledged deliveries."),
        Column("ack_p50_us", "double", "Microseconds from publication to acknowledgement: the median."),
        Column("ack_p95_us", "double", "Its 95th percentile."),
        Column("ack_p99_us", "double", "Its 99th percentile."),
        Column("ack_max_us", "bigint", "The longest."),
    ),
    key=("window_start", *_GROUP),
)
def latency(events: DataFrame, options: LatencyOptions) -> DataFrame:
    """How long messages take from the publisher's PUBLISH to each subscriber, and which never arrive, per window, node,
    topic prefix and QoS.

    A message belongs to the window in which it was published. The id of a message tells when that was, so all that
    happens to it meets in one group and nothing is joined. A delivery counts once for each message and client, at its
    first attempt; one that comes later than `within` counts as never delivered. Messages whose `message.routed` is not
    in the events have latencies, but take no part in the loss. Percentiles are interpolated between neighbours, and
    exact unless approximate ones are asked for.

    A subscriber at QoS 0 never acknowledges what was published at QoS 1, so unacknowledged deliveries are counted only
    where `delivery.completed` is recorded (option `completions`).
    """
    seen = of_messages(events, _kinds(options), options, options.within + options.lateness)
    seen = seen.where((F.col("kind") == "message.routed") | (F.col("latency_us") <= round(options.within * 1e6)))
    return _with_loss(seen, options) if options.loss else _without_loss(seen, options)


def _when(kind: str, value: str = "latency_us") -> Expression:
    return F.when(F.col("kind") == kind, F.col(value))


def _percentiles(column: str, options: LatencyOptions) -> Expression:
    if options.percentiles == "approximate":
        return F.percentile_approx(F.col(column).cast("double"), list(_SHARES), 10_000)
    return F.percentile(column, list(_SHARES), F.col("weight"))


def _times(options: LatencyOptions) -> list[Expression]:
    """Aggregates over rows of `delivery`, `ack` and `weight`."""
    return [
        F.sum(F.when(F.col("delivery").isNotNull(), F.col("weight"))).alias("delivered"),
        F.sum(F.when(F.col("ack").isNotNull(), F.col("weight"))).alias("acked"),
        _percentiles("delivery", options).alias("delivery"),
        _percentiles("ack", options).alias("ack"),
        F.max("delivery").alias("max_us"),
        F.max("ack").alias("ack_max_us"),
        F.sum(F.col("delivery") * F.col("weight")).alias("sum_us"),
    ]


def _with_loss(seen: DataFrame, options: LatencyOptions) -> DataFrame:
    message = by_window(options, *_GROUP, "guid", time="born")
    given_up = (F.col("kind") == "message.dropped") & ~F.col("reason").eqNullSafe("redispatched")
    # what became of a message for one client; the row of its routing has no client
    fates = seen.groupBy(*message, _of_subscriber().alias("client_id")).agg(
        F.max(_when("message.routed", "receivers").cast("bigint")).alias("receivers"),
        F.max("weight").cast("bigint").alias("weight"),
        F.min(_when("message.delivered")).alias("delivery"),
        F.min(_when("message.acked")).alias("ack"),
        F.min(_when("delivery.completed")).alias("completed"),
        F.max(given_up).alias("dropped"),
    )
    delivered = F.col("delivery").isNotNull()
    owed = delivered & (F.col("qos") > 0) & F.col("ack").isNull() & F.col("completed").isNull()
    messages = fates.groupBy("window", *_GROUP, "guid").agg(
        F.max("receivers").alias("receivers"),
        F.max("weight").alias("weight"),
        F.count(F.when(delivered, 1)).alias("reached"),
        F.count(F.when(owed, 1)).alias("unacked"),
        F.count(F.when(F.col("dropped") & ~delivered, 1)).alias("dropped"),
        F.collect_list(F.when(delivered, F.struct("delivery", "ack"))).alias("times"),
    )
    missing = F.greatest(F.col("receivers") - F.col("reached"), F.lit(0))
    routed = F.col("receivers").isNotNull()
    first = F.coalesce("place", F.lit(0)) == 0  # the row of a message that speaks for all of it
    rows = messages.select(
        "window",
        *_GROUP,
        "receivers",
        "weight",
        missing.alias("missing"),
        F.when(routed, F.least("dropped", missing)).alias("dropped"),
        "unacked",
        F.posexplode_outer("times").alias("place", "time"),
    ).select("*", "time.delivery", "time.ack")

    def total(value: str | Expression) -> Expression:
        column = F.col(value) if isinstance(value, str) else value
        return F.coalesce(F.sum(F.when(first, column * F.col("weight"))), F.lit(0))

    results = rows.groupBy("window", *_GROUP).agg(
        total(routed.cast("int")).alias("messages"),
        total("receivers").alias("receivers"),
        total("missing").alias("undelivered"),
        total("dropped").alias("dropped"),
        (total("unacked") if options.completions else F.lit(None).cast("bigint")).alias("unacked"),
        *_times(options),
    )
    return _shown(results.where((F.col("messages") > 0) | F.col("delivered").isNotNull()))


def _of_subscriber() -> Expression:
    """Whose fate an event tells: a drop may name the publisher, when the message is refused before it is routed."""
    return F.when(F.col("kind") != "message.routed", F.col("client_id"))


def _without_loss(seen: DataFrame, options: LatencyOptions) -> DataFrame:
    nothing = F.lit(None).cast("bigint")
    timed = seen.withColumns({"delivery": _when("message.delivered"), "ack": _when("message.acked")})
    results = timed.groupBy(*by_window(options, *_GROUP, time="born")).agg(*_times(options))
    unknown = ("messages", "receivers", "undelivered", "dropped", "unacked")
    return _shown(results.withColumns(dict.fromkeys(unknown, nothing)))


def _shown(results: DataFrame) -> DataFrame:
    names = ("p50_us", "p95_us", "p99_us")
    return results.select(
        *window_bounds(),
        *_GROUP,
        "messages",
        "receivers",
        F.coalesce("delivered", F.lit(0)).alias("delivered"),
        "undelivered",
        "dropped",
        "unacked",
        *[F.col("delivery")[place].alias(name) for place, name in enumerate(names)],
        "max_us",
        (F.col("sum_us") / F.col("delivered")).alias("mean_us"),
        F.coalesce("acked", F.lit(0)).alias("acked"),
        *[F.col("ack")[place].alias(f"ack_{name}") for place, name in enumerate(names)],
        "ack_max_us",
    )
