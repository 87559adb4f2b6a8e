"""Is the record whole: what is missing in it, what was lost before it, which nodes are silent, and who lags behind."""

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pydantic import Field
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues

from trunkline.analytics.jobs.job import Column, OptionError, Options, Seconds, job
from trunkline.analytics.jobs.machines import microseconds
from trunkline.analytics.jobs.records import Auditor, Finding, Run, runs
from trunkline.events.layout import DEAD_LETTERS, NodeKey, local_root
from trunkline.events.positions import Positions, consumers
from trunkline.events.reader import EventLog

_SPARK: Final = {pa.string(): "string", pa.int64(): "bigint", pa.float64(): "double", pa.bool_(): "boolean"}


def _schema(**fields: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field(name, type) for name, type in fields.items()])


def _as_spark(schema: pa.Schema) -> str:
    return ", ".join(f"`{field.name}` {_SPARK[field.type]}" for field in schema)


#: `Run` and `Finding` as tables. Times are numbers until the end.
RUNS: Final = _schema(
    node=pa.string(),
    incarnation=pa.int64(),
    first=pa.int64(),
    end=pa.int64(),
    began=pa.int64(),
    newest=pa.int64(),
    kind=pa.string(),
    reason=pa.string(),
    value=pa.float64(),
)
FINDINGS: Final = _schema(
    check=pa.string(),
    ok=pa.bool_(),
    node=pa.string(),
    incarnation=pa.int64(),
    consumer=pa.string(),
    seq=pa.int64(),
    rows=pa.int64(),
    since=pa.int64(),
    until=pa.int64(),
    seconds=pa.float64(),
    reason=pa.string(),
)


class AuditOptions(Options):
    silence: Seconds = Field(
        default=10.0, gt=0, description="Seconds without any row, not even `node.tick`, after which a node is silent."
    )
    root: str | None = Field(
        default=None,
        description="Root of the event log, whose consumers and dead letters are looked at too. Not for streams.",
    )


COLUMNS: Final = (
    Column(
        "check",
        "string",
        "What was found: `incarnation`, `gap`, `duplicate`, `late`, `dropped`, `corrupt`, `lost`, `silence`, `silent`, "
        "`dead_letters` or `lag`.",
    ),
    Column("ok", "boolean", "Nothing to worry about."),
    Column("node", "string", "The node."),
    Column("incarnation", "bigint", "Its incarnation: milliseconds since the epoch."),
    Column("consumer", "string", "Of `lag`: who reads."),
    Column("seq", "bigint", "The first row that it is about; of `lag`, the next one to be read."),
    Column("rows", "bigint", "Rows, or events, that it is about."),
    Column("since", "timestamp", "When it began; of a gap or a duplicate, the time of the row behind it."),
    Column("until", "timestamp", "When it ended; null while it goes on."),
    Column("seconds", "double", "How long it was."),
    Column("reason", "string", "Of `dropped`, why; of `incarnation`: `stopped`, `killed`, `running`, `silent`."),
)


