"""Runs the jobs of a report over the recorded events of a period."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from trunkline.analytics.jobs.catalogue import find
from trunkline.analytics.jobs.job import CLOCK
from trunkline.analytics.printing import with_zone
from trunkline.analytics.report import figures, shaping
from trunkline.analytics.report.axes import MAX_POINTS, STEPS
from trunkline.analytics.report.results import Health, Results
from trunkline.events.columns import spark_schema
from trunkline.events.layout import NodeKey, is_missing
from trunkline.events.reader import EventLog
from trunkline.events.schema import COLUMNS
from trunkline.events.times import EPOCH, from_microseconds, to_microseconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql import SparkSession

    from trunkline.analytics.jobs.job import Job


#: Rows of each kind in the results, of which a page shows fewer.
MAX_ROWS: Final = 200
#: Rows of alerts in the results; an alert has up to two.
MAX_ALERTS: Final = 5_000
#: The jobs of a report.
_JOBS: Final = ("latency", "flapping", "denials", "silent", "slow-consumers", "queues")
#: Kinds whose last reading from before the period counts.
_READINGS: Final = ("session.stats", "node.stats")
#: What no figure of a report needs, and what may be long.
_UNUSED: Final = ("payload", "user_properties")
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
    begin, end = from_microseconds(min(oldest)), from_microseconds(max(newest)) + timedelta(microseconds=1)
    if (since is not None and since >= end) or (until is not None and until <= begin):
        raise NothingRecorded(f"no events were recorded then; there are some from {begin:%F %T} to {end:%F %T} UTC")
    return max(begin, since or begin), min(end, until or end)


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
    found: dict[str, Any] = {"source": source, "made": now, "window": seconds, "end": end}
    found["begin"] = EPOCH + timedelta(seconds=first)
    reading = _Reading(spark, source, begin, end)
    say("audit")
    findings = _rows(reading.audit())
    found["health"] = shaping.health(findings)
    found["lags"] = [row for row in findings if row["check"] == "lag"]
    try:
        found |= _of_events(reading, source, begin, end, seconds, found["health"], say)
    finally:
        reading.close()
    return Results(**found)


def _of_events(
    reading: _Reading,
    source: str,
    begin: datetime,
    end: datetime,
    seconds: float,
    health: Sequence[Health],
    say: Callable[[str], None],
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    events = reading.events
    say("traffic, connections, drops")
    timeline = _rows(figures.timeline(events, seconds))
    found["timeline"] = shaping.windows(timeline)
    found["ends"] = shaping.ends(timeline)
    say("nodes, alarms")
    facts = shaping.facts(_rows(reading.facts()), begin, _running(source, begin, end))
    found |= facts
    found["nodes"] = shaping.nodes(timeline, found.pop("versions"), found.pop("starts"))
    losses = figures.losses(events)
    found["losses"] = _rows(losses.orderBy(F.desc("messages"), "client_id").limit(MAX_ROWS))
    dropped = [row for row in timeline if row.sort == "dropped"]
    found["drops"] = [Row(time=row.time, reason=row.reason or "unknown", messages=row.events) for row in dropped]
    say("top talkers")
    published = events.where("kind = 'message.publish'")
    found["topics"] = _rows(_top(published, "topic"))
    found["clients"] = _rows(_top(published, "client_id"))
    say("refusals")
    refusals = figures.refusals(events)
    most = refusals.orderBy(F.desc("times"), "client_id", "peer", "action", "topic").limit(MAX_ROWS)
    found["denials"] = shaping.denials(_rows(most))
    found["denied"] = _rows(refusals.agg(F.sum("times").alias("times")))[0]["times"] or 0
    say("latency")
    delays = figures.delays(events, seconds)
    windows = reading.run("latency", window=seconds).where("p99_us is not null")
    found["latency"] = _rows(delays)
    found["slow"] = _rows(windows.orderBy(F.desc("p99_us")).limit(MAX_ROWS))
    say("flapping, denials, silent clients")
    connecting = shaping.alerts(_rows(reading.run("flapping").limit(MAX_ALERTS)))
    found["flapping"] = [alert for alert in connecting if alert.name == "flapping"]
    storms = [alert for alert in connecting if alert.name == "storm"]
    found["alerts"] = [*shaping.alerts(_rows(reading.run("denials").limit(MAX_ALERTS))), *storms]
    silences = reading.run("silent").where("state != 'forgotten'").limit(MAX_ALERTS)
    left = figures.left(events).join(silences.select("client_id"), "client_id", "left_semi")
    found["silences"] = shaping.silences(_rows(silences), {row.client_id: row.time for row in _rows(left)})
    say("queues, slow consumers")
    # windows begin with the epoch: one of them holds the whole period
    slow = reading.run("slow-consumers", window=math.ceil(end.timestamp()) + 1).where("slow")
    lost = (F.col("dropped_slow") + F.col("dropped_full")).alias("dropped")
    found["queues"] = shaping.held(_rows(figures.queue_lengths(events, seconds)), health)
    found["growth"] = _rows(_newest(reading.run("queues", window=_GROWTH, slide=_GROWTH / 5), end))
    found["consumers"] = _rows(slow.select("*", lost).limit(MAX_ROWS))
    return found


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
            *(kind for name in _JOBS for kind in find(name).kinds()),
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
        start = {} if since is None else {"startingTimestamp": since.isoformat()}
        columns = spark_schema(tuple(column for column in COLUMNS if column.name not in _UNUSED))
        reader = self._spark.read.format("trunkline").options(
            path=self._source,
            kinds=",".join(sorted(kinds)),
            onCorrupt="skip",
            failOnDataLoss=False,
            endingTimestamp=until.isoformat(),
            **start,
        )
        return reader.schema(columns).load()

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
        found = job(events, job.read_options({"root": self._source}))
        first = F.col("check") != "incarnation"
        return found.orderBy(first, "ok", "since").limit(MAX_ALERTS)


def _rows(frame: DataFrame) -> list[Row]:
    """All rows of a result that is small."""
    return [Row(**with_zone(row.asDict())) for row in frame.collect()]


def _top(published: DataFrame, column: str) -> DataFrame:
    return (
        published.where(F.col(column).isNotNull())
        .groupBy(F.col(column).alias("name"))
        .agg(F.sum("weight").alias("messages"), F.sum(F.col("weight") * F.col("size")).alias("bytes"))
        .orderBy(F.desc("messages"), "name")
        .limit(MAX_ROWS)
    )


def _newest(queues: DataFrame, end: datetime) -> DataFrame:
    """Queues that grow at the end of the period, or will be full: older readings do not show that. What is in flight
    rises to its limit with every burst."""
    last = queues.where((F.unix_micros("window_end") >= F.lit(to_microseconds(end))) & (F.col("metric") != "inflight"))
    newest = last.groupBy("node", F.coalesce("client_id", F.lit("")).alias("client_id"), "metric").agg(
        *[F.min_by(name, "window_end").alias(name) for name in ("last", "slope", "limit", "full_in")]
    )
    return (
        newest.where("slope > 0 or full_in is not null")
        .orderBy(F.asc_nulls_last("full_in"), F.desc("slope"))
        .limit(MAX_ROWS)
    )


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
