"""How long connections last and why they end; or how long clients are active at a time."""

from functools import partial
from typing import Final, Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trunkline.analytics.jobs.connections import ConnectionEvent, Connections
from trunkline.analytics.jobs.job import job
from trunkline.analytics.jobs.machines import Machines, microseconds
from trunkline.analytics.jobs.stateful import StatefulOptions, run
from trunkline.analytics.jobs.windows import heard, interval
from trunkline.analytics.options import Positive

_OF_NODES: Final = ("exporter.started", "exporter.stopped", "node.tick")
_ACTIVITY: Final = ("message.publish",)
CONNECTIONS: Final = ("client.connected", "client.disconnected", *_OF_NODES)


class SessionOptions(StatefulOptions):
    by: Literal["connection", "activity"] = "connection"
    """What a session is: a connection, or messages without a longer pause."""
    gap: Positive = 300.0
    """Of activity: seconds without a message that end it; exactly as many do not."""
    node_timeout: Positive = 60.0
    """Seconds without a heartbeat of a node after which its connections count as ended with it."""
    open: bool = True
    """Of recorded events: whether connections that are open at their end have rows."""


@job(
    options=SessionOptions,
    kinds=lambda options: _ACTIVITY if options.by == "activity" else CONNECTIONS,
    columns="""
        client_id string The client.
        began timestamp When it connected, or published its first message. Null: before the record began.
        ended timestamp When it disconnected, or published its last message. Null: it has not.
        duration double Seconds from `began` to `ended`, or to the newest event.
        how string How it ended: `left` (the client sent DISCONNECT), `lost`, `keep_alive` (the client was silent),
          `taken_over`, `kicked`, `shutdown`, `error` (see `reason_code`), `node_killed`, `unrecorded` (the client
          connected again and its end is not known), `open`; of activity `quiet`.
        reason_code int Reason code of the disconnection.
        reason string The broker's words for it.
        node string Node that it was connected to; null of activity, which may be on several.
        username string Its user name.
        peer string Its address.
        listener string Name of its listener.
        protocol int Protocol level: 3, 4 or 5.
        weight int How many such connections the row stands for.
        messages bigint Of activity: messages that it published.
        bytes bigint Of activity: bytes of their payloads.
    """,
    key=("client_id", "node", "began", "ended"),
)
def sessions(events: DataFrame, options: SessionOptions) -> DataFrame:
    """How long connections last, and why they end.

    There is one row for each connection that ended. A node that was killed records no end: its connections ended with
    its last sign of life, which is known when it starts again, or when no heartbeat has come for `node_timeout` seconds
    while others went on. Of recorded events, connections that are open at their end have rows, too. Exact, whatever the
    order in which events come, for all that are at most `lateness` seconds late.

    With `by=activity` one row for each stretch of a client's messages without a pause longer than `gap` seconds.
    """
    if options.by == "activity":
        return _activity(events, options)
    of_node = F.col("kind").isin(*_OF_NODES)
    # Machines are of a bucket of clients and a node, so that all buckets need the events of the node.
    everywhere = F.sequence(F.lit(0), F.lit(options.buckets - 1))
    own = F.array(F.pmod(F.xxhash64("client_id"), F.lit(options.buckets)).cast("int"))
    seen = heard(events, CONNECTIONS, options.lateness).where(of_node | F.col("client_id").isNotNull())
    rows = seen.select(
        "*",
        F.explode(F.when(of_node, everywhere).otherwise(own)).alias("bucket"),
        F.lit("node").alias("scope"),
        F.col("node").alias("subject"),
    )
    machine = partial(Connections, microseconds(options.node_timeout), options.open)
    return run(rows, events, Machines(ConnectionEvent, machine), sessions.columns)


def _activity(events: DataFrame, options: SessionOptions) -> DataFrame:
    return (
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
