"""Runs the jobs of a report over the recorded events of a period."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from trunkline.analytics.jobs.subscriptions import CHANGES
from trunkline.analytics.report import counts, figures, shaping
from trunkline.analytics.report.axes import MAX_POINTS, STEPS, Grid
from trunkline.analytics.report.cutting import cut, falling, rows_of, total, who
from trunkline.analytics.report.findings import USUAL_DROPS
from trunkline.analytics.report.gauges import gauges
from trunkline.analytics.report.reading import Reading, audit, load
from trunkline.analytics.report.results import Alert, Results, Silence
from trunkline.analytics.report.sections.named import names
from trunkline.analytics.report.sections.order import sections
from trunkline.events.layout import is_missing
from trunkline.events.reader import EventLog
from trunkline.events.times import EPOCH, from_microseconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession


#: Seconds over which growth is measured: longer than a reading holds.
_GROWTH: Final = 900.0
#: Seconds without a delivery after which a subscription is dead, or half of a period that is shorter than twice that.
_DEAD: Final = 86_400.0
#: Times that a client goes to another node before it is one that goes to and fro.
_TO_AND_FRO: Final = 4
#: Deliveries of one message that are many.
_MANY: Final = 10
#: Settings of Spark for small logs: to compile a query, and to plan it anew between its stages, takes longer
#: than to run it as it is.
QUICK: Final = {
    "spark.sql.adaptive.enabled": False,
    "spark.sql.codegen.wholeStage": False,
    "spark.sql.shuffle.partitions": 1,
}
#: Rows of a log that is small. Heartbeats hardly count.
_SMALL: Final = 500_000


class NothingRecorded(ValueError):
    """There are no events in the period."""


def period(source: str, since: datetime | None, until: datetime | None) -> tuple[datetime, datetime]:
    """From the first event of a log to the newest, within these bounds.

    Raises:
        NothingRecorded: there are no events.
        LogError: there is no log that can be read.
    """
    begin, end = _recorded(source)
    if (since is not None and since >= end) or (until is not None and until <= begin):
        raise NothingRecorded(f"no events were recorded then; there are some from {begin:%F %T} to {end:%F %T} UTC")
    return max(begin, since or begin), min(end, until or end)


def _recorded(source: str) -> tuple[datetime, datetime]:
    if is_missing(source):
        raise NothingRecorded("there is no such folder")
    log = EventLog(source)
    log.refresh()
    oldest: list[int] = []
    newest: list[int] = []
    for node, extent in log.nodes().items():
        first = next(log.spans(node, extent.first, extent.end), None)
        if first is not None:
            oldest.append(first.min_time)
            newest.append(extent.newest)
    if not oldest:
        raise NothingRecorded("no events were recorded there")
    return from_microseconds(min(oldest)), from_microseconds(max(newest)) + timedelta(microseconds=1)


def is_small(source: str) -> bool:
    """Whether Spark should start fast rather than run fast.

    Raises:
        LogError: there is no log that can be read.
    """
    log = EventLog(source)
    log.refresh()
    spans = (span for node, extent in log.nodes().items() for span in log.spans(node, extent.first, extent.end))
    return sum(span.end - span.first for span in spans if span.size) <= _SMALL


def window(begin: datetime, end: datetime) -> float:
    """Seconds of a window, so that there are no more of them than points of a plot."""
    length = (end - begin).total_seconds()
    # one more, as the first and the last may be cut
    return float(next((step for step in STEPS if length / step <= MAX_POINTS - 1), STEPS[-1]))


def collect(
    spark: SparkSession,
    source: str,
    *,
    now: datetime,
    since: datetime | None = None,
    until: datetime | None = None,
    say: Callable[[str], None] = lambda step: None,
) -> Results:
    """Read the event log at `source` (a folder or a URI), run the jobs, and wait for them. Rows that cannot be read are
    left out, and the audit counts them. `say` is called with each step.

    Raises:
        NothingRecorded: there are no events in the period.
        LogError: there is no log that can be read.
    """
    begin, end = period(source, since, until)
    seconds = window(begin, end)
    first = math.floor((begin - EPOCH).total_seconds() / seconds) * seconds
    results = Results(source=source, made=now, window=seconds, begin=EPOCH + timedelta(seconds=first), end=end)
    found: dict[str, Any] = {}
    former = begin - (end - begin)
    if _recorded(source)[0] <= former:
        say("the period before")
        found["before"] = _before(spark, replace(results, begin=former, end=begin))
    say("audit")
    findings = rows_of(audit(spark, source))
    found["health"] = shaping.health(findings)
    found["lags"] = [row for row in findings if row["check"] == "lag"]
    results = replace(results, **found)
    reading = Reading(spark, results, begin)
    try:
        results = replace(results, **_of_events(reading, results, say))
        say("clients that tables name")
        return replace(results, **_of_clients(reading, results))
    finally:
        reading.close()


def _of_events(reading: Reading, results: Results, say: Callable[[str], None]) -> dict[str, Any]:
    events, seconds, end = reading.events, results.window, results.end
    say("traffic, connections, drops, refusals, latency")
    found, timeline = _headlines(events, seconds)
    found["ends"] = shaping.ends(timeline)
    say("nodes, alarms, gauges")
    found |= shaping.facts(rows_of(reading.facts()), reading.begin, reading.running)
    found["nodes"] = shaping.nodes(timeline, found.pop("versions"), found.pop("starts"))
    grid = Grid(results.begin, end, seconds)
    readings = rows_of(figures.gauges(events, seconds))
    found["gauges"], found["gauge_sums"] = gauges(readings, results.health, grid, end)
    say("top talkers, topics")
    losses = counts.losses(reading.counted)
    most = (falling("messages"), "client_id", "reason")
    found |= cut("losses", losses, most, losers=who("client_id", most), lost=total("messages"))
    biggest = (falling("messages"), falling("bytes"), "name")
    found |= cut("clients", counts.talkers(reading.counted), biggest)
    found["ways"] = rows_of(figures.ways(events))
    found |= _topics(reading, sum(row.deliveries for row in found["ways"] if row.way != "retained"))
    found["sizes"] = rows_of(figures.sizes(events.where("kind = 'message.publish'")))
    say("use")
    for name, column in (("users", "username"), ("listeners", "listener"), ("protocols", "protocol")):
        used = counts.use_by(reading.counted, column)
        found |= cut(name, used, (falling("messages"), falling("connected"), "name"))
    say("the slowest windows")
    windows = reading.run("latency", window=seconds).where("p99_us is not null")
    found |= cut("slow", windows, (falling("p99_us"), "window_start", "prefix", "qos", "node"))
    say("connections, flapping, denials, silent clients")
    found |= _connections(reading)
    found |= _alerts(reading)
    say("queues, slow consumers, subscriptions")
    found |= _queues(reading, losses, end)
    found["queues"] = shaping.held(rows_of(figures.queue_lengths(events, seconds)), results.health)
    if {"message.delivered", "session.subscribed"} <= (found["recorded"] or set()) and not found["narrowed"]:
        found |= _dead(reading, end)
    return found


def _headlines(events: DataFrame, seconds: float) -> tuple[dict[str, Any], list[Row]]:
    """What the totals are sums of; and the timeline, which has more."""
    timeline = rows_of(figures.timeline(events, seconds))
    dropped = [row for row in timeline if row.sort == "dropped"]
    drops = [Row(time=row.time, reason=row.reason or "unknown", messages=row.events) for row in dropped]
    is_lossy = any(row.reason not in USUAL_DROPS for row in drops)
    found = {
        "timeline": shaping.windows(timeline),
        "drops": drops,
        "written": rows_of(figures.written(events))[0].messages if is_lossy else 0,
        "latency": rows_of(figures.delays(events, seconds)),
        **_refusals(events),
    }
    return found, timeline


def _before(spark: SparkSession, period: Results) -> Results:
    """The headlines of a period."""
    kinds = (*figures.HEADLINES, *figures.REFUSAL_KINDS)
    events = load(spark, period.source, kinds, period.begin, period.end, figures.HEADLINE_COLUMNS)
    events.persist(StorageLevel.DISK_ONLY)
    try:
        return replace(period, **_headlines(events, period.window)[0])
    finally:
        events.unpersist()


def _topics(reading: Reading, deliveries: int) -> dict[str, Any]:
    topics = counts.topics(reading.counted).persist(StorageLevel.DISK_ONLY)
    published = topics.where("messages > 0").select("name", "messages", "bytes")
    once = F.count_if(F.col("messages") == 1)
    unheard = reading.run("unheard", reading.counted, subject="topics", window=_whole(reading.end))
    heaviest = (falling("deliveries"), "name")
    is_heavy = (F.col("amplification") >= _MANY) & (F.col("deliveries") * 2 >= deliveries)
    found = {
        **cut("topics", published, (falling("messages"), falling("bytes"), "name"), topics_once=once),
        **cut("branches", counts.branches(published), (falling("names"), falling("topics"), "branch")),
        **cut(
            "unheard",
            unheard.select("topic", F.col("count").alias("messages"), "last"),
            (falling("messages"), "topic"),
        ),
        **cut("fanout", counts.fanout(topics), heaviest, heavy=who("name", heaviest, is_heavy)),
    }
    topics.unpersist()
    return found


def _whole(end: datetime) -> int:
    """Seconds of a window that holds the whole period: windows begin with the epoch."""
    return math.ceil(end.timestamp()) + 1


def _connections(reading: Reading) -> dict[str, Any]:
    found: dict[str, Any] = {"stays": rows_of(figures.stays(reading.connections))}
    if len({key.name for key in reading.running}) > 1:
        movers = figures.movers(reading.run("moves"))
        most = (falling("moves"), "client_id")
        found |= cut("moves", movers, most, movers=who("client_id", most, F.col("moves") >= _TO_AND_FRO))
    return found


def _dead(reading: Reading, end: datetime) -> dict[str, Any]:
    """Of deliveries, the last to each client by each topic is enough."""
    after = min(_DEAD, (end - reading.begin).total_seconds() / 2)
    deliveries = reading.counted.where("kind = 'message.delivered'")
    changes = reading.subscribed.where(F.col("kind").isin(*CHANGES))
    seen = changes.unionByName(deliveries, allowMissingColumns=True).unionByName(
        reading.beats, allowMissingColumns=True
    )
    dead = reading.run("unheard", seen, subject="subscriptions", after=after)
    longest = ("since", "client_id", "filter")
    rows = dead.select("client_id", "filter", "since", "last")
    return {"dead_after": after, **cut("dead", rows, longest, deaf=who("client_id", longest))}


def _of_clients(reading: Reading, results: Results) -> dict[str, Any]:
    """What the clients did that the tables name, of which there are few."""
    clients = names(sections(results))
    if not clients:
        return {}
    done = rows_of(counts.of_clients(reading.counted, clients))
    stayed = rows_of(figures.last_stays(reading.connections, clients))
    return {"named": shaping.clients(clients, done, stayed)}


def _refusals(events: DataFrame) -> dict[str, Any]:
    return cut(
        "denials",
        figures.refusals(events),
        (falling("times"), "client_id", "peer", "action", "topic", "reason_code"),
        shaping.denial,
        denied=total("times"),
        denied_clients=F.count_distinct(F.coalesce("client_id", F.lit(""))),
    )


def _alert(row: Row) -> Alert:
    return Alert(*(row[name] for name in Alert._fields))


def _alerts(reading: Reading) -> dict[str, Any]:
    alerts = figures.alerts(reading.run("flapping").union(reading.run("denials"))).persist(StorageLevel.DISK_ONLY)
    is_flapping = F.col("name") == "flapping"
    guessing = F.col("name").isin("logins", "names")
    oldest, most = ("begin", "name", "scope", "subject"), (falling("events"), "subject", "begin")
    silences = figures.silences(reading.run("silent"), figures.left(reading.events))
    newest = (F.col("end").isNotNull(), "last_seen", "client_id")
    found = {
        **cut("flapping", alerts.where(is_flapping), most, _alert, flapped=who("subject", most)),
        **cut("alerts", alerts.where(~is_flapping), oldest, _alert, guessers=who("subject", most, guessing)),
        **cut(
            "silences",
            silences,
            newest,
            lambda row: Silence(*(row[name] for name in Silence._fields)),
            silent=who("client_id", newest, F.col("end").isNull()),
        ),
    }
    alerts.unpersist()
    return found


def _queues(reading: Reading, losses: DataFrame, end: datetime) -> dict[str, Any]:
    growth = figures.growth(reading.run("queues", window=_GROWTH, slide=_GROWTH / 5), end)
    whose = F.coalesce(F.nullif("client_id", F.lit("")), "node")
    first = (F.col("full_in").isNull(), "full_in", falling("slope"), "node", "client_id", "metric")
    slow = reading.run("slow-consumers", reading.subscribed, window=_whole(end)).where("slow")
    losers = losses.groupBy("client_id").agg(F.lit(True).alias("lost"))
    consumers = slow.join(losers, "client_id", "left").select(
        *slow.columns, (F.col("dropped_slow") + F.col("dropped_full")).alias("dropped"), "lost"
    )
    slowest = (falling("dropped"), falling("unanswered"), falling("ack_p99_us"), "client_id")
    return {
        **cut(
            "growth",
            growth.withColumn("named", F.concat("metric", F.lit(" of "), whose)),
            first,
            full=who("named", first, F.col("full_in") == 0),
            filling=who("named", first, F.col("full_in") > 0),
            full_in=F.min(F.when(F.col("full_in") > 0, F.col("full_in"))),
        ),
        **cut("consumers", consumers, slowest, slow_clients=who("client_id", slowest, F.col("lost").isNull())),
    }
