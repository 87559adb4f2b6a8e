"""How long connections last and why they end; or how long clients are active at a time."""

from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

from pydantic import Field
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trunkline.analytics.jobs.connections import Connections, Seen
from trunkline.analytics.jobs.job import Column, Seconds, job
from trunkline.analytics.jobs.machines import Machine, Subject, microseconds
from trunkline.analytics.jobs.stateful import StatefulOptions, run
from trunkline.analytics.jobs.windows import heard, interval

_OF_CLIENTS: Final = ("client.connected", "client.disconnected")
_OF_NODES: Final = ("exporter.started", "exporter.stopped", "node.tick")
_ACTIVITY: Final = ("message.publish",)
CONNECTIONS: Final = (*_OF_CLIENTS, *_OF_NODES)
_COLUMNS: Final = (
    Column("client_id", "string", "The client."),
    Column("began", "timestamp", "When it connected, or published its first message. Null: before the record began."),
    Column("ended", "timestamp", "When it disconnected, or published its last message. Null: it has not."),
    Column("duration", "double", "Seconds from `began` to `ended`, or to the newest event."),
    Column(
        "how",
        "string",
        "How it ended: `left` (the client said so), `lost`, `keep_alive` (nothing was heard of it), `taken_over`, "
        "`kicked`, `shutdown`, `error` (see `reason_code`), `node_killed`, `unrecorded` (the client connected again and "
        "its end is not known), `open`; of activity `quiet`.",
    ),
    Column("reason_code", "int", "Reason code of the disconnection."),
    Column("reason", "string", "What the broker says of it."),
    Column("node", "string", "Node that it was connected to; null of activity, which may be on several."),
    Column("username", "string", "Its user name."),
    Column("peer", "string", "Its address."),
    Column("listener", "string", "Name of the listener that it came in by."),
    Column("protocol", "int", "Protocol level: 3, 4 or 5."),
    Column("weight", "int", "How many such connections the row stands for."),
    Column("messages", "bigint", "Of activity: messages that it published."),
    Column("bytes", "bigint", "Of activity: bytes of their payloads."),
)


class SessionOptions(StatefulOptions):
    by: Literal["connection", "activity"] = Field(
        default="connection", description="What a session is: a connection, or messages without a longer pause."
    )
    gap: Seconds = Field(
        default=300.0, gt=0, description="Of activity: seconds without a message that end it; exactly as many do not."
    )
    node_timeout: Seconds = Field(
        default=60.0,
        gt=0,
        description="Seconds without a heartbeat of a node after which its connections count as ended with it.",
    )
    open: bool = Field(
        default=True, description="Of recorded events: tell also of connections that are open at their end."
    )


@dataclass(frozen=True)
class Sessions:
    """The machines of the job: one for all connections of a bucket of clients to a node."""

    event: ClassVar[type[Seen]] = Seen
    options: SessionOptions

    def machine(self, subject: Subject, saved: list[Any] | None) -> Machine[Seen]:
        return Connections(subject[1], microseconds(self.options.node_timeout), self.options.open, saved)


@job(
    "sessions",
    options=SessionOptions,
    kinds=lambda options: _ACTIVITY if options.by == "activity" else CONNECTIONS,
    columns=_COLUMNS,
    key=("client_id", "node", "began", "ended"),
    times=("began", "ended"),
)
def sessions(events: DataFrame, options: SessionOptions) -> DataFrame:
    """One row for each connection that ended, with its length and how it ended. A node that was killed tells of no end:
    its connections ended with its last sign of life, which is known when it starts again, or when no heartbeat has come
    for `node_timeout` seconds while others went on. Of recorded events, connections that are open at their end have rows,
    too. Exact, whatever the order in which events come, for all that are at most `lateness` seconds late.

    With `by=activity` one row for each stretch of a client's messages without a pause longer than `gap` seconds.
    """
    if options.by == "activity":
        return _activity(events, options)
    of_node = F.col("kind").isin(*_OF_NODES)
    seen = heard(events, CONNECTIONS, options.lateness)
    # The connections of a node are in all buckets, so each of these must hear of the node.
    everywhere = F.sequence(F.lit(0), F.lit(options.buckets - 1))
    own = F.array(F.pmod(F.xxhash64("client_id"), F.lit(options.buckets)).cast("int"))
    rows = seen.where(of_node | F.col("client_id").isNotNull()).select(
        "*",
        F.explode(F.when(of_node, everywhere).otherwise(own)).alias("bucket"),
        F.lit("node").alias("scope"),
        F.col("node").alias("subject"),
    )
    return run(rows, events, Sessions(options), _COLUMNS)


def _activity(events: DataFrame, options: SessionOptions) -> DataFrame:
    found = (
        heard(events, _ACTIVITY, options.lateness)
        .where(F.col("client_id").isNotNull())
        .groupBy("client_id", F.session_window("time", interval(options.gap)).alias("session"))
        .agg(
            F.max("username").alias("username"),
            F.sum("weight").alias("messages"),
            F.sum(F.col("weight") * F.col("size")).alias("bytes"),
        )
        .withColumn("began", F.col("session.start"))
        .withColumn("ended", F.col("session.end") - F.expr(f"INTERVAL {interval(options.gap)}"))
        .withColumn("duration", (F.unix_micros("ended") - F.unix_micros("began")) / 1_000_000)
        .withColumn("how", F.lit("quiet"))
    )
    return found.select(
        *(
            (F.col(column.name) if column.name in found.columns else F.lit(None)).cast(column.type).alias(column.name)
            for column in _COLUMNS
        )
    )