def _batch(rows: Sequence[Run | Finding], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    if rows:
        columns = zip(*rows, strict=True)
        arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def in_runs(silence: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """From rows to `RUNS`; `silence` is microseconds."""
    for batch in batches:
        yield from _batch(runs(batch, silence), RUNS)


def audited(silence: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """From all runs, sorted, to `FINDINGS`."""
    auditor = Auditor(silence, 0)
    for batch in batches:
        rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
        yield from _batch([finding for row in rows for finding in auditor.add(Run(*row))], FINDINGS)
    yield from _batch([*auditor.settle(), *auditor.end()], FINDINGS)


class Processor(StatefulProcessor):
    """One auditor for all nodes of a stream, which gets the runs of each micro-batch.

    It goes by the numbers of rows and not by the watermark: a row that comes late is a row that is not missing.
    """

    def __init__(self, silence: int, lateness: int) -> None:
        self._silence = silence
        self._lateness = lateness

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("auditor", "kept string")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: TimerValues) -> Iterator[Row]:
        kept = self._state.get() if self._state.exists() else None
        auditor = Auditor(self._silence, self._lateness, None if kept is None else json.loads(kept[0]))
        arrived = sorted((Run(*(row[field] for field in Run._fields)) for row in rows), key=lambda run: run[:4])
        for run in arrived:
            for finding in auditor.add(run):
                yield Row(**finding._asdict())
        for finding in auditor.settle():
            yield Row(**finding._asdict())
        self._state.update((json.dumps(auditor.save(), separators=(",", ":")),))


def readers(root: str) -> Iterator[Finding]:
    """How far each consumer of a log is behind, and what could not be written to it, as of now.

    Both are only noted beside a log in a directory of this machine.

    Raises:
        LogError: the log cannot be read.
    """
    log = EventLog(root)
    extents = log.nodes()
    folder = local_root(root)
    if folder is None:
        return
    for consumer in consumers(root):
        positions = Positions(root, consumer).read()
        for key, extent in extents.items():
            at = min(max(positions.get(key, extent.first), extent.first), extent.end)
            following = next(log.spans(key, at), None) if at < extent.end else None
            since = extent.newest if following is None else following.min_time
            behind = (extent.newest - since) / 1e6
            yield Finding("lag", True, *NodeKey.parse(key), consumer, at, extent.end - at, since, extent.newest, behind)
    for path in sorted((folder / DEAD_LETTERS).glob("*.jsonl")):
        with path.open("rb") as lines:
            count = sum(1 for _ in lines)
        yield Finding("dead_letters", not count, *NodeKey.parse(path.stem), rows=count)


@job(
    "audit",
    options=AuditOptions,
    kinds=("*",),
    columns=COLUMNS,
    key=("check", "node", "incarnation", "consumer", "seq", "since"),
    times=("since", "until"),
)
def audit(events: DataFrame, options: AuditOptions) -> DataFrame:
    """Whether the record can be relied on: what is missing in it, what is in it twice, what was lost, who was silent.

    It needs all events: with some left out by kind or time, there are gaps. The rows of each incarnation of a node are
    numbered, so each gap is known. In a stream a gap is told of when rows follow it that are `lateness` seconds newer; rows
    that fill it afterwards are `late`. An `incarnation` is told of when it ended: recorded ones all, as they stand.

    A node is silent when others have rows that are `silence` seconds newer than its newest. Where the source does not keep
    the nodes of a stream at the same time, one that is behind looks silent for a while.

    Raises:
        OptionError: a stream, and `root` is given: consumers are looked at once, when the job begins.
        LogError: the log at `root` cannot be read.
    """
    if options.root is not None and events.isStreaming:
        raise OptionError(["job audit, option root: is for recorded events; a stream has no moment to look at the log"])
    silence = microseconds(options.silence)
    found = events.select(
        "node", "incarnation", "seq", F.unix_micros("time").alias("at"), "kind", "reason", "value"
    ).mapInArrow(partial(in_runs, silence), _as_spark(RUNS))
    if events.isStreaming:
        findings = (
            found.withColumn("all", F.lit(0))
            .groupBy("all")
            .transformWithState(
                Processor(silence, microseconds(options.lateness)),
                _as_spark(FINDINGS),
                outputMode="append",
                timeMode="none",
            )
        )
    else:
        findings = (
            found.repartition(1)
            .sortWithinPartitions("node", "incarnation", "first", "end")
            .mapInArrow(partial(audited, silence), _as_spark(FINDINGS))
        )
    if options.root is not None:
        of_readers = pa.Table.from_batches(_batch([*readers(options.root)], FINDINGS), FINDINGS)
        findings = findings.unionByName(events.sparkSession.createDataFrame(of_readers, _as_spark(FINDINGS)))
    times = {name: F.timestamp_micros(name) for name in ("since", "until")}
    return findings.withColumns(times).select(*(column.name for column in COLUMNS))
