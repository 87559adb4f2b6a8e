"""Runs the jobs of a report over the recorded events of a period."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from datetime import datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from trunkline.analytics.jobs.catalogue import find
from trunkline.analytics.jobs.job import CLOCK
from trunkline.analytics.printing import with_zone
from trunkline.analytics.report import figures
from trunkline.analytics.report.axes import MAX_POINTS, STEPS
from trunkline.analytics.report.results import (
    AlarmTime,
    Alert,
    Correction,
    Denial,
    EndCount,
    Health,
    LimitChange,
    NodeSums,
    QueueReading,
    Results,
    Silence,
    Window,
)
from trunkline.events.columns import spark_schema
from trunkline.events.layout import NodeKey
from trunkline.events.reader import EventLog
from trunkline.events.schema import COLUMNS
from trunkline.events.times import EPOCH, from_microseconds, to_microseconds
from trunkline.mqtt.reasons import in_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

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
    found["health"] = _health(findings)
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
    found["timeline"] = _windows(timeline)
    found["ends"] = _ends(timeline)
    say("nodes, alarms")
    facts = _facts(_rows(reading.facts()), begin, _running(source, begin, end))
    found |= facts
    found["nodes"] = _nodes(timeline, found.pop("versions"), found.pop("starts"))
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
    found["denials"] = [_denial(row) for row in _rows(most)]
    found["denied"] = _rows(refusals.agg(F.sum("times").alias("times")))[0]["times"] or 0
    say("latency")
    delays = figures.delays(events, seconds)
    windows = reading.run("latency", window=seconds).where("p99_us is not null")
    found["latency"] = _rows(delays)
    found["slow"] = _rows(windows.orderBy(F.desc("p99_us")).limit(MAX_ROWS))
    say("flapping, denials, silent clients")
    connecting = _alerts(_rows(reading.run("flapping").limit(MAX_ALERTS)))
    found["flapping"] = [alert for alert in connecting if alert.name == "flapping"]
    storms = [alert for alert in connecting if alert.name == "storm"]
    found["alerts"] = [*_alerts(_rows(reading.run("denials").limit(MAX_ALERTS))), *storms]
    found["silences"] = _silences(_rows(reading.run("silent").where("state != 'forgotten'").limit(MAX_ALERTS)))
    say("queues, slow consumers")
    # windows begin with the epoch: one of them holds the whole period
    slow = reading.run("slow-consumers", window=math.ceil(end.timestamp()) + 1).where("slow")
    lost = (F.col("dropped_slow") + F.col("dropped_full")).alias("dropped")
    found["queues"] = _held(_rows(figures.queue_lengths(events, seconds)), health)
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
        self.events = reduce(DataFrame.union, parts).persist(StorageLevel.MEMORY_AND_DISK)

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


def _held(readings: Sequence[Row], health: Sequence[Health]) -> list[QueueReading]:
    """Each reading holds until the next one of the same session and node, but no longer than readings do, nor than the
    node went on recording."""
    found: list[QueueReading] = []
    following: dict[tuple[str, str], datetime] = {}
    for row in sorted(readings, key=lambda row: row["time"], reverse=True):
        key = row["node"], row["client_id"]
        alive = [each.newest for each in health if each.name == row["node"] and each.newest >= row["at"]]
        longest = row["at"] + timedelta(seconds=figures.HELD)
        until = min(longest, *alive[:1], following.get(key, longest))
        following[key] = row["time"]
        found.append(QueueReading(row["time"], row["client_id"], row["length"], row["last"], until))
    return found[::-1]


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


def _windows(timeline: Sequence[Row]) -> list[Window]:
    """The sums of each window, whatever their sort; a sort that no window has a field for is left out."""
    found: dict[datetime, Counter[str]] = defaultdict(Counter)
    for row in timeline:
        found[row["time"]].update({row["sort"]: row["events"], f"{row['sort']}_bytes": row["bytes"]})
    return [Window(time, *(found[time][name] for name in Window._fields[1:])) for time in sorted(found)]


def _ends(timeline: Sequence[Row]) -> list[EndCount]:
    found = Counter[tuple[str, str]]()
    for row in timeline:
        if row["sort"] == "disconnected":
            reason = in_words(int(row["reason"])) if row["reason"] else "unknown"
            found["connection", reason] += row["events"]
        elif row["sort"] in ("ended", "taken over"):
            found["session", row["reason"] or row["sort"]] += row["events"]
    return [EndCount(of, reason, times) for (of, reason), times in found.most_common()]


def _nodes(timeline: Sequence[Row], versions: Mapping[str, Sequence[str]], starts: Mapping[str, int]) -> list[NodeSums]:
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    for row in timeline:
        sums[row["node"]][row["sort"]] += row["events"]
    return [
        NodeSums(
            name,
            ", ".join(versions.get(name, ())),
            starts.get(name, 0),
            *(sums[name][sort] for sort in ("connected", "published", "delivered", "dropped")),
        )
        for name in sorted(sums.keys() | versions.keys())
    ]


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


def _facts(rows: Sequence[Row], begin: datetime, running: Sequence[NodeKey]) -> dict[str, Any]:
    """Alarms, corrections of clocks, limits that changed, and the versions and starts of each node in the period that
    has this `begin`, from all rows in the order of time. `running` are the incarnations of the period."""
    alarms: dict[tuple[str, str], AlarmTime] = {}
    ended: list[AlarmTime] = []
    corrections: list[Correction] = []
    versions: dict[str, list[str]] = defaultdict(list)
    starts = Counter[str]()
    limits: dict[tuple[str, str], float] = {}
    changes: list[LimitChange] = []
    said: dict[tuple[str, int], list[tuple[str, str | None]]] = defaultdict(list)
    for row in rows:
        node, time = row["node"], row["time"]
        key = node, row["name"]
        match row["kind"]:
            case "exporter.started" | "node.version":
                if row["kind"] == "exporter.started":
                    starts[node] += time >= begin
                    # they ended by now, or are said to be on again
                    ended += [alarms.pop(each)._replace(end=time) for each in list(alarms) if each[0] == node]
                version = row["reason"] or row["name"]
                if (node, row["incarnation"]) in running and version and version not in versions[node]:
                    versions[node].append(version)
            case "exporter.records":
                said[node, row["incarnation"]].append((row["name"], row["reason"]))
            case "node.clock" if time >= begin:
                corrections.append(Correction(node, time, row["value"]))
            case "node.limit":
                former = limits.get(key)
                limits[key] = row["value"]
                if former not in (None, row["value"]) and time >= begin:
                    changes.append(LimitChange(node, time, row["name"], former or 0.0, row["value"]))
            case "alarm.deactivated":
                begun = alarms.pop(key, AlarmTime(*key, row["reason"] or "", None, None))
                ended.append(begun._replace(end=time))
            case "alarm.activated" | "alarm.active" if key not in alarms:
                began = time if row["kind"] == "alarm.activated" else None
                alarms[key] = AlarmTime(*key, row["reason"] or "", began, None)
    of_period = [said[key] for key in running]
    kinds = [frozenset(name for name, _ in each) for each in of_period]
    return {
        "alarms": [*(alarm for alarm in ended if alarm.end is None or alarm.end >= begin), *alarms.values()],
        "corrections": corrections,
        "limits": changes,
        "versions": versions,
        "starts": starts,
        "recorded": frozenset.intersection(*kinds) if kinds and all(kinds) else None,
        "narrowed": sorted({word for each in of_period for _, reason in each if reason for word in reason.split(", ")}),
    }


def _denial(row: Row) -> Denial:
    target = row["topic"] if row["reason_code"] is None else in_words(row["reason_code"])
    return Denial(row["client_id"] or "", row["peer"] or "", row["action"], target or "", row["times"])


def _alerts(rows: Sequence[Row]) -> list[Alert]:
    """Begin and end of each as one row; an alert that ended has all of its events counted."""
    found: dict[tuple[str, ...], Alert] = {}
    for row in sorted(rows, key=lambda row: row["state"]):  # begins first
        key = (row["alert"], row["scope"], row["subject"], str(row["began"]))
        found[key] = Alert(*key[:3], row["began"], row["time"] if row["state"] == "end" else None, row["count"])
    return list(found.values())


def _silences(rows: Sequence[Row]) -> list[Silence]:
    """Begin and end of each as one row."""
    found: dict[tuple[str, datetime], Silence] = {}
    for row in sorted(rows, key=lambda row: row["state"]):
        key = (row["client_id"], row["last_seen"])
        found[key] = Silence(*key, row["usual"], row["time"] if row["state"] == "end" else None)
    return list(found.values())


def _health(findings: Sequence[Row]) -> list[Health]:
    sums: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
    for row in findings:
        sums[row["node"], row["incarnation"]][row["check"]] += row["rows"] or 0
    return [
        Health(
            node=f"{row['node']}@{row['incarnation']}",
            name=row["node"],
            begin=row["since"],
            newest=row["until"],
            events=row["rows"],
            missing=(counts := sums[row["node"], row["incarnation"]])["gap"] + counts["lost"],
            dropped=counts["dropped"],
            corrupt=counts["corrupt"],
            end=row["reason"],
        )
        for row in findings
        if row["check"] == "incarnation"
    ]
