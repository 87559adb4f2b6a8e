"""The busiest topics, tenants and clients of each window."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trunkline.analytics.jobs.job import job
from trunkline.analytics.jobs.windows import MessageOptions, busiest, of_messages, window
from trunkline.analytics.options import Limited

_KINDS = {"published": "message.routed", "delivered": "message.delivered"}
#: The client that sends, or the client that gets.
_CLIENTS = {"published": "publisher", "delivered": "client_id"}


class TrafficOptions(MessageOptions):
    by: Literal["topic", "prefix", "client"] = "topic"
    """What is counted."""
    count: Literal["published", "delivered"] = "published"
    """Messages that came in and were routed, where a client is their publisher; or deliveries, where it is their
    subscriber."""
    order: Literal["messages", "bytes"] = "messages"
    """What makes a name busy."""
    k: Limited = 10
    """How many names of each window have rows."""
    method: Literal["exact", "sketch"] = "exact"
    """Exact counts keep a row of state for each name and client of an open window. Sketches keep a fixed size: they
    count messages alone, and above `sketch_items` names within a bound."""
    sketch_items: Annotated[int, Field(ge=2, le=1_000_000)] = 10_000
    """Names that a sketch holds at a time; with fewer names in a window it counts exactly."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.method == "sketch":
            if self.order == "bytes":
                raise ValueError("a sketch counts messages, so it does not go with order=bytes")
            if self.sketch_items < self.k:
                raise ValueError("sketch_items must be at least k")
        return self


@job(
    options=TrafficOptions,
    kinds=lambda options: (_KINDS[options.count],),
    columns="""
        rank int From 1; equally busy names are in the order of their characters.
        name string The topic, the prefix or the client.
        messages bigint Messages, or deliveries.
        bytes bigint Bytes of their payloads; null with sketches.
        share double Of all messages of the window, or of its bytes where they make the order: 0 to 1.
        clients bigint Distinct publishers, or subscribers, of that name; null with sketches.
        total_messages bigint Messages of the whole window.
        total_bytes bigint Bytes of the whole window.
        names bigint Distinct names of the whole window; an estimate with sketches.
    """,
    key=("window_start", "rank"),
)
def traffic(events: DataFrame, options: TrafficOptions) -> DataFrame:
    """The busiest topics, topic prefixes or clients of each window.

    By messages or bytes, with their share of the whole and how many different clients are behind them. How many clients
    there were in all is `names` when counting by client.

    Messages count in the window in which they happened. All counts are exact, in a stream as well, unless sketches are
    asked for: these hold any number of topics in a fixed size, and have messages but no bytes. A sampled event counts
    as often as its weight says.
    """
    client = _CLIENTS[options.count]
    name = {"topic": "topic", "prefix": "prefix", "client": client}[options.by]
    seen = of_messages(events, (_KINDS[options.count],), options, options.lateness, time="time")
    seen = seen.select("time", F.col(name).alias("name"), F.col(client).alias("client"), "weight", "size")
    seen = seen.where(F.col("name").isNotNull())
    return _sketched(seen, options) if options.method == "sketch" else _counted(seen, options)


def _counted(seen: DataFrame, options: TrafficOptions) -> DataFrame:
    of_clients = seen.groupBy(window(options.window), "name", "client").agg(
        F.sum("weight").alias("messages"), F.sum(F.col("weight") * F.col("size")).alias("bytes")
    )
    # the broker itself has no name
    someone = F.when(F.col("client") != "", 1)
    of_names = of_clients.groupBy("window", "name").agg(
        F.sum("messages").alias("messages"), F.sum("bytes").alias("bytes"), F.count(someone).alias("clients")
    )
    return busiest(of_names, options.order, options.k, ("messages", "bytes"))


def _sketched(seen: DataFrame, options: TrafficOptions) -> DataFrame:
    # sketches know no weights
    each = seen.withColumn("weight", F.explode(F.sequence(F.lit(1), "weight")))
    sketches = each.groupBy(window(options.window)).agg(
        F.expr(f"approx_top_k(name, {options.k}, {options.sketch_items})").alias("best"),
        F.count("*").alias("total_messages"),
        F.sum("size").alias("total_bytes"),
        F.hll_sketch_estimate(F.hll_sketch_agg("name")).alias("names"),
    )
    ranked = F.array_sort(
        F.transform("best", lambda one: F.struct((-one["count"]).alias("less"), one["item"].alias("name")))
    )
    rows = sketches.select("*", F.posexplode(ranked).alias("place", "row")).select("*", "row.name")
    return rows.withColumns({"rank": F.col("place") + 1, "messages": -F.col("row.less")}).withColumn(
        "share", F.col("messages") / F.col("total_messages")
    )
