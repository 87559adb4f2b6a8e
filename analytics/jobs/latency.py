"""Delivery latency and loss, with no join: each event of a message says when the message was published."""

from typing import Literal

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trunkline.analytics.jobs.job import job
from trunkline.analytics.jobs.windows import MessageOptions, is_live, is_retained, of_messages, window
from trunkline.analytics.options import UpToADay

_SHARES = {"p50_us": 0.5, "p95_us": 0.95, "p99_us": 0.99}
_GROUP = ("node", "prefix", "qos")


class LatencyOptions(MessageOptions):
    within: UpToADay = 30.0
    """Seconds after its publication in which a delivery or an acknowledgement counts; what comes later counts as
    never."""
    loss: bool = True
    """Whether to look for deliveries and acknowledgements that never came. It keeps a row of state for each delivery
    until its window closes; without it, messages that are sent twice count twice."""
    completions: bool = False
    """Whether `delivery.completed` is recorded, which distinguishes a subscriber at QoS 0 from one that owes an
    acknowledgement. Without it `unacked` is null."""
    percentiles: Literal["exact", "approximate"] = "exact"
    """Approximate ones are within 1/10,000 of the rank, take less memory, and do not heed the weight of sampled
    events."""


def _kinds(options: LatencyOptions) -> tuple[str, ...]:
    timed = ("message.delivered", "message.acked")
    fates = ("message.routed", "message.dropped") if options.loss else ()
    return (*timed, *fates, *(("delivery.completed",) if options.loss and options.completions else ()))


@job(
    options=LatencyOptions,
    kinds=_kinds,
    columns="""
        node string The node that delivered.
        prefix string The first levels of the topics.
        qos int As the publisher sent them.
        messages bigint Messages that were routed; null without `loss`.
        receivers bigint Deliveries that they were to have; null without `loss`.
        delivered bigint Deliveries that happened in time.
        waited bigint Of `delivered`, those that waited in a queue or were only sent again: they are not in the times.
        undelivered bigint Of `receivers`, those that did not; null without `loss`.
        dropped bigint Of `undelivered`, at most: drops that the broker recorded; null without `loss`.
        unacked bigint Of `delivered`, those never acknowledged in time; null without `completions`.
        p50_us double Microseconds from publication to delivery, of those that did not wait: the median.
        p95_us double Its 95th percentile.
        p99_us double Its 99th percentile.
        max_us bigint The longest.
        mean_us double The mean.
        acked bigint Acknowledged deliveries.
        ack_p50_us double Microseconds from publication to acknowledgement: the median.
        ack_p95_us double Its 95th percentile.
        ack_p99_us double Its 99th percentile.
        ack_max_us bigint The longest.
    """,
    key=("window_start", *_GROUP),
)
def latency(events: DataFrame, options: LatencyOptions) -> DataFrame:
    """How long deliveries take, and which never came, per window.

    Times are from the publisher's PUBLISH to each subscriber, per window, node, topic prefix and QoS.

    A message belongs to the window in which it was published. Its id says when that was, so all that happens to it
    meets in one group and nothing is joined. A delivery counts once for each message and client, at its first attempt;
    one that comes later than `within` counts as never delivered. What a new subscription got because it was retained is
    left out, and what waited for its client is delivered, but has no latency. Messages whose `message.routed` is not in
    the events have latencies, but take no part in the loss. Percentiles are interpolated between neighbours, and exact
    unless approximate ones are asked for.

    A subscriber at QoS 0 never acknowledges what was published at QoS 1, so unacknowledged deliveries are counted only
    where `delivery.completed` is recorded (option `completions`).
    """
    seen = of_messages(events, _kinds(options), options, options.within + options.lateness)
    seen = seen.where((F.col("kind") == "message.routed") | (F.col("latency_us") <= round(options.within * 1e6)))
    seen = seen.where(~is_retained()).withColumns({"came": _of("message.delivered"), "ack": _of("message.acked")})
    seen = seen.withColumn("live", F.when(is_live(), F.col("came")))
    by_window = window(options.window, time="born")
    if options.loss:
        results = _with_loss(seen, by_window, options)
    else:
        results = seen.withColumn("timed_ack", F.col("ack")).groupBy(by_window, *_GROUP).agg(*_times(options))
    percentiles = {
        f"{prefix}{name}": F.col(times)[place]
        for prefix, times in (("", "times"), ("ack_", "ack_times"))
        for place, name in enumerate(_SHARES)
    }
    return results.withColumns(
        percentiles
        | {"mean_us": F.col("sum_us") / F.nullif(F.col("delivered") - F.col("waited"), F.lit(0))}
        | {name: F.coalesce(name, F.lit(0)) for name in ("delivered", "waited", "acked")}
    )


