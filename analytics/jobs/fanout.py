"""How many deliveries, and bytes, one publish becomes."""

from typing import Final, Literal

from pydantic import Field
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trunkline.analytics.jobs import filters
from trunkline.analytics.jobs.job import Column, OptionError, Seconds, job
from trunkline.analytics.jobs.messages import MessageOptions, busiest, by_window, of_messages
from trunkline.analytics.jobs.stateful import in_buckets, run, subject
from trunkline.analytics.jobs.subscriptions import CHANGES
from trunkline.analytics.jobs.windows import BOUNDS, heard

_ROUTED: Final = "message.routed"
_DELIVERED: Final = "message.delivered"
_COUNTS: Final = ("messages", "bytes_in", "deliveries", "bytes_out")


class FanoutOptions(MessageOptions):
    by: Literal["topic", "prefix", "filter"] = Field(
        default="topic",
        description="What is counted. Filters are those of the subscriptions that got the deliveries; they can be told of "
        "recorded events, not of a stream.",
    )
    order: Literal["deliveries", "bytes_out"] = Field(default="deliveries", description="What makes a name heavy.")
    k: int = Field(default=10, ge=1, le=1000, description="How many names of each window are told.")
    within: Seconds = Field(
        default=30.0,
        gt=0,
        le=86400,
        description="Seconds after its publication in which a delivery of a message counts.",
    )
    max_subscriptions: int = Field(
        default=10_000, ge=1, description="Subscriptions of one client that are known at once; further ones are not."
    )


@job(
    "fanout",
    options=FanoutOptions,
    kinds=lambda options: (_DELIVERED, *CHANGES) if options.by == "filter" else (_ROUTED, _DELIVERED),
    columns=(
        *BOUNDS,
        Column("rank", "int", "From 1, the heaviest; names that are equally heavy are in the order of the alphabet."),
        Column("name", "string", "The topic, the prefix or the filter."),
        Column("messages", "bigint", "Messages routed; of a filter, different messages that came by it."),
        Column("bytes_in", "bigint", "Bytes of their payloads."),
        Column("receivers", "bigint", "Sessions that they were routed to; null for filters."),
        Column("most_receivers", "int", "Of a single message; null for filters."),
        Column("deliveries", "bigint", "Times that one of them was sent, each repeat included."),
        Column("bytes_out", "bigint", "Bytes of payloads in all deliveries."),
        Column("amplification", "double", "Deliveries per message; null where no message is known."),
        Column(
            "share", "double", "Of all deliveries of the window, or of all bytes where they make the order: 0 to 1."
        ),
        Column("total_messages", "bigint", "Of the whole window, as are the following."),
        Column("total_bytes_in", "bigint", "Bytes."),
        Column("total_deliveries", "bigint", "Deliveries."),
        Column("total_bytes_out", "bigint", "Bytes."),
        Column("names", "bigint", "Distinct names of the whole window."),
    ),
    key=("window_start", "rank"),
)
def fanout(events: DataFrame, options: FanoutOptions) -> DataFrame:
    """What each publish costs on the way out: deliveries and bytes for one message, by topic, topic prefix or filter, the
    heaviest first.

    A message and all of its deliveries count in the window in which it was published, however long they took up to
    `within`; later ones are left out. Counts are exact.

    The broker does not say by which subscription a client got a message, so filters are found again from the
    subscriptions that the events tell of: a delivery counts for each filter of its client that takes the topic. The totals
    count such a delivery once for each filter. What a client subscribed to before the events begin is not known.
    """
    if options.by == "filter":
        if events.isStreaming:
            raise OptionError(["job fanout: by=filter needs recorded events, and these are a stream"])
        counted = _of_filters(events, options)
    else:
        counted = _of_topics(events, options)
    counts = [column for column in _COUNTS if column != options.order]
    best = busiest(counted, (options.order, *reversed(counts)), "name", options.k, _COUNTS)
    told = best.withColumns(
        {
            "amplification": F.when(F.col("messages") > 0, F.col("deliveries") / F.col("messages")),
            "share": F.when(
                F.col(f"total_{options.order}") > 0, F.col(options.order) / F.col(f"total_{options.order}")
            ),
        }
    )
    return told.select(*[column.name for column in fanout.columns])


def _in_time(options: FanoutOptions) -> Expression:
    return F.col("latency_us") <= round(options.within * 1e6)


def _of_topics(events: DataFrame, options: FanoutOptions) -> DataFrame:
    seen = of_messages(events, (_ROUTED, _DELIVERED), options, options.within + options.lateness)
    routed, delivered = F.col("kind") == _ROUTED, F.col("kind") == _DELIVERED
    seen = seen.where(routed | _in_time(options)).withColumn("name", F.col(options.by))

    def total(which: Expression, what: Expression) -> Expression:
        return F.sum(F.when(which, what * F.col("weight")).otherwise(0))

    return seen.groupBy(*by_window(options, "name", time="born")).agg(
        total(routed, F.lit(1)).alias("messages"),
        total(routed, F.col("size")).alias("bytes_in"),
        total(routed, F.col("receivers")).alias("receivers"),
        F.max(F.when(routed, F.col("receivers"))).alias("most_receivers"),
        total(delivered, F.lit(1)).alias("deliveries"),
        total(delivered, F.col("size")).alias("bytes_out"),
    )


def _of_filters(events: DataFrame, options: FanoutOptions) -> DataFrame:
    deliveries = of_messages(events, (_DELIVERED,), options, options.lateness).where(_in_time(options))
    changes = heard(events, CHANGES, options.lateness)
    rows = deliveries.unionByName(changes, allowMissingColumns=True).withColumns(
        {"born_us": F.unix_micros("born"), "message": F.hex("guid")}
    )
    bucketed = in_buckets(rows, 1, subject("client", "client_id"))
    told = run(bucketed, events, filters.ByFilter(options.max_subscriptions), filters.COLUMNS)
    # each message once, however many clients got it by the same filter
    messages = told.groupBy(*by_window(options, "name", "message", time="born")).agg(
        F.max("weight").cast("bigint").alias("messages"),
        F.max(F.col("size") * F.col("weight")).alias("bytes_in"),
        F.sum("weight").alias("deliveries"),
        F.sum(F.col("size") * F.col("weight")).alias("bytes_out"),
    )
    return messages.groupBy("window", "name").agg(
        F.sum("messages").alias("messages"),
        F.sum("bytes_in").alias("bytes_in"),
        F.lit(None).cast("bigint").alias("receivers"),
        F.lit(None).cast("int").alias("most_receivers"),
        F.sum("deliveries").alias("deliveries"),
        F.sum("bytes_out").alias("bytes_out"),
    )
