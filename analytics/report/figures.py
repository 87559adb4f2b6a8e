"""The figures of a report that no job computes: plain sums over recorded events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from trunkline.analytics.jobs.denials import refused_message, refused_subscription
from trunkline.analytics.jobs.queues import ENDS
from trunkline.analytics.jobs.windows import is_live, window
from trunkline.analytics.report.results import WITHIN
from trunkline.events.times import to_microseconds
from trunkline.mqtt.reasons import Reason

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import Column as Expression
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
#: Reasons for which a subscriber loses messages by being slow or away too long.
LOSSES: Final = ("queue_full", "slow_consumer", "overloaded", "qos0_msg")
REFUSAL_KINDS: Final = ("client.connack", "client.acl_decided", "message.dropped")
#: Beside refusals, what the totals are sums of.
HEADLINES: Final = ("message.publish", "message.delivered", "message.dropped", "client.connected")
HEADLINE_COLUMNS: Final = frozenset(
    (
        *("node", "time", "kind", "weight", "client_id", "peer", "topic", "flags", "size", "publisher"),
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
#: Levels of topics that are looked at for how they spread.
MAX_LEVELS: Final = 16
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


def losses(events: DataFrame) -> DataFrame:
    """Messages that a subscriber did not get, by client and reason."""
    lost = (F.col("kind") == "message.dropped") & F.col("reason").isin(*LOSSES)
    return (
        events.where(lost & F.col("client_id").isNotNull())
        .groupBy("client_id", "reason")
        .agg(F.sum("weight").alias("messages"))
    )


def talkers(published: DataFrame, column: str) -> DataFrame:
    """Messages and bytes by topic, or by client."""
    named = published.where(F.col(column).isNotNull()).groupBy(F.col(column).alias("name"))
    return named.agg(F.sum("weight").alias("messages"), F.sum(F.col("weight") * F.col("size")).alias("bytes"))


def use(events: DataFrame) -> DataFrame:
    """Connections, and messages and bytes in both directions, by user, listener and protocol at once."""
    connected, published, delivered = (
        F.col("kind") == kind for kind in ("client.connected", "message.publish", "message.delivered")
    )
    sums = {
        "connected": _total(connected),
        "published": _total(published),
        "published_bytes": _total(published, "size"),
        "delivered": _total(delivered),
        "delivered_bytes": _total(delivered, "size"),
    }
    return (
        events.where(connected | published | delivered)
        .groupBy("username", "listener", "protocol")
        .agg(*(one.alias(name) for name, one in sums.items()))
    )


def use_by(used: DataFrame, column: str) -> DataFrame:
    """`used` by one of them."""
    sums = ("connected", "published", "published_bytes", "delivered", "delivered_bytes")
    found = used.groupBy(F.col(column).alias("name")).agg(*(F.sum(name).alias(name) for name in sums))
    return found.withColumn("messages", F.col("published") + F.col("delivered"))


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


def branches(topics: DataFrame) -> DataFrame:
    """Where several names follow the same first levels: how many `names`, and how many `topics` these have."""
    depths = F.explode(F.sequence(F.lit(1), F.least(F.size(F.split("name", "/")), F.lit(MAX_LEVELS))))
    level = topics.select("name", depths.alias("depth"))
    first = F.expr("substring_index(name, '/', depth - 1)")
    own = F.substring_index(F.expr("substring_index(name, '/', depth)"), "/", -1)
    return (
        level.groupBy("depth", F.when(F.col("depth") > 1, F.concat(first, F.lit("/"))).otherwise("").alias("above"))
        .agg(F.count_distinct(own).alias("names"), F.count("*").alias("topics"))
        .where("names > 1")
        .select(F.concat("above", F.lit("+")).alias("branch"), "names", "topics")
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
    """Begin and end of each as one row: `end` is null while it goes on, and `events` are all of one that ended."""
    is_end = F.col("state") == "end"
    return told.groupBy(F.col("alert").alias("name"), "scope", "subject", F.col("began").alias("begin")).agg(
        F.max(F.when(is_end, F.col("time"))).alias("end"), F.max_by("count", is_end).alias("events")
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
            *[_total(F.col("latency_us") <= most).alias(name) for name, most in WITHIN.items()],
        )
        .select(
            F.col("window.start").alias("time"),
            "deliveries",
            *WITHIN,
            *[F.col("at")[place].alias(name) for place, name in enumerate(("p50", "p95", "p99"))],
        )
    )


def _total(which: Expression, of: str | None = None) -> Expression:
    """The number of events, or the sum of a column."""
    each = F.col("weight") if of is None else F.col("weight") * F.col(of)
    return F.coalesce(F.sum(F.when(which, each)), F.lit(0))


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
