"""Runs the jobs of a report over the recorded events of a period."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from trunkline.analytics.jobs.catalogue import find
from trunkline.analytics.jobs.job import CLOCK
from trunkline.analytics.report import figures, shaping
from trunkline.analytics.report.axes import MAX_POINTS, STEPS
from trunkline.analytics.report.cutting import cut, falling, rows_of, total, who
from trunkline.analytics.report.results import Alert, Health, Results, Silence
from trunkline.events.columns import spark_schema
from trunkline.events.layout import NodeKey, is_missing
from trunkline.events.reader import EventLog
from trunkline.events.schema import COLUMNS
from trunkline.events.times import EPOCH, from_microseconds

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Sequence

    from pyspark.sql import SparkSession

    from trunkline.analytics.jobs.job import Job


#: The jobs of a report.
JOBS: Final = ("latency", "flapping", "denials", "silent", "slow-consumers", "queues", "unheard")
#: Kinds whose last reading from before the period counts.
_READINGS: Final = ("session.stats", "node.stats")
#: What figures of a report need: all but what may be long.
_USED: Final = {column.name for column in COLUMNS} - {"payload", "user_properties"}
#: Seconds over which growth is measured: longer than a reading holds.
_GROWTH: Final = 900.0


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
    reading = _Reading(spark, source, begin, end)
    say("audit")
    findings = rows_of(reading.audit())
    found["health"] = shaping.health(findings)
    found["lags"] = [row for row in findings if row["check"] == "lag"]
    try:
        found |= _of_events(reading, source, begin, end, seconds, found["health"], say)
    finally:
        reading.close()
    return replace(results, **found)


def _of_events(
    reading: _Reading,
    source: str,
    begin: datetime,
    end: datetime,
    seconds: float,
    health: Sequence[Health],
    say: Callable[[str], None],
) -> dict[str, Any]:
    events = reading.events
    say("traffic, connections, drops, refusals, latency")
    found, timeline = _headlines(events, seconds)
    found["ends"] = shaping.ends(timeline)
    say("nodes, alarms")
    facts = shaping.facts(rows_of(reading.facts()), begin, _running(source, begin, end))
    found |= facts
    found["nodes"] = shaping.nodes(timeline, found.pop("versions"), found.pop("starts"))
    losses = figures.losses(events)
    most = (falling("messages"), "client_id", "reason")
    found |= cut("losses", losses, most, losers=who("client_id", most), lost=total("messages"))
    say("top talkers, topics")
    published = events.where("kind = 'message.publish'")
    biggest = (falling("messages"), falling("bytes"), "name")
    found |= cut("clients", figures.talkers(published, "client_id"), biggest)
    found |= _topics(reading, figures.talkers(published, "topic"), end)
    found["sizes"] = rows_of(figures.sizes(published))
    say("use")
    found |= _use(events)
    say("how messages came, the slowest windows")
    windows = reading.run("latency", window=seconds).where("p99_us is not null")
    found["ways"] = rows_of(figures.ways(events))
    found |= cut("slow", windows, (falling("p99_us"), "window_start", "prefix", "qos", "node"))
    say("flapping, denials, silent clients")
    found |= _alerts(reading)
    say("queues, slow consumers")
    found |= _queues(reading, losses, end)
    found["queues"] = shaping.held(rows_of(figures.queue_lengths(events, seconds)), health)
    return found


def _headlines(events: DataFrame, seconds: float) -> tuple[dict[str, Any], list[Row]]:
    """What the totals are sums of; and the timeline, which has more."""
    timeline = rows_of(figures.timeline(events, seconds))
    dropped = [row for row in timeline if row.sort == "dropped"]
    found = {
        "timeline": shaping.windows(timeline),
        "drops": [Row(time=row.time, reason=row.reason or "unknown", messages=row.events) for row in dropped],
        "latency": rows_of(figures.delays(events, seconds)),
        **_refusals(events),
    }
    return found, timeline


def _before(spark: SparkSession, period: Results) -> Results:
    """The headlines of a period."""
    kinds = (*figures.HEADLINES, *figures.REFUSAL_KINDS)
    events = _load(spark, period.source, kinds, period.begin, period.end, figures.HEADLINE_COLUMNS)
    events.persist(StorageLevel.DISK_ONLY)
    try:
        return replace(period, **_headlines(events, period.window)[0])
    finally:
        events.unpersist()


def _topics(reading: _Reading, topics: DataFrame, end: datetime) -> dict[str, Any]:
    topics.persist(StorageLevel.DISK_ONLY)
    once = F.count_if(F.col("messages") == 1)
    unheard = reading.run("unheard", subject="topics", window=_whole(end)).withColumnRenamed("count", "messages")
    found = {
        **cut("topics", topics, (falling("messages"), falling("bytes"), "name"), topics_once=once),
        **cut("branches", figures.branches(topics), (falling("names"), falling("topics"), "branch")),
        **cut("unheard", unheard.select("topic", "messages", "last"), (falling("messages"), "topic")),
    }
    topics.unpersist()
    return found


def _whole(end: datetime) -> int:
    """Seconds of a window that holds the whole period: windows begin with the epoch."""
    return math.ceil(end.timestamp()) + 1


def _use(events: DataFrame) -> dict[str, Any]:
    used = figures.use(events).persist(StorageLevel.DISK_ONLY)
    found: dict[str, Any] = {}
    for name, column in (("users", "username"), ("listeners", "listener"), ("protocols", "protocol")):
        found |= cut(name, figures.use_by(used, column), (falling("messages"), falling("connected"), "name"))
    used.unpersist()
    return found


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


def _alerts(reading: _Reading) -> dict[str, Any]:
    connecting = figures.alerts(reading.run("flapping"))
    flapping, storms = (connecting.where(F.col("name") == name) for name in ("flapping", "storm"))
    refused = figures.alerts(reading.run("denials"))
    guessing = F.col("name").isin("logins", "names")
    oldest, most = ("begin", "name", "scope", "subject"), (falling("events"), "subject", "begin")
    silences = figures.silences(reading.run("silent"), figures.left(reading.events))
    newest = (F.col("end").isNotNull(), "last_seen", "client_id")
    return {
        **cut("flapping", flapping, most, _alert, flapped=who("subject", most)),
        **cut("alerts", refused.union(storms), oldest, _alert, guessers=who("subject", most, guessing)),
        **cut(
            "silences",
            silences,
            newest,
            lambda row: Silence(*(row[name] for name in Silence._fields)),
            silent=who("client_id", newest, F.col("end").isNull()),
        ),
    }


def _queues(reading: _Reading, losses: DataFrame, end: datetime) -> dict[str, Any]:
    growth = figures.growth(reading.run("queues", window=_GROWTH, slide=_GROWTH / 5), end)
    whose = F.coalesce(F.nullif("client_id", F.lit("")), "node")
    first = (F.col("full_in").isNull(), "full_in", falling("slope"), "node", "client_id", "metric")
    slow = reading.run("slow-consumers", window=_whole(end)).where("slow")
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


class _Reading:
    """Reads what a report needs of the log once, and keeps that for one job after the other: rows become Spark's at the
    cost of a microsecond or two each, and nearly all rows of a quiet log are heartbeats."""

    def __init__(self, spark: SparkSession, source: str, begin: datetime, end: datetime) -> None:
        self._spark = spark
        self._source = source
        self._begin = begin
        kinds = {
            *figures.TIMELINE,
            *figures.REFUSAL_KINDS,
            *figures.FACTS,
            *(kind for name in JOBS for kind in find(name).kinds()),
        }
        parts = [
            self._load(kinds.difference(_READINGS, (CLOCK,)), begin, end),
            self._load(_READINGS, begin - timedelta(seconds=figures.HELD), end),
            # time goes on to the end of the period
            self._load((CLOCK,), end - timedelta(minutes=1), end),
        ]
        #: Of the period; readings also of before.
        self.events = reduce(DataFrame.union, parts).persist(StorageLevel.DISK_ONLY)

    def close(self) -> None:
        self.events.unpersist()

    def _load(self, kinds: Iterable[str], since: datetime | None, until: datetime) -> DataFrame:
        return _load(self._spark, self._source, kinds, since, until, _USED)

    def facts(self) -> DataFrame:
        """From the beginning of the log: what was on, or said, before the period still is."""
        of_period = self.events.where(F.col("kind").isin(*figures.FACTS))
        return of_period.union(self._load(figures.FACTS, None, self._begin)).orderBy("time", "seq")

    def run(self, name: str, **given: object) -> DataFrame:
        job: Job[Any] = find(name)
        return job(self.events, job.read_options(given))

    def audit(self) -> DataFrame:
        """Of the whole log: rows that a period leaves out are not missing."""
        reader = self._spark.read.format("trunkline").options(onCorrupt="skip", failOnDataLoss=False)
        events = reader.schema(figures.AUDIT_COLUMNS).load(self._source)
        job: Job[Any] = find("audit")
        return figures.findings(job(events, job.read_options({"root": self._source})))


def _load(
    spark: SparkSession,
    source: str,
    kinds: Iterable[str],
    since: datetime | None,
    until: datetime,
    names: Container[str],
) -> DataFrame:
    """Events of these kinds, with the columns of these names."""
    start = {} if since is None else {"startingTimestamp": since.isoformat()}
    reader = spark.read.format("trunkline").options(
        path=source,
        kinds=",".join(sorted(set(kinds))),
        onCorrupt="skip",
        failOnDataLoss=False,
        endingTimestamp=until.isoformat(),
        **start,
    )
    return reader.schema(spark_schema(tuple(column for column in COLUMNS if column.name in names))).load()


def _running(source: str, begin: datetime, end: datetime) -> list[NodeKey]:
    """The incarnations of nodes that recorded in the period."""
    log = EventLog(source)
    log.refresh()
    found: list[NodeKey] = []
    for key, extent in log.nodes().items():
        first = next(log.spans(key, extent.first, extent.end), None)
        if first is not None and from_microseconds(first.min_time) < end and from_microseconds(extent.newest) >= begin:
            found.append(NodeKey.parse(key))
    return found
