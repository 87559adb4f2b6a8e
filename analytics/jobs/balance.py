"""How evenly the nodes of a cluster carry the load."""

from typing import Annotated, Final

from pydantic import Field, field_validator
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trunkline.analytics.jobs.job import CLOCK, Options, job
from trunkline.analytics.jobs.windows import heard, window
from trunkline.analytics.options import Names, Positive
from trunkline.mqtt.reasons import Reason

#: What is counted, by the kind of event that counts for it.
COUNTED: Final = {
    "messages_in": "message.publish",
    "messages_out": "message.delivered",
    "connects": "client.connected",
    "disconnects": "client.disconnected",
    # not session.taken_over, which a clean start goes without
    "takeovers": "client.disconnected",
    "drops": "message.dropped",
}
#: Payload bytes, by the kind of event that has them.
BYTES: Final = {"bytes_in": "message.publish", "bytes_out": "message.delivered"}
#: Metrics of a node: the last reading in the window counts.
READ: Final = {"connections": "connections.count", "sessions": "sessions.count"}
_KINDS: Final = COUNTED | BYTES | dict.fromkeys(READ, "node.stats")


class BalanceOptions(Options):
    window: Positive = 60.0
    """Seconds of one window."""
    loads: Annotated[Names, Field(min_length=1)] = tuple(_KINDS)
    """The loads to compare."""
    nodes: Names = ()
    """Nodes that there should be: one without any event in a window counts with 0 there."""

    @field_validator("loads")
    @classmethod
    def _known(cls, loads: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := [load for load in loads if load not in _KINDS]:
            raise ValueError(f"there is no load {unknown[0]!r}, only {', '.join(_KINDS)}")
        return loads


def _amount(load: str) -> Expression:
    """How much of a load a node has, over its events."""
    of_kind = F.col("kind") == _KINDS[load]
    if load == "takeovers":
        of_kind &= F.col("reason_code") == Reason.SESSION_TAKEN_OVER.value
    if load in READ:
        reading = F.when(of_kind & (F.col("name") == READ[load]), F.col("value"))
        return F.max_by(reading, F.when(reading.isNotNull(), F.struct("time", "incarnation", "seq")))
    amount = F.col("weight") * F.col("size") if load in BYTES else F.col("weight")
    return F.coalesce(F.sum(F.when(of_kind, amount)).cast("double"), F.lit(0.0))


def _kinds(options: BalanceOptions) -> tuple[str, ...]:
    """The clock's too, for it shows that an idle node is there."""
    return tuple(dict.fromkeys((*(_KINDS[load] for load in options.loads), CLOCK)))


@job(
    options=BalanceOptions,
    kinds=_kinds,
    columns="""
        load string What is measured.
        node string The node.
        value double How much of it the node has: events, bytes, or the last reading.
        share double The node's part of what all have, 0 to 1; null when nobody has any.
        nodes int Nodes that are compared.
        mean double Mean of the nodes.
        skew double The largest value over the mean: 1 is even; null when nobody has any.
        variation double Standard deviation over the mean: 0 is even; null when nobody has any.
    """,
    key=("window_start", "load", "node"),
)
def balance(events: DataFrame, options: BalanceOptions) -> DataFrame:
    """How evenly the nodes carry the load.

    A node is there when it wrote any event that counts, or `node.tick`; what it did not do then counts as 0. Readings
    count where there is one: a node without is left out of that load. Sampled events count by their weight.
    """
    seen = heard(events, _kinds(options), options.lateness)
    by_node = seen.groupBy(window(options.window), "node").agg(*(_amount(load).alias(load) for load in options.loads))
    amounts = F.array(*(F.struct(F.lit(load).alias("load"), F.col(load).alias("value")) for load in options.loads))
    by_load = by_node.select("window", "node", F.inline(amounts)).where("value is not null")
    # a second grouping, since streams cannot look from a row to the others of its window
    compared = by_load.groupBy("window", "load").agg(
        F.collect_list(F.struct("node", "value")).alias("here"),
        F.count("value").alias("count"),
        F.avg("value").alias("average"),
        F.var_pop("value").alias("variance"),
        F.max("value").alias("largest"),
    )
    rows = _with_missing(compared, options.nodes).select("*", F.inline("here"))
    return rows.withColumns(
        {
            "share": _over("value", F.col("mean") * F.col("nodes")),
            "skew": _over("largest", F.col("mean")),
            "variation": _over("deviation", F.col("mean")),
        }
    )


def _with_missing(compared: DataFrame, expected: tuple[str, ...]) -> DataFrame:
    """With the nodes that should be there and are not, as zeros; a reading that nobody made is not 0."""
    names = F.transform("here", lambda one: one["node"])
    nobody = F.array().cast("array<string>")
    lacking = F.array_except(F.array(*map(F.lit, expected)), names) if expected else nobody
    missing = F.when(~F.col("load").isin(*READ), lacking).otherwise(nobody)
    zeros = F.transform("missing", lambda name: F.struct(name.alias("node"), F.lit(0.0).alias("value")))
    count, zero_count, nodes = F.col("count"), F.size("missing"), F.col("nodes")
    # what zeros add to the squares of differences from the mean
    added = F.col("average") * F.col("average") * count * zero_count / nodes
    return (
        compared.withColumn("missing", missing)
        .withColumn("nodes", (count + zero_count).cast("int"))
        .withColumn("here", F.concat("here", zeros))
        .withColumn("mean", F.col("average") * count / nodes)
        .withColumn("deviation", F.sqrt((F.col("variance") * count + added) / nodes))
    )


def _over(part: str, whole: Expression) -> Expression:
    return F.when(whole != 0, F.col(part) / whole)
