"""Runs the jobs that a report is made of, over the recorded events of a period, and puts their results into rows."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from trunkline.analytics.jobs.catalogue import find
from trunkline.analytics.report import figures
from trunkline.analytics.report.grid import MOST_POINTS
from trunkline.analytics.report.results import (
    Alert,
    Churn,
    Consumer,
    Denial,
    Drop,
    Flapping,
    Growth,
    Health,
    Lag,
    Latency,
    Queue,
    Results,
    Silence,
    Slow,
    Talker,
    Traffic,
)
from trunkline.analytics.report.scales import STEPS
from trunkline.events.reader import EventLog
from trunkline.mqtt.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from trunkline.analytics.jobs.job import Job

Row = dict[str, Any]

#: Rows of a kind that are taken into a report, of which it shows fewer.
MOST_ROWS: Final = 200
#: Alerts that are taken, of which each is up to two rows.
MOST_ALERTS: Final = 5_000
#: Clients whose queues are drawn.
MOST_QUEUES: Final = 10
#: Seconds over which growth is measured, at least and at most.
_GROWTH: Final = (60.0, 900.0)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class NothingRecorded(ValueError):
    """There are no events in the period."""


def period(source: str, since: datetime | None, until: datetime | None) -> tuple[datetime, datetime]:
    """From the first event of a log to the newest, and no more than what is asked for.

    Raises:
        NothingRecorded: there is none.
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
    begin, end = _time(min(oldest)), _time(max(newest)) + timedelta(microseconds=1)
    if (since is not None and since >= end) or (until is not None and until <= begin):
        raise NothingRecorded(f"no events were recorded then; there are some from {begin:%F %T} to {end:%F %T} UTC")
    return max(begin, since or begin), min(end, until or end)


def window(begin: datetime, end: datetime) -> float:
    """Seconds of a window, such that a plot has no more of them than it has points."""
    length = (end - begin).total_seconds()
    # one more, as the first and the last may be cut
    return float(next((step for step in STEPS if length / step <= MOST_POINTS - 1), STEPS[-1]))


def collect(
    spark: SparkSession,
    source: str,
    *,
    now: datetime,
    since: datetime | None = None,
    until: datetime | None = None,
    say: Callable[[str], None] = lambda step: None,
) -> Results:
    """Read the event log at `source` (a folder or a URI), run the jobs, and wait for them. What cannot be read is left out,
    and told of by the audit. `say` is told what is being done.

    Raises:
        NothingRecorded: there are no events in the period.
        LogError: there is no log that can be read.
    """
    begin, end = period(source, since, until)
    reading = _Reading(spark, source, since, until)
    seconds = window(begin, end)
    say("traffic, connections, drops")
    timeline = _rows(figures.timeline(reading.events(figures.TIMELINE, figures.COLUMNS), seconds))
    published = reading.events(("message.publish",), figures.COLUMNS)
    say("top talkers")
    topics = _rows(_top(published, "topic"))
    clients = _rows(_top(published, "client_id"))
    say("refusals")
    refusals = figures.refusals(reading.events(figures.REFUSAL_KINDS, figures.COLUMNS))
    denials = _rows(refusals.orderBy(F.desc("times"), "client_id", "peer", "action", "topic").limit(MOST_ROWS))
    denied = _rows(refusals.agg(F.sum("times").alias("times")))[0]["times"]
    say("latency")
    delays = _rows(figures.delays(reading.events(("message.delivered",), figures.DELAY_COLUMNS), seconds))
    slow = _rows(reading.run("latency", window=seconds).orderBy(F.desc("p99_us")).limit(MOST_ROWS))
    say("flapping, denials, silent clients")
    flapping = _rows(reading.run("flapping").limit(MOST_ALERTS))
    alerts = _rows(reading.run("denials").limit(MOST_ALERTS))
    silences = _rows(reading.run("silent").where("state != 'forgotten'").limit(MOST_ALERTS))
    say("queues, slow consumers")
    drawn = _rows(_longest(reading.run("queues", window=seconds)))
    measured = min(max(_GROWTH[0], (end - begin).total_seconds()), _GROWTH[1])
    growth = _rows(_newest(reading.run("queues", window=measured, slide=measured / 5)))
    consumers = _rows(reading.run("slow-consumers", window=_whole(begin, end)).where("slow").limit(MOST_ROWS))
    say("audit")
    findings = _rows(reading.audit())
    first = _EPOCH + timedelta(seconds=math.floor((begin - _EPOCH).total_seconds() / seconds) * seconds)
    return Results(
        source=source,
        made=now,
        begin=first,
        end=end,
        window=seconds,
        traffic=_traffic(timeline),
        latency=[Latency(row["time"], row["deliveries"], row["p50"], row["p95"], row["p99"]) for row in delays],
        slow=[
            Slow(
                row["window_start"],
                row["prefix"],
                row["qos"],
                row["delivered"],
                row["p99_us"],
                row["undelivered"],
            )
            for row in slow
            if row["p99_us"] is not None
        ],
        churn=_churn(timeline),
        flapping=[
            Flapping(alert.subject, alert.begin, alert.end, alert.events)
            for alert in _alerts(flapping)
            if alert.name == "flapping"
        ],
        topics=[Talker(row["name"], row["messages"], row["bytes"]) for row in topics],
        clients=[Talker(row["name"], row["messages"], row["bytes"]) for row in clients],
        denials=[_denial(row) for row in denials],
        denied=denied or 0,
        alerts=[*_alerts(alerts), *[alert for alert in _alerts(flapping) if alert.name == "storm"]],
        drops=[
            Drop(row["time"], row["reason"] or "unknown", row["events"]) for row in timeline if row["sort"] == "dropped"
        ],
        queues=[Queue(row["window_start"], row["client_id"], int(row["max"])) for row in drawn],
        growth=[
            Growth(row["client_id"] or "", row["metric"], row["node"], row["last"], row["slope"], row["full_in"])
            for row in growth
        ],
        consumers=[
            Consumer(
                row["client_id"],
                row["delivered"],
                row["ack_p99_us"],
                row["unanswered"],
                row["dropped_slow"] + row["dropped_full"],
            )
            for row in consumers
        ],
        silences=_silences(silences),
        health=_health(findings),
        lags=[Lag(row["consumer"], row["rows"], row["seconds"]) for row in findings if row["check"] == "lag"],
    )


