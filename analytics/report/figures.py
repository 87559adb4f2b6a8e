"""The figures of a report that no job computes: plain sums over recorded events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from trunkline.analytics.jobs.denials import refused_message, refused_subscription
from trunkline.analytics.jobs.queues import ENDS
from trunkline.analytics.jobs.windows import is_live, window
from trunkline.analytics.report.counts import summed
from trunkline.analytics.report.findings import USUAL_DROPS
from trunkline.analytics.report.results import BRIEF, GAUGES, WITHIN
from trunkline.events.times import to_microseconds
from trunkline.mqtt.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from pyspark.sql import DataFrame

#: The kinds of events that are summed, with the names of their sums.
TIMELINE: Final = {
    "message.publish": "published",
    "message.delivered": "delivered",
    "message.dropped": "dropped",
    "client.connected": "connected",
    "client.disconnected": "disconnected",
    "client.connack": "refused",
    "session.terminated": "ended",
    "session.discarded": "ended",
    "session.taken_over": "taken over",
}
#: What is read row by row: there are few.
FACTS: Final = (
    *("alarm.active", "alarm.activated", "alarm.deactivated"),
    *("node.clock", "node.limit", "node.version", "exporter.started", "exporter.records"),
)
REFUSAL_KINDS: Final = ("client.connack", "client.acl_decided", "message.dropped")
#: Beside refusals, what the totals are sums of.
HEADLINES: Final = ("message.publish", "message.delivered", "message.dropped", "client.connected")
HEADLINE_COLUMNS: Final = frozenset(
    (
        *("node", "time", "kind", "weight", "client_id", "peer", "topic", "flags", "size", "publisher", "guid"),
        *("reason", "reason_code", "latency_us", "action", "delivery"),
    )
)
#: The columns that the audit reads.
AUDIT_COLUMNS: Final = (
    "node string, incarnation bigint, seq bigint, time timestamp, kind string, reason string, value double"
)
#: Seconds for which a reading counts if no other comes: the exporter records all of them every ten minutes.
HELD: Final = 700.0
#: Reason codes with which a client itself ends its connection.
IN_ORDER: Final = (Reason.SUCCESS.value, Reason.DISCONNECT_WITH_WILL.value)
#: Bytes of payloads that are told apart.
SIZES: Final = (0, 100, 1000, 10_000, 100_000, 1_000_000)
#: Clients whose queues are drawn.
MAX_QUEUES: Final = 10


def timeline(events: DataFrame, seconds: float) -> DataFrame:
    """Events and bytes of each window by node and sort (the values of `TIMELINE`); of dropped messages and the ends of
    connections and sessions also by reason."""
    kind = F.col("kind")
    wanted = kind.isin(*TIMELINE) & ((kind != "client.connack") | (F.col("reason_code") != 0))
    names = F.create_map(*[F.lit(word) for pair in TIMELINE.items() for word in pair])
    return (
        events.where(wanted)
        .groupBy(
            window(seconds),
            "node",
            names[kind].alias("sort"),
            F.when(kind.isin("message.dropped", "session.terminated"), F.col("reason"))
            .when(kind == "client.disconnected", F.col("reason_code").cast("string"))
            .when(kind == "session.discarded", F.lit("clean start"))
            .alias("reason"),
        )
        .agg(F.sum("weight").alias("events"), F.sum(F.col("weight") * F.coalesce("size", F.lit(0))).alias("bytes"))
        .select(F.col("window.start").alias("time"), "node", "sort", "reason", "events", "bytes")
    )


def findings(audit: DataFrame) -> DataFrame:
    """Those of the audit, the gaps and the like of an incarnation as one."""
    return audit.groupBy("check", "node", "incarnation", "consumer").agg(
        F.sum("rows").alias("rows"),
        F.min("since").alias("since"),
        F.max("until").alias("until"),
        F.max("seconds").alias("seconds"),
        F.max("reason").alias("reason"),
    )


def written(events: DataFrame) -> DataFrame:
    """How many of the messages that were lost had been written to their client, which did not acknowledge them
    (`messages`): they are among the deliveries, too."""
    kind = F.col("kind")
    lost = (kind == "message.dropped") & ~F.coalesce("reason", F.lit("")).isin(*USUAL_DROPS)
    delivered = events.where(kind == "message.delivered").select("client_id", "guid")
    return (
        events.where(lost)
        .select("client_id", "guid", "weight")
        .join(delivered, ["client_id", "guid"], "left_semi")
        .agg(F.coalesce(F.sum("weight"), F.lit(0)).alias("messages"))
    )


def sizes(published: DataFrame) -> DataFrame:
    """Messages and bytes by the least of `SIZES` that they do not exceed (`most`; null where there is none)."""
    fits = [F.when(F.col("size") <= most, F.lit(most)) for most in SIZES]
    return (
        published.where(F.col("size").isNotNull())
        .groupBy(F.coalesce(*fits).alias("most"))
        .agg(
            F.sum("weight").alias("messages"),
            F.sum(F.col("weight") * F.col("size")).alias("bytes"),
            F.max("size").alias("largest"),
        )
        .orderBy(F.asc_nulls_last("most"))
    )


def stays(connections: DataFrame) -> DataFrame:
    """How long connections lasted, by how they ended: half and nine of ten no longer than `p50` and `p90` seconds, the
    longest, and how many were `brief`."""
    ended = F.col("how") != "open"
    at = F.percentile_approx("duration", [0.5, 0.9], 1000)
    return (
        connections.groupBy("how")
        .agg(
            F.sum("weight").alias("connections"),
            at.alias("at"),
            F.max("duration").alias("longest"),
            summed(ended & (F.col("duration") < BRIEF)).alias("brief"),
        )
        .select("how", "connections", F.col("at")[0].alias("p50"), F.col("at")[1].alias("p90"), "longest", "brief")
        .orderBy(F.desc("connections"), "how")
    )


def last_stays(connections: DataFrame, names: Sequence[str]) -> DataFrame:
    """How often and how long each of these clients was connected, and the last time."""
    open_last = F.struct(F.col("ended").isNull(), "ended", "began")
    return (
        connections.where(F.col("client_id").isin(*names))
        .groupBy("client_id")
        .agg(
            F.sum("weight").alias("connections"),
            F.sum(F.col("weight") * F.coalesce("duration", F.lit(0.0))).alias("seconds"),
            F.max_by(F.struct("began", "ended", "how", "node"), open_last).alias("newest"),
        )
        .select("client_id", "connections", "seconds", "newest.*")
    )


def movers(moves: DataFrame) -> DataFrame:
    """How often each client went to another node, how often it was still connected to the former one, when it came last
    and where it is."""
    return moves.groupBy("client_id").agg(
        F.count("*").alias("moves"),
        F.count_if(F.col("how") == "taken_over").alias("taken_over"),
        F.max("time").alias("last"),
        F.max_by("to_node", "time").alias("node"),
    )


def refusals(events: DataFrame) -> DataFrame:
    """Refused connections by reason code, subscriptions and messages, with their number."""
    connection = (F.col("kind") == "client.connack") & (F.col("reason_code") != 0)
    own = F.col("client_id") == F.col("publisher")
    action = F.when(connection, "connect").when(refused_subscription(), "subscribe")
    return (
        events.where(connection | refused_subscription() | refused_message())
        .groupBy(
            "client_id",
            "peer",
            action.when(own, "publish").otherwise("receive").alias("action"),
            F.when(~connection, F.col("topic")).alias("topic"),
            F.when(connection, F.col("reason_code")).alias("reason_code"),
        )
        .agg(F.sum("weight").alias("times"))
    )


def left(events: DataFrame) -> DataFrame:
    """Clients that disconnected in order and have not come back, and when they did (`left`)."""
    last = F.max_by(F.struct("kind", "reason_code", "time"), F.struct("time", "seq")).alias("last")
    connections = events.where(F.col("kind").isin("client.connected", "client.disconnected"))
    in_order = (F.col("last.kind") == "client.disconnected") & F.col("last.reason_code").isin(*IN_ORDER)
    gone = connections.groupBy("client_id").agg(last).where(in_order)
    return gone.select("client_id", F.col("last.time").alias("left"))


def alerts(told: DataFrame) -> DataFrame:
    """Each as one row, from the first event that made it to the last that was too many; `end` is null while it goes on.
    `events` are all of them, so far."""
    newest = F.max_by(F.struct("state", "last", "count"), F.struct("time", "state"))
    one = told.groupBy(F.col("alert").alias("name"), "scope", "subject", "began")
    return one.agg(F.min("since").alias("begin"), newest.alias("newest")).select(
        *("name", "scope", "subject", "begin"),
        F.when(F.col("newest.state") == "end", F.col("newest.last")).alias("end"),
        F.col("newest.count").alias("events"),
    )


def silences(told: DataFrame, left: DataFrame) -> DataFrame:
    """Begin and end of each as one row, but for clients that had `left` in order before they would have been silent."""
    began, ended = (F.max(F.when(F.col("state") == state, F.col("time"))) for state in ("begin", "end"))
    one = told.where("state != 'forgotten'").groupBy("client_id", "last_seen")
    of_each = one.agg(F.max_by("usual", "time").alias("usual"), began.alias("began"), ended.alias("end"))
    stayed = F.col("end").isNotNull() | F.col("left").isNull() | (F.col("left") > F.col("began"))
    return of_each.join(left, "client_id", "left").where(stayed).select("client_id", "last_seen", "usual", "end")


def delays(events: DataFrame, seconds: float) -> DataFrame:
    """Percentiles of the latency of all live deliveries of a window, in microseconds, and how many were so quick. The
    results of the latency job, one for each topic prefix, cannot be summed up to them."""
    shares = [0.5, 0.95, 0.99]
    return (
        events.where("kind = 'message.delivered' and latency_us is not null")
        .where(is_live())
        .groupBy(window(seconds))
        .agg(
            F.sum("weight").alias("deliveries"),
            F.percentile_approx("latency_us", shares, 1000).alias("at"),
            *[summed(F.col("latency_us") <= most).alias(name) for name, most in WITHIN.items()],
        )
        .select(
            F.col("window.start").alias("time"),
            "deliveries",
            *WITHIN,
            *[F.col("at")[place].alias(name) for place, name in enumerate(("p50", "p95", "p99"))],
        )
    )


def ways(events: DataFrame) -> DataFrame:
    """How messages came, with the number of deliveries and the median and the greatest of their ages."""
    return (
        events.where("kind = 'message.delivered'")
        .groupBy(F.coalesce("delivery", F.lit("unknown")).alias("way"))
        .agg(
            F.sum("weight").alias("deliveries"),
            F.percentile_approx("latency_us", 0.5, 1000).alias("p50"),
            F.max("latency_us").alias("oldest"),
        )
        .orderBy(F.desc("deliveries"), "way")
    )


def growth(queues: DataFrame, end: datetime) -> DataFrame:
    """Queues that grow at the end of the period, or will be full: older readings do not show that. What is in flight
    rises to its limit with every burst."""
    last = queues.where((F.unix_micros("window_end") >= F.lit(to_microseconds(end))) & (F.col("metric") != "inflight"))
    newest = last.groupBy("node", F.coalesce("client_id", F.lit("")).alias("client_id"), "metric").agg(
        *[F.min_by(name, "window_end").alias(name) for name in ("last", "slope", "limit", "full_in")]
    )
    return newest.where("slope > 0 or full_in is not null")


def queue_lengths(events: DataFrame, seconds: float) -> DataFrame:
    """The greatest and the last reading of each window (`length`, `last`, and `at` which time that was), of the clients
    with the longest queues. A session that ended has none."""
    ended = F.col("kind").isin(*ENDS)
    readings = events.where(ended | (F.col("kind") == "session.stats")).withColumn(
        "length", F.when(ended, F.lit(0)).otherwise(F.col("queue_length"))
    )
    readings = readings.where(F.col("client_id").isNotNull() & F.col("length").isNotNull())
    top = readings.groupBy("client_id").agg(F.max("length").alias("top")).where("top > 0")
    chosen = top.orderBy(F.desc("top"), "client_id").limit(MAX_QUEUES).select("client_id")
    order = F.struct("time", "incarnation", "seq")
    return (
        readings.join(F.broadcast(chosen), "client_id")
        .groupBy(window(seconds), "node", "client_id")
        .agg(
            F.max("length").alias("length"),
            F.max_by("length", order).alias("last"),
            F.max("time").alias("at"),
        )
        .select(F.col("window.start").alias("time"), "node", "client_id", "length", "last", "at")
    )


def gauges(events: DataFrame, seconds: float) -> DataFrame:
    """The readings of each window, node and gauge: the lowest, the highest, when that was, and the greatest share of
    the limit; the `first_at`, and the `last` with its time and limit. Between these two, each reading holds until the
    next: `held` seconds in all, `summed` up."""
    order = F.struct("time", "incarnation", "seq")
    by_window = Window.partitionBy("window", "node", "name").orderBy("time", "incarnation", "seq")
    until = F.unix_micros(F.lead("time").over(by_window)) - F.unix_micros("time")
    readings = (
        events.where((F.col("kind") == "node.stats") & F.col("name").isin(*GAUGES) & F.col("value").isNotNull())
        .withColumn("window", window(seconds))
        .withColumn("held", F.when(until.isNotNull(), F.least(until / 1e6, F.lit(HELD))).otherwise(0.0))
    )
    return (
        readings.groupBy("window", "node", "name")
        .agg(
            F.min("value").alias("low"),
            F.max("value").alias("high"),
            F.max_by("time", F.struct("value", -F.unix_micros("time"))).alias("high_at"),
            F.max(F.col("value") / F.col("value_limit")).alias("share"),
            F.min("time").alias("first_at"),
            F.max_by("value", order).alias("last"),
            F.max_by("value_limit", order).alias("limit"),
            F.max("time").alias("at"),
            F.sum("held").alias("held"),
            F.sum(F.col("held") * F.col("value")).alias("summed"),
        )
        .select(F.col("window.start").alias("time"), "*")
        .drop("window")
    )