def _of(kind: str, value: str = "latency_us") -> Expression:
    return F.when(F.col("kind") == kind, F.col(value))


def _times(options: LatencyOptions) -> list[Expression]:
    """Aggregates over rows of `came`, `live`, `ack`, `timed_ack` and `weight`."""

    def total(which: Expression) -> Expression:
        return F.sum(F.when(which, F.col("weight")).otherwise(0))

    def percentiles(column: str) -> Expression:
        shares = list(_SHARES.values())
        if options.percentiles == "approximate":
            return F.percentile_approx(F.col(column).cast("double"), shares, 10_000)
        return F.percentile(column, shares, F.col("weight"))

    return [
        total(F.col("came").isNotNull()).alias("delivered"),
        total(F.col("came").isNotNull() & F.col("live").isNull()).alias("waited"),
        total(F.col("ack").isNotNull()).alias("acked"),
        percentiles("live").alias("times"),
        percentiles("timed_ack").alias("ack_times"),
        F.max("live").alias("max_us"),
        F.max("timed_ack").alias("ack_max_us"),
        F.sum(F.col("live") * F.col("weight")).alias("sum_us"),
    ]


def _with_loss(seen: DataFrame, by_window: Expression, options: LatencyOptions) -> DataFrame:
    given_up = (F.col("kind") == "message.dropped") & ~F.col("reason").eqNullSafe("redispatched")
    # A drop may name the publisher, when the message is refused before it is routed; its routing has no client.
    subscriber = F.when(F.col("kind") != "message.routed", F.col("client_id")).alias("client_id")
    # what became of a message for one client
    fates = seen.groupBy(by_window, *_GROUP, "guid", subscriber).agg(
        F.max(_of("message.routed", "receivers").cast("bigint")).alias("receivers"),
        F.max("weight").cast("bigint").alias("weight"),
        F.min("came").alias("came"),
        F.min("live").alias("live"),
        F.min("ack").alias("ack"),
        F.min(_of("delivery.completed")).alias("completed"),
        F.max(given_up).alias("dropped"),
    )
    delivered = F.col("came").isNotNull()
    owed = delivered & (F.col("qos") > 0) & F.col("ack").isNull() & F.col("completed").isNull()
    messages = fates.groupBy("window", *_GROUP, "guid").agg(
        F.max("receivers").alias("receivers"),
        F.max("weight").alias("weight"),
        F.count(F.when(delivered, 1)).alias("reached"),
        F.count(F.when(owed, 1)).alias("unacked"),
        F.count(F.when(F.col("dropped") & ~delivered, 1)).alias("dropped"),
        F.collect_list(F.when(delivered, F.struct("came", "live", "ack"))).alias("times"),
    )
    missing = F.greatest(F.col("receivers") - F.col("reached"), F.lit(0))
    routed = F.col("receivers").isNotNull()
    rows = messages.select(
        "window",
        *_GROUP,
        "receivers",
        "weight",
        "unacked",
        routed.cast("int").alias("messages"),
        missing.alias("undelivered"),
        F.when(routed, F.least("dropped", missing)).alias("dropped"),
        F.posexplode_outer("times").alias("place", "time"),
    ).select("*", "time.*", F.when(F.col("time.live").isNotNull(), F.col("time.ack")).alias("timed_ack"))
    first = F.coalesce("place", F.lit(0)) == 0  # the row of a message that speaks for all of it
    counts = ("messages", "receivers", "undelivered", "dropped", *(["unacked"] if options.completions else []))
    results = rows.groupBy("window", *_GROUP).agg(
        *(F.coalesce(F.sum(F.when(first, F.col(name) * F.col("weight"))), F.lit(0)).alias(name) for name in counts),
        *_times(options),
    )
    return results.where((F.col("messages") > 0) | (F.col("delivered") > 0))
