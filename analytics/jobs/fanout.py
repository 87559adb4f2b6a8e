"""How many deliveries, and bytes, one publish becomes."""

from collections.abc import Iterator
from functools import partial
from typing import Any, Final, Literal, NamedTuple

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trunkline.analytics.jobs.job import job
from trunkline.analytics.jobs.machines import Machine, Machines, Result, Subject
from trunkline.analytics.jobs.stateful import in_buckets, run, subject
from trunkline.analytics.jobs.subscriptions import CHANGES, MADE, Subscriptions
from trunkline.analytics.jobs.windows import MessageOptions, busiest, heard, is_retained, of_messages, window
from trunkline.analytics.options import Count, Limited, OptionError, UpToADay
from trunkline.events.columns import columns

_ROUTED: Final = "message.routed"
_DELIVERED: Final = "message.delivered"
_COUNTS: Final = ("messages", "bytes_in", "deliveries", "bytes_out")


class FanoutOptions(MessageOptions):
    by: Literal["topic", "prefix", "filter"] = "topic"
    """What is counted. Filters are those of the subscriptions that got the deliveries; they need recorded events, not a
    stream."""
    order: Literal["deliveries", "bytes_out"] = "deliveries"
    """What makes a name heavy."""
    k: Limited = 10
    """How many names of each window have rows."""
    within: UpToADay = 30.0
    """Seconds after its publication in which a delivery of a message counts."""
    max_subscriptions: Count = 10_000
    """Subscriptions of one client that are known at once; further ones are not."""


@job(
    options=FanoutOptions,
    kinds=lambda options: (_DELIVERED, *CHANGES) if options.by == "filter" else (_ROUTED, _DELIVERED),
    columns="""
        rank int From 1, the heaviest; equally heavy names are in the order of their characters.
        name string The topic, the prefix or the filter.
        messages bigint Messages routed; of a filter, different messages that came by it.
        bytes_in bigint Bytes of their payloads.
        receivers bigint Sessions that they were routed to; null for filters.
        most_receivers int Of a single message; null for filters.
        deliveries bigint Times that one of them was sent, each repeat included; not those to a new subscription because
          it was retained.
        bytes_out bigint Bytes of payloads in all deliveries.
        amplification double Deliveries per message; null where no message is known.
        share double Of all deliveries of the window, or of all bytes where they make the order: 0 to 1.
        total_messages bigint Of the whole window, as are the following.
        total_bytes_in bigint Bytes.
        total_deliveries bigint Deliveries.
        total_bytes_out bigint Bytes.
        names bigint Distinct names of the whole window.
    """,
    key=("window_start", "rank"),
)
def fanout(events: DataFrame, options: FanoutOptions) -> DataFrame:
    """How many deliveries and bytes one publish becomes, per topic, prefix or filter.

    The heaviest names of each window come first.

    A message and all of its deliveries count in the window in which it was published, however long they took up to
    `within`; later ones are left out. Counts are exact.

    The broker does not record by which subscription a client got a message, so filters are found again from the
    recorded subscriptions: a delivery counts for each filter of its client that matches the topic. The totals count
    such a delivery once for each filter. What a client subscribed to before the events begin is not known, unless they
    begin where recording did.

    Raises:
        OptionError: filters are asked for, of a stream.
    """
    if options.by == "filter" and events.isStreaming:
        raise OptionError("job fanout: by=filter needs recorded events, and these are a stream")
    counted = _of_filters(events, options) if options.by == "filter" else _of_topics(events, options)
    amplification = F.when(F.col("messages") > 0, F.col("deliveries") / F.col("messages"))
    return busiest(counted, options.order, options.k, _COUNTS).withColumn("amplification", amplification)


def _in_time(options: FanoutOptions) -> Expression:
    return (F.col("latency_us") <= round(options.within * 1e6)) & ~is_retained()


def _of_topics(events: DataFrame, options: FanoutOptions) -> DataFrame:
    seen = of_messages(events, (_ROUTED, _DELIVERED), options, options.within + options.lateness)
    routed, delivered = F.col("kind") == _ROUTED, F.col("kind") == _DELIVERED

    def total(which: Expression, what: Expression) -> Expression:
        return F.sum(F.when(which, what * F.col("weight")).otherwise(0))

    names = seen.where(routed | _in_time(options)).withColumn("name", F.col(options.by))
    return names.groupBy(window(options.window, time="born"), "name").agg(
        total(routed, F.lit(1)).alias("messages"),
        total(routed, F.col("size")).alias("bytes_in"),
        total(routed, F.col("receivers")).alias("receivers"),
        F.max(F.when(routed, F.col("receivers"))).alias("most_receivers"),
        total(delivered, F.lit(1)).alias("deliveries"),
        total(delivered, F.col("size")).alias("bytes_out"),
    )


class DeliveryEvent(NamedTuple):
    """A change of a client's subscriptions, or a delivery to it."""

    at: int
    node: str
    incarnation: int
    seq: int
    kind: str
    filter: str | None
    topic: str | None
    born_us: int
    message: str | None
    weight: int
    size: int | None


class ByFilter(Machine[DeliveryEvent]):
    """The subscriptions of one client. A delivery belongs to each whose filter matches its topic, since the broker
    sends a message once where several do."""

    columns: Final = columns(
        """
        born timestamp When the message was published.
        name string The filter.
        message string Id of the message.
        weight int How many messages the row stands for.
        size bigint Bytes of the payload.
        """
    )

    def __init__(self, limit: int, subject: Subject) -> None:
        self._filters = Subscriptions[str](limit)

    def event(self, event: DeliveryEvent) -> Iterator[Result]:
        if event.kind == _DELIVERED:
            about: dict[str, Any] = {"message": event.message, "weight": event.weight, "size": event.size}
            for name in self._filters.matching(event.topic or ""):
                yield about | {"born": event.born_us, "name": name}
        elif event.kind in MADE:
            self._filters.put(event.filter or "", event.filter or "")
        else:
            self._filters.remove(event.kind, event.filter)


def _of_filters(events: DataFrame, options: FanoutOptions) -> DataFrame:
    deliveries = of_messages(events, (_DELIVERED,), options, options.lateness).where(_in_time(options))
    changes = heard(events, CHANGES, options.lateness)
    rows = deliveries.unionByName(changes, allowMissingColumns=True).withColumns(
        {"born_us": F.unix_micros("born"), "message": F.hex("guid")}
    )
    bucketed = in_buckets(rows, 1, subject("client", "client_id"))
    found = run(
        bucketed, events, Machines(DeliveryEvent, partial(ByFilter, options.max_subscriptions)), ByFilter.columns
    )
    # each message once, however many clients got it by the same filter
    messages = found.groupBy(window(options.window, time="born"), "name", "message").agg(
        F.max("weight").cast("bigint").alias("messages"),
        F.max(F.col("size") * F.col("weight")).alias("bytes_in"),
        F.sum("weight").alias("deliveries"),
        F.sum(F.col("size") * F.col("weight")).alias("bytes_out"),
    )
    return messages.groupBy("window", "name").agg(*(F.sum(name).alias(name) for name in _COUNTS))
