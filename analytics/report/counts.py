"""Sums over what happened: events that are alike become one, and most tables are made of these few."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from trunkline.analytics.jobs.windows import is_retained

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame

#: The kinds that are counted.
COUNTED: Final = (
    *("message.publish", "message.routed", "message.delivered", "message.dropped"),
    *("client.connected", "client.disconnected", "client.connack"),
)
#: Reasons for which a subscriber loses messages by being slow or away too long.
LOSSES: Final = ("queue_full", "slow_consumer", "overloaded", "qos0_msg")
#: Levels of topics that are looked at for how they spread.
MAX_LEVELS: Final = 16
#: Topics that are told of a client.
MAX_TOPICS: Final = 3


def counted(events: DataFrame) -> DataFrame:
    """Events that are alike as one: its `weight` is the sum of theirs, its `bytes` that of their payloads, and its
    `time` that of the last."""
    kind = F.col("kind")
    nobody = (kind == "message.routed") & (F.col("receivers") == 0)
    return (
        events.where(kind.isin(*COUNTED) & ((kind != "client.connack") | (F.col("reason_code") != 0)))
        .groupBy(
            *("kind", "node", "client_id", "username", "listener", "protocol", "topic", "delivery"),
            F.when(kind == "message.dropped", F.col("reason")).alias("reason"),
            F.when(nobody, F.lit(0)).alias("receivers"),
        )
        .agg(
            F.sum("weight").alias("weight"),
            F.sum(F.col("weight") * F.coalesce("size", F.lit(0))).alias("bytes"),
            F.max("time").alias("time"),
            F.max("incarnation").alias("incarnation"),
            F.max("seq").alias("seq"),
        )
    )


def losses(counted: DataFrame) -> DataFrame:
    """Messages that a subscriber did not get, by client and reason."""
    lost = (F.col("kind") == "message.dropped") & F.col("reason").isin(*LOSSES)
    return (
        counted.where(lost & F.col("client_id").isNotNull())
        .groupBy("client_id", "reason")
        .agg(F.sum("weight").alias("messages"))
    )


def talkers(counted: DataFrame) -> DataFrame:
    """Messages and bytes by client."""
    published = counted.where((F.col("kind") == "message.publish") & F.col("client_id").isNotNull())
    named = published.groupBy(F.col("client_id").alias("name"))
    return named.agg(F.sum("weight").alias("messages"), F.sum("bytes").alias("bytes"))


def topics(counted: DataFrame) -> DataFrame:
    """By topic, the `messages` that were published and their `bytes`; and what these became: of messages that were
    `routed`, the `deliveries` and their bytes, but for those to new subscriptions because a message was retained."""
    published, routed, delivered = (F.col("kind") == f"message.{each}" for each in ("publish", "routed", "delivered"))
    deliveries = delivered & ~is_retained()
    sums = {
        "messages": summed(published),
        "bytes": summed(published, "bytes"),
        "routed": summed(routed),
        "deliveries": summed(deliveries),
        "bytes_out": summed(deliveries, "bytes"),
    }
    return (
        counted.where((published | routed | delivered) & F.col("topic").isNotNull())
        .groupBy(F.col("topic").alias("name"))
        .agg(*(one.alias(name) for name, one in sums.items()))
    )


def fanout(topics: DataFrame) -> DataFrame:
    """Topics that were delivered, without the broker's own, with the deliveries of one message (`amplification`)."""
    amplification = F.col("deliveries") / F.nullif(F.col("routed"), F.lit(0))
    own = F.col("name").startswith("$")
    return topics.where((F.col("deliveries") > 0) & ~own).withColumn("amplification", amplification)


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


def use_by(counted: DataFrame, column: str) -> DataFrame:
    """Connections, and messages and bytes in both directions, by user, listener or protocol."""
    connected, published, delivered = (
        F.col("kind") == kind for kind in ("client.connected", "message.publish", "message.delivered")
    )
    sums = {
        "connected": summed(connected),
        "published": summed(published),
        "published_bytes": summed(published, "bytes"),
        "delivered": summed(delivered),
        "delivered_bytes": summed(delivered, "bytes"),
    }
    found = (
        counted.where(connected | published | delivered)
        .groupBy(F.col(column).alias("name"))
        .agg(*(one.alias(name) for name, one in sums.items()))
    )
    return found.withColumn("messages", F.col("published") + F.col("delivered"))


def of_clients(counted: DataFrame, names: Sequence[str]) -> DataFrame:
    """What each of these clients did, by kind and reason, with the `topics` with most messages."""
    own = counted.where(F.col("client_id").isin(*names))
    by_topic = own.groupBy("client_id", "kind", "reason", "topic").agg(
        F.sum("weight").alias("weight"), F.sum("bytes").alias("bytes"), F.max("time").alias("time")
    )
    first = F.min_by("topic", F.struct(-F.col("weight"), "topic"), MAX_TOPICS)
    return by_topic.groupBy("client_id", "kind", "reason").agg(
        F.sum("weight").alias("events"),
        F.sum("bytes").alias("bytes"),
        F.max("time").alias("last"),
        first.alias("topics"),
    )


def summed(which: Expression, of: str = "weight") -> Expression:
    return F.coalesce(F.sum(F.when(which, F.col(of))), F.lit(0))
