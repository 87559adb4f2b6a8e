"""Runs the jobs of a report over the recorded events of a period."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Row
from pyspark.sql import functions as F

from trunkline.analytics.jobs.catalogue import find
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
    NodeSums,
    Results,
    Silence,
    Window,
)
from trunkline.events.layout import NodeKey
from trunkline.events.reader import EventLog
from trunkline.events.times import EPOCH, from_microseconds, to_microseconds
from trunkline.mqtt.reasons import in_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from trunkline.analytics.jobs.job import Job


#: Rows of each kind in the results, of which a page shows fewer.
MAX_ROWS: Final = 200
#: Rows of alerts in the results; an alert has up to two.
MAX_ALERTS: Final = 5_000
#: Clients whose queues are in the results.
MAX_QUEUES: Final = 10
#: Rows at the beginning of a node within which the exporter says what it records.
_SAID_WITHIN: Final = 10_000
#: Seconds over which growth is measured, at least and at most.
_GROWTH: Final = (60.0, 900.0)


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
    reading = _Reading(spark, source, since, until)
    say("traffic, connections, drops")
    timeline = _rows(figures.timeline(reading.events(figures.TIMELINE, figures.COLUMNS), seconds))
    found["timeline"] = _windows(timeline)
    found["ends"] = _ends(timeline)
    say("nodes, alarms")
    facts = _facts(source, _rows(reading.events(figures.FACTS, figures.FACT_COLUMNS).orderBy("time", "seq")))
    found |= facts
    found["nodes"] = _nodes(timeline, facts["versions"])
    del found["versions"]
    losses = figures.losses(reading.events(("message.dropped",), figures.COLUMNS))
    found["losses"] = _rows(losses.orderBy(F.desc("messages"), "client_id").limit(MAX_ROWS))
    dropped = [row for row in timeline if row.sort == "dropped"]
    found["drops"] = [Row(time=row.time, reason=row.reason or "unknown", messages=row.events) for row in dropped]
    say("top talkers")
    published = reading.events(("message.publish",), figures.COLUMNS)
    found["topics"] = _rows(_top(published, "topic"))
    found["clients"] = _rows(_top(published, "client_id"))
    say("refusals")
    refusals = figures.refusals(reading.events(figures.REFUSAL_KINDS, figures.COLUMNS))
    most = refusals.orderBy(F.desc("times"), "client_id", "peer", "action", "topic").limit(MAX_ROWS)
    found["denials"] = [_denial(row) for row in _rows(most)]
    found["denied"] = _rows(refusals.agg(F.sum("times").alias("times")))[0]["times"] or 0
    say("latency")
    delays = figures.delays(reading.events(("message.delivered",), figures.DELAY_COLUMNS), seconds)
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
    length = (end - begin).total_seconds()
    measured = min(max(_GROWTH[0], length), _GROWTH[1])
    slow = reading.run("slow-consumers", window=max(1.0, math.ceil(length))).where("slow")
    lost = (F.col("dropped_slow") + F.col("dropped_full")).alias("dropped")
    found["queues"] = _rows(_longest(reading.run("queues", window=seconds)))
    found["growth"] = _rows(_newest(reading.run("queues", window=measured, slide=measured / 5), end))
    found["consumers"] = _rows(slow.select("*", lost).limit(MAX_ROWS))
    say("audit")
    findings = _rows(reading.audit())
    found["health"] = _health(findings)
    found["lags"] = [row for row in findings if row["check"] == "lag"]
    return Results(**found)


class _Reading:
    """Reads the log for one job after the other: each gets the kinds of events that it needs."""

    def __init__(self, spark: SparkSession, source: str, since: datetime | None, until: datetime | None) -> None:
        self._spark = spark
        self._source = source
        times = {"startingTimestamp": since, "endingTimestamp": until}
        self._options = {name: time.isoformat() for name, time in times.items() if time is not None}

    def events(self, kinds: Iterable[str], columns: str | None = None) -> DataFrame:
        reader = self._spark.read.format("trunkline").options(
            path=self._source, kinds=",".join(kinds), onCorrupt="skip", failOnDataLoss=False, **self._options
        )
        return (reader if columns is None else reader.schema(columns)).load()

    def run(self, name: str, **given: object) -> DataFrame:
        job: Job[Any] = find(name)
        options = job.read_options(given)
        return job(self.events(job.kinds(options)), options)

    def audit(self) -> DataFrame:
        """Of the whole log: rows that a period leaves out are not missing."""
        reader = self._spark.read.format("trunkline").options(onCorrupt="skip", failOnDataLoss=False)
        events = reader.load(self._source)
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


def _longest(queues: DataFrame) -> DataFrame:
    """All readings, also those of an empty queue, of the clients whose queues were longest."""
    lengths = queues.where("metric = 'queue_length' and client_id is not null")
    top = lengths.groupBy("client_id").agg(F.max("max").alias("top")).where("top > 0")
    chosen = top.orderBy(F.desc("top"), "client_id").limit(MAX_QUEUES).select("client_id")
    return lengths.join(F.broadcast(chosen), "client_id").select(
        F.col("window_start").alias("time"), "client_id", F.col("max").cast("bigint").alias("length")
    )


def _newest(queues: DataFrame, end: datetime) -> DataFrame:
    """Queues that grow at the end of the period, or will be full: older readings do not show that."""
    last = queues.where(F.unix_micros("window_end") >= F.lit(to_microseconds(end)))
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


def _nodes(timeline: Sequence[Row], versions: Mapping[str, Sequence[str]]) -> list[NodeSums]:
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    for row in timeline:
        sums[row["node"]][row["sort"]] += row["events"]
    return [
        NodeSums(
            name,
            ", ".join(dict.fromkeys(versions.get(name, ()))),
            len(versions.get(name, ())),
            *(sums[name][sort] for sort in ("connected", "published", "delivered", "dropped")),
        )
        for name in sorted(sums.keys() | versions.keys())
    ]


def _facts(source: str, rows: Sequence[Row]) -> dict[str, Any]:
    """Alarms, corrections of clocks, and the versions that each node started with, from rows in the order of time."""
    alarms: dict[tuple[str, str], AlarmTime] = {}
    ended: list[AlarmTime] = []
    corrections: list[Correction] = []
    versions: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        key = row["node"], row["name"]
        if row["kind"] == "exporter.started":
            versions[row["node"]].append(row["reason"])
            # they ended by now, or are said to be on again
            ended += [alarms.pop(each)._replace(end=row["time"]) for each in list(alarms) if each[0] == row["node"]]
        elif row["kind"] == "node.clock":
            corrections.append(Correction(row["node"], row["time"], row["value"]))
        elif row["kind"] == "alarm.deactivated":
            begun = alarms.pop(key, AlarmTime(*key, row["reason"] or "", None, None))
            ended.append(begun._replace(end=row["time"]))
        elif row["kind"] in ("alarm.activated", "alarm.active") and key not in alarms:
            begin = row["time"] if row["kind"] == "alarm.activated" else None
            alarms[key] = AlarmTime(*key, row["reason"] or "", begin, None)
    recorded, narrowed = _recorded(source, rows)
    return {
        "alarms": [*ended, *alarms.values()],
        "corrections": corrections,
        "versions": versions,
        "recorded": recorded,
        "narrowed": narrowed,
    }


def _recorded(source: str, rows: Sequence[Row]) -> tuple[frozenset[str] | None, list[str]]:
    """The kinds that all nodes record, and what narrows that: from the period, or else from the beginning of what each
    node has left. None if a node does not say so."""
    said: dict[str, list[tuple[str, str | None]]] = defaultdict(list)
    for row in rows:
        if row["kind"] == "exporter.records":
            said[row["node"]].append((row["name"], row["reason"]))
    log = EventLog(source)
    log.refresh()
    for key, extent in log.nodes().items():
        node = NodeKey.parse(key).name
        if node not in said:
            said[node] = []
            end = min(extent.end, extent.first + _SAID_WITHIN)
            columns = ["kind", "name", "reason"]
            for batch in log.read(key, extent.first, end, columns=columns, on_corrupt="skip", on_lost="skip"):
                for kind, name, reason in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    if kind == "exporter.records":
                        said[node].append((name, reason))
    narrowed = {word for each in said.values() for _, reason in each if reason for word in reason.split(", ")}
    kinds = [frozenset(name for name, _ in each) for each in said.values()]
    return frozenset.intersection(*kinds) if kinds and all(kinds) else None, sorted(narrowed)


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
