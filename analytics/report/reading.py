"""Reads what a report needs of an event log."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import functions as F

from trunkline.analytics.jobs.catalogue import find
from trunkline.analytics.jobs.job import CLOCK
from trunkline.analytics.jobs.subscriptions import CHANGES
from trunkline.analytics.report import counts, figures
from trunkline.events.columns import spark_schema
from trunkline.events.kinds import ALWAYS
from trunkline.events.layout import NodeKey
from trunkline.events.schema import COLUMNS, SCHEMA

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence
    from datetime import datetime

    from pyspark.sql import DataFrame, SparkSession

    from trunkline.analytics.jobs.job import Job
    from trunkline.analytics.report.results import Health, Results

#: The jobs of a report.
JOBS: Final = (
    *("latency", "flapping", "denials", "silent", "slow-consumers", "queues", "unheard"),
    *("sessions", "moves"),
)
#: Kinds whose last reading from before the period counts.
_READINGS: Final = ("session.stats", "node.stats")
#: What figures of a report need: all but what may be long.
_USED: Final = {column.name for column in COLUMNS} - {"payload", "user_properties"}
#: Parts of the clients of a node of which the job sessions makes one each.
_BUCKETS: Final = 4
_BEAT: Final = pa.schema([SCHEMA.field(name) for name in ALWAYS])


class Reading:
    """Reads what a report needs of the log once, and keeps that for one job after the other: rows become Spark's at the
    cost of a microsecond or two each, and nearly all rows of a quiet log are heartbeats."""

    def __init__(self, spark: SparkSession, results: Results, begin: datetime) -> None:
        """Of the period from `begin` on, which may be later than its first window."""
        self._all: list[DataFrame] = []
        self.begin = begin
        self.end = results.end
        self.running = [
            NodeKey.parse(each.node) for each in results.health if each.begin < results.end and each.newest >= begin
        ]
        kinds = {
            *figures.TIMELINE,
            *figures.REFUSAL_KINDS,
            *figures.FACTS,
            *counts.COUNTED,
            *(kind for name in JOBS for kind in find(name).kinds()),
        }
        since = begin - timedelta(seconds=figures.HELD)
        recorded = load(spark, results.source, kinds.difference((CLOCK,)), since, results.end, _USED)
        of_period = recorded.where((F.col("time") >= F.lit(begin)) | F.col("kind").isin(*_READINGS))
        #: That each node is there, and when it was last.
        self.beats = self._beats(spark, results.health)
        #: Of the period; readings also of before.
        self.events = self._kept(of_period.unionByName(self.beats, allowMissingColumns=True))
        self.counted = self._kept(counts.counted(self.events))
        #: Of the job sessions.
        self.connections = self._kept(self.run("sessions", buckets=_BUCKETS))
        #: What was said before the period, if there was a before.
        self._earlier: DataFrame | None = None
        if any(each.begin < begin for each in results.health):
            kinds = {*figures.FACTS, *CHANGES}
            self._earlier = self._kept(load(spark, results.source, kinds, None, begin, _USED))

    def _kept(self, rows: DataFrame) -> DataFrame:
        self._all.append(rows.persist(StorageLevel.DISK_ONLY))
        return rows

    def close(self) -> None:
        for rows in self._all:
            rows.unpersist()

    def _beats(self, spark: SparkSession, health: Sequence[Health]) -> DataFrame:
        """One heartbeat of each incarnation, its last in the period: others would say nothing more. It comes before
        other rows of the same time."""
        last = self.end - timedelta(microseconds=1)
        newest = {NodeKey.parse(each.node): min(each.newest, last) for each in health}
        rows = [(*key, -1, newest[key], CLOCK, 1) for key in self.running]
        table = pa.Table.from_pylist([dict(zip(ALWAYS, row, strict=True)) for row in rows], _BEAT)
        return spark.createDataFrame(table)

    @property
    def subscribed(self) -> DataFrame:
        """With the subscriptions of before the period."""
        if self._earlier is None:
            return self.events
        return self.events.unionByName(self._earlier.where(F.col("kind").isin(*CHANGES)))

    def facts(self) -> DataFrame:
        """From the beginning of the log: what was on, or said, before the period still is."""
        rows = self.events if self._earlier is None else self.events.unionByName(self._earlier)
        return rows.where(F.col("kind").isin(*figures.FACTS)).orderBy("time", "seq")

    def run(self, name: str, events: DataFrame | None = None, **given: object) -> DataFrame:
        job: Job[Any] = find(name)
        return job(self.events if events is None else events, job.read_options(given))


def audit(spark: SparkSession, source: str) -> DataFrame:
    """Of the whole log: rows that a period leaves out are not missing."""
    reader = spark.read.format("trunkline").options(onCorrupt="skip", failOnDataLoss=False)
    events = reader.schema(figures.AUDIT_COLUMNS).load(source)
    job: Job[Any] = find("audit")
    return figures.findings(job(events, job.read_options({"root": source})))


def load(
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
