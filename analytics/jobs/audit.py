"""Is the record whole: what is missing in it, what was lost before it, which nodes are silent, and which consumers
lag behind."""

import json
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, get_type_hints

import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues

from trunkline.analytics.jobs.job import Options, job
from trunkline.analytics.jobs.machines import microseconds
from trunkline.analytics.jobs.records import AuditFinding, Auditor, RowRun, runs
from trunkline.analytics.options import OptionError, Positive
from trunkline.config.units import Accepts
from trunkline.events.columns import Column, arrow_schema, spark_schema
from trunkline.events.layout import DEAD_LETTERS, LogError, NodeKey, is_missing, local_root, places
from trunkline.events.notices import Unread, unread
from trunkline.events.positions import Positions, consumers
from trunkline.events.reader import EventLog

_TYPES: Final[dict[Any, str]] = {str: "string", int: "bigint", float: "double", bool: "boolean"}


def _columns(kind: type[RowRun | AuditFinding]) -> tuple[Column, ...]:
    """Its fields, without `| None`. Times are numbers until the end."""
    return tuple(
        Column(name, next(_TYPES[one] for one in (hint, *getattr(hint, "__args__", ())) if one in _TYPES), "")
        for name, hint in get_type_hints(kind).items()
    )


_RUN: Final = _columns(RowRun)
_FINDING: Final = _columns(AuditFinding)


def _batches(columns: tuple[Column, ...], rows: Iterable[RowRun | AuditFinding]) -> Iterator[pa.RecordBatch]:
    """The rows, if there are any."""
    if found := [row._asdict() for row in rows]:
        yield pa.RecordBatch.from_pylist(found, arrow_schema(columns))


class AuditOptions(Options):
    silence: Positive = 10.0
    """Seconds without any row, not even `node.tick`, after which a node is silent."""
    root: Annotated[str | None, Accepts("a folder, a pattern, or a URI")] = None
    """Root of the event log, whose files, consumers and dead letters are audited too. Not for streams."""