class _Reading:
    """The log, read for one job after the other: each gets the kinds of events that it needs."""

    def __init__(self, spark: SparkSession, source: str, since: datetime | None, until: datetime | None) -> None:
        self._spark = spark
        self._source = source
        self._options = {
            name: time.isoformat() for name, time in (("since", since), ("until", until)) if time is not None
        }

    def events(self, kinds: Iterable[str], columns: str | None = None) -> DataFrame:
        reader = self._spark.read.format("trunkline").options(
            path=self._source, kinds=",".join(kinds), onCorrupt="skip", onLoss="skip", **self._options
        )
        return (reader if columns is None else reader.schema(columns)).load()

    def run(self, name: str, **given: object) -> DataFrame:
        job: Job[Any] = find(name)
        options = job.read_options(given)
        return job(self.events(job.kinds(options)), options)

    def audit(self) -> DataFrame:
        """Of the whole log: rows that a period leaves out are not missing."""
        events = self._spark.read.format("trunkline").options(path=self._source, onCorrupt="skip", onLoss="skip").load()
        job: Job[Any] = find("audit")
        found = job(events, job.read_options({"root": self._source}))
        first = F.col("check") != "incarnation"
        return found.orderBy(first, "ok", "since").limit(MOST_ALERTS)


def _rows(frame: DataFrame) -> list[Row]:
    """All rows of a result that is small, with aware times: Spark gives naive ones, of this machine's zone."""
    times = [name for name, type in frame.dtypes if type == "timestamp"]
    plain = frame.withColumns({name: F.unix_micros(name) for name in times}) if times else frame
    found = [row.asDict() for row in plain.collect()]
    for row in found:
        row.update({name: _time(row[name]) for name in times if row[name] is not None})
    return found


def _time(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)


def _whole(begin: datetime, end: datetime) -> float:
    """Seconds of a window that holds the period, or nearly all of it."""
    return max(1.0, math.ceil((end - begin).total_seconds()))


def _top(published: DataFrame, column: str) -> DataFrame:
    return (
        published.where(F.col(column).isNotNull())
        .groupBy(F.col(column).alias("name"))
        .agg(F.sum("weight").alias("messages"), F.sum(F.col("weight") * F.col("size")).alias("bytes"))
        .orderBy(F.desc("messages"), "name")
        .limit(MOST_ROWS)
    )


def _longest(queues: DataFrame) -> DataFrame:
    """Those of the clients whose queues were longest."""
    lengths = queues.where("metric = 'queue_length' and client_id is not null and max > 0")
    top = (
        lengths.groupBy("client_id")
        .agg(F.max("max").alias("top"))
        .orderBy(F.desc("top"), "client_id")
        .limit(MOST_QUEUES)
    )
    return lengths.join(F.broadcast(top.select("client_id")), "client_id").select("client_id", "window_start", "max")


def _newest(queues: DataFrame) -> DataFrame:
    """What grows at the end, or will be full."""
    newest = queues.groupBy("node", "client_id", "metric").agg(
        *[F.max_by(name, "window_end").alias(name) for name in ("last", "slope", "full_in")]
    )
    return (
        newest.where("slope > 0 or full_in is not null")
        .orderBy(F.asc_nulls_last("full_in"), F.desc("slope"))
        .limit(MOST_ROWS)
    )


def _traffic(timeline: Sequence[Row]) -> list[Traffic]:
    found: dict[datetime, Traffic] = {}
    for row in timeline:
        now = found.get(row["time"], Traffic(row["time"], 0, 0, 0, 0))
        if row["sort"] == "published":
            now = now._replace(received=row["events"], received_bytes=row["bytes"])
        elif row["sort"] == "delivered":
            now = now._replace(delivered=row["events"], delivered_bytes=row["bytes"])
        else:
            continue
        found[row["time"]] = now
    return [found[time] for time in sorted(found)]


def _churn(timeline: Sequence[Row]) -> list[Churn]:
    found: dict[datetime, Churn] = {}
    for row in timeline:
        if row["sort"] in Churn._fields:
            now = found.get(row["time"], Churn(row["time"], 0, 0, 0))
            found[row["time"]] = now._replace(**{row["sort"]: row["events"]})
    return [found[time] for time in sorted(found)]


def _denial(row: Row) -> Denial:
    target = row["topic"] if row["reason_code"] is None else reason(row["reason_code"])
    return Denial(row["client_id"] or "", row["peer"] or "", row["action"], target or "", row["times"])


def reason(code: int) -> str:
    """A reason code in words."""
    try:
        return Reason(code).name.lower().replace("_", " ")
    except ValueError:
        return f"0x{code:02X}"


def _alerts(rows: Sequence[Row]) -> list[Alert]:
    """Begin and end of each, put together; an alert that ended has all of its events counted."""
    found: dict[tuple[str, ...], Alert] = {}
    for row in sorted(rows, key=lambda row: row["state"]):  # begins first
        key = (row["alert"], row["scope"], row["subject"], str(row["began"]))
        end = row["time"] if row["state"] == "end" else None
        found[key] = Alert(row["alert"], row["scope"], row["subject"], row["began"], end, row["count"])
    return list(found.values())


def _silences(rows: Sequence[Row]) -> list[Silence]:
    found: dict[tuple[str, datetime], Silence] = {}
    for row in sorted(rows, key=lambda row: row["state"]):
        end = row["time"] if row["state"] == "end" else None
        found[row["client_id"], row["last_seen"]] = Silence(row["client_id"], row["last_seen"], row["usual"], end)
    return list(found.values())


def _health(findings: Sequence[Row]) -> list[Health]:
    sums: dict[tuple[str, int], dict[str, int]] = {}
    for row in findings:
        counts = sums.setdefault((row["node"], row["incarnation"]), {})
        counts[row["check"]] = counts.get(row["check"], 0) + (row["rows"] or 0)
    return [
        Health(
            node=f"{row['node']}@{row['incarnation']}",
            begin=row["since"],
            newest=row["until"],
            events=row["rows"],
            missing=(counts := sums[row["node"], row["incarnation"]]).get("gap", 0) + counts.get("lost", 0),
            dropped=counts.get("dropped", 0),
            corrupt=counts.get("corrupt", 0),
            end=row["reason"],
        )
        for row in findings
        if row["check"] == "incarnation"
    ]