def in_runs(silence: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """From rows to runs; `silence` is microseconds."""
    for batch in batches:
        yield from _batches(_RUN, runs(batch, silence))


def audited(silence: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """From all runs, sorted, to findings."""
    auditor = Auditor(silence, 0)
    for batch in batches:
        rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
        yield from _batches(_FINDING, (finding for row in rows for finding in auditor.add(RowRun(*row))))
    yield from _batches(_FINDING, (*auditor.settle(), *auditor.end()))


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
        for run in sorted((RowRun(*(row[field] for field in RowRun._fields)) for row in rows), key=lambda run: run[:4]):
            for finding in auditor.add(run):
                yield Row(**finding._asdict())
        for finding in auditor.settle():
            yield Row(**finding._asdict())
        self._state.update((json.dumps(auditor.save(), separators=(",", ":")),))


def of_log(root: str) -> Iterator[AuditFinding]:
    """The rows of a log that no reader finds, how far each of its consumers is behind, and what could not be written
    to it, as of now.

    Consumers and dead letters are only noted beside a log in a directory of this machine.

    Raises:
        LogError: the log cannot be read.
    """
    for place in places(root):
        log = EventLog(place)
        for found in log.steadily(partial(_unread, log)):
            yield AuditFinding("unread", False, *found.node, seq=found.first, rows=found.end - found.first)
        folder = local_root(place)
        if folder is not None:
            yield from _lags(place, log)
            yield from _dead_letters(folder)


def _unread(log: EventLog) -> list[Unread]:
    return [each for key, segments in log.segments() for each in unread(log, key, segments)]


def _lags(root: str, log: EventLog) -> Iterator[AuditFinding]:
    extents = log.nodes()
    for consumer in consumers(root):
        try:
            positions = Positions(root, consumer).read()
        except (LogError, OSError) as error:
            yield AuditFinding("unreadable", False, None, None, consumer, reason=str(error))
            continue
        for key, extent in extents.items():
            at = min(max(positions.get(key, extent.first), extent.first), extent.end)
            following = next(log.spans(key, at), None) if at < extent.end else None
            since = extent.newest if following is None else following.min_time
            behind = (extent.newest - since) / 1e6
            yield AuditFinding(
                "lag", True, *NodeKey.parse(key), consumer, at, extent.end - at, since, extent.newest, behind
            )


def _dead_letters(folder: Path) -> Iterator[AuditFinding]:
    for path in sorted((folder / DEAD_LETTERS).glob("*.jsonl")):
        node = NodeKey.of_encoded(path.stem)
        if node is not None:
            count = path.read_bytes().count(b"\n")
            yield AuditFinding("dead_letters", not count, *node, rows=count)


@job(
    options=AuditOptions,
    kinds=("*",),
    columns="""
        check string What was found: `incarnation`, `gap`, `duplicate`, `late`, `dropped`, `corrupt`, `lost`, `silence`,
          `silent`, `unread` (rows of a file whose index is gone, or ends before them), `dead_letters`, `lag` or
          `unreadable` (the file of a consumer).
        ok boolean Nothing to worry about.
        node string The node.
        incarnation bigint Its incarnation: milliseconds since the epoch.
        consumer string Of `lag` and `unreadable`: the consumer.
        seq bigint The first row that it is about; of `lag`, the next one to be read.
        rows bigint Rows, or events, that it is about.
        since timestamp When it began; of a gap or a duplicate, the time of the row behind it.
        until timestamp When it ended; null while it goes on.
        seconds double How long it was.
        reason string Of `dropped`, why; of `incarnation`: `stopped`, `killed`, `running`, `silent`; of
          `unreadable`, what is wrong.
    """,
    key=("check", "node", "incarnation", "consumer", "seq", "since"),
)
def audit(events: DataFrame, options: AuditOptions) -> DataFrame:
    """Whether the record is whole: gaps, lost and corrupt events, silent nodes, lag.

    It needs all events: with some left out by kind or time, there are gaps. The rows of each incarnation of a node are
    numbered, so each gap is known. In a stream a gap is reported when rows follow it that are `lateness` seconds newer;
    rows that fill it afterwards are `late`. An `incarnation` is reported when it ended: recorded ones all, as they
    stand.

    A node is silent when others have rows that are `silence` seconds newer than its newest. Where the source does not
    keep the nodes of a stream at the same time, one that is behind looks silent for a while.

    Raises:
        OptionError: `root` is not there; or it is given for a stream, while consumers are looked at once, when the job
            begins.
        LogError: the log at `root` cannot be read.
    """
    if options.root is not None and is_missing(options.root):
        raise OptionError(f"job audit: option root={options.root!r}: there is no such folder")
    if options.root is not None and events.isStreaming:
        raise OptionError("job audit: option root: is for recorded events; a stream has no moment to look at the log")
    silence = microseconds(options.silence)
    found = events.select(
        "node", "incarnation", "seq", F.unix_micros("time").alias("at"), "kind", "reason", "value"
    ).mapInArrow(partial(in_runs, silence), spark_schema(_RUN))
    if events.isStreaming:
        processor = Processor(silence, microseconds(options.lateness))
        findings = (
            found.withColumn("all", F.lit(0))
            .groupBy("all")
            .transformWithState(processor, spark_schema(_FINDING), outputMode="append", timeMode="none")
        )
    else:
        findings = (
            found.repartition(1)
            .sortWithinPartitions("node", "incarnation", "first", "end")
            .mapInArrow(partial(audited, silence), spark_schema(_FINDING))
        )
    if options.root is not None and (found_there := [*_batches(_FINDING, of_log(options.root))]):
        of_root = events.sparkSession.createDataFrame(pa.Table.from_batches(found_there), spark_schema(_FINDING))
        findings = findings.unionByName(of_root)
    return findings.withColumns({name: F.timestamp_micros(name) for name in ("since", "until")})
