"""Turns what is over in the log into few large files that other programs read fast: Parquet, or a Delta table.

Rows are written in the order of their numbers, and the target itself shows which are there. So it makes no difference
when compaction is killed: the next run goes on behind the last row that the target has, and no row is there twice.

It is meant for a process of its own: reading and writing Parquet takes the processor for longer than a broker can
spare.
"""

import contextlib
import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

import pyarrow as pa
from pyarrow.fs import FileSystem, LocalFileSystem

from trunkline.events.arrow_segment import ArrowSegment
from trunkline.events.delta import DeltaTarget
from trunkline.events.layout import CONSUMERS, DATA, INDEX, LogError, NodeKey, SegmentName
from trunkline.events.parquet_target import ParquetTarget
from trunkline.events.positions import Positions
from trunkline.events.reader import EventLog, Segment
from trunkline.events.target import Missing, Piece

#: Each keeps by itself how far each node has come: what was written, and up to where, is there in the same moment.
Target: TypeAlias = ParquetTarget | DeltaTarget

#: The name under which compaction keeps its position, so that nothing is deleted that it has not read.
CONSUMER: Final = "compaction"
#: Kinds of the rows that a reader puts in place of others.
_PLACEHOLDERS: Final = ("log.corrupt", "log.lost")
#: Rows between two calls of `progress`.
_REPORTED: Final = 50_000


class Progress(NamedTuple):
    #: The node key that is being compacted.
    node: str
    #: Rows of all nodes that were read so far, and that are to be read.
    rows: int
    total: int
    #: Files that are finished.
    files: int


class Compacted(NamedTuple):
    """What a run has done."""

    rows: int
    #: Or commits of a Delta table.
    files: int
    #: Of the files; 0 for a Delta table.
    bytes: int
    #: Rows that could not be read.
    missing: int
    #: Rows that are over, but too few and too new for a file.
    waiting: int
    #: Rows in segments that are still written to.
    unfinished: int


class Sealed(NamedTuple):
    """Rows [first, end) of a node that will not change any more."""

    key: NodeKey
    first: int
    end: int
    #: No more will come.
    ended: bool


def compact(
    log: EventLog | str | Path,
    target: str | Path | None = None,
    *,
    format: Literal["parquet", "delta"] = "parquet",
    filesystem: FileSystem | None = None,
    storage_options: Mapping[str, str] | None = None,
    rows_per_file: int = 5_000_000,
    bytes_per_file: int = 512 << 20,
    settle: float = 3600.0,
    damaged: Literal["fail", "skip"] = "fail",
    remove: bool = False,
    consumer: str = CONSUMER,
    now: float | None = None,
    progress: Callable[[Progress], object] | None = None,
) -> Compacted:
    """Compact all segments that are over, of all nodes.

    `target` is a directory or a URI: of files, with `filesystem` if it is a path in that one, or of a Delta table, with
    the `storage_options` of deltalake. Without it, the files are put into the log itself, where every reader of the log
    prefers them; with `remove`, the segments that they stand for are deleted then.

    A file ends with its day (by UTC), or when it has `rows_per_file` or `bytes_per_file`. Fewer rows wait for others
    until the newest of them is older than `settle` seconds, or no more can come. `now` is in seconds since the epoch.

    Rows that are damaged or deleted raise an error, or with `damaged="skip"` are passed over and counted: Parquet files
    leave a hole, a Delta table has a row of kind `log.corrupt` or `log.lost`.

    Raises:
        LogError: the log cannot be understood, rows are damaged, or compaction runs already.
        OSError: files cannot be reached or written.
    """
    if not isinstance(log, EventLog):
        log = EventLog(log)
    home = Path(log.root) if isinstance(log.filesystem, LocalFileSystem) else None
    if home is not None and not home.is_dir():
        raise LogError(f"no event log is in {home}")
    into = _target(log, target, format, filesystem, storage_options, bytes_per_file)
    in_place = isinstance(into, ParquetTarget) and into.root == log.root and into.filesystem.equals(log.filesystem)
    if remove and not (in_place and home is not None):
        raise LogError("segments are only removed where their files take their place: in the log's own directory")
    now = time.time() if now is None else now
    with _alone(home, consumer):
        positions = Positions(home, consumer) if home is not None else None
        log.refresh()
        run = _Run(log, into, positions, rows_per_file, damaged, progress or (lambda _: None))
        for part in run.nodes:
            run.node(part, int((now - settle) * 1_000_000))
            if remove and home is not None and isinstance(into, ParquetTarget):
                _remove(home, part, into)
        return run.done


def sealed(log: EventLog) -> list[Sealed]:
    """The rows of each node in segments that are not written to any more."""
    extents = log.nodes()
    found: list[Sealed] = []
    for key, segments in log.segments():
        extent = extents.get(str(key))
        if extent is None:
            continue
        end = extent.end if extent.ended else _sealed_end(segments, extent.end)
        if end > extent.first:
            found.append(Sealed(key, extent.first, end, extent.ended))
    return found


def _sealed_end(segments: list[Segment], end: int) -> int:
    """Where the segment begins that is being written."""
    raw = [segment for segment in segments if isinstance(segment, ArrowSegment)]
    return end if not raw or raw[-1].index.sealed else raw[-1].first


class _Run:
    """One run over all nodes."""

    def __init__(
        self,
        log: EventLog,
        target: Target,
        positions: Positions | None,
        rows_per_file: int,
        damaged: Literal["fail", "skip"],
        progress: Callable[[Progress], object],
    ) -> None:
        self._log = log
        self._target = target
        self._positions = positions
        self._rows_per_file = rows_per_file
        self._damaged: Literal["fail", "skip"] = damaged
        self._progress = progress
        extents = log.nodes()
        self.nodes: Final = sealed(log)
        self._starts = {part.key: target.next_seq(part.key) or part.first for part in self.nodes}
        self._total = sum(max(0, part.end - self._starts[part.key]) for part in self.nodes)
        self._at = {} if positions is None else {key: at for key, at in positions.read().items() if key in extents}
        ends = {str(part.key): part.end for part in self.nodes}
        unfinished = sum(extent.end - ends.get(key, extent.first) for key, extent in extents.items())
        self.done = Compacted(0, 0, 0, 0, 0, unfinished)

    def node(self, part: Sealed, settled: int) -> None:
        """Write what there is of a node. What is older than `settled`, in microseconds, waits for nothing."""
        at = self._starts[part.key]
        if at < part.end:
            self._note(part.key, at)
        while at < part.end:
            end = min(at + self._rows_per_file, part.end)
            if end == part.end and not part.ended and self._waits(str(part.key), at, end, settled):
                break
            written = self._target.write(part.key, at, end, self._pieces(part.key, at, end))
            self.done = self.done._replace(
                rows=self.done.rows + written.rows,
                files=self.done.files + written.files,
                bytes=self.done.bytes + written.bytes,
                missing=self.done.missing + written.missing,
            )
            at = written.end
            self._note(part.key, at)
            self._report(part.key, 0)
        self.done = self.done._replace(waiting=self.done.waiting + max(0, part.end - at))

    def _waits(self, node: str, first: int, end: int, settled: int) -> bool:
        """Whether rows that do not fill a file could share it with others that come: they are new, and of one day."""
        if end - first >= self._rows_per_file:
            return False
        newest = max((span.max_time for span in self._log.spans(node, first, end)), default=0)
        if newest <= settled:
            return False
        # of the row itself: a batch may begin on the day before
        (row,) = self._log.read(node, first, first + 1, columns=["time"], on_corrupt="skip", on_lost="skip")
        return _day(row.column("time").cast(pa.int64())[0].as_py() or newest) == _day(newest)

    def _pieces(self, key: NodeKey, first: int, end: int) -> Iterator[Piece]:
        read = reported = 0
        for batch in self._log.read(str(key), first, end, on_corrupt=self._damaged, on_lost=self._damaged):
            missing = _missing(batch)
            yield batch if missing is None else missing
            read += batch.num_rows if missing is None else missing.rows
            if read - reported >= _REPORTED:
                reported = read
                self._report(key, read)

    def _note(self, key: NodeKey, at: int) -> None:
        if self._positions is not None:
            self._at[str(key)] = at
            self._positions.write(self._at)

    def _report(self, key: NodeKey, more: int) -> None:
        """`more` rows were read since the last file."""
        rows = self.done.rows + self.done.missing + more
        self._progress(Progress(str(key), rows, self._total, self.done.files))


def _missing(batch: pa.RecordBatch) -> Missing | None:
    """What a row stands for, if it was put in place of others."""
    if batch.num_rows != 1 or batch.column("kind")[0].as_py() not in _PLACEHOLDERS:
        return None
    return Missing(batch.column("seq")[0].as_py(), int(batch.column("value")[0].as_py()), batch)


def _day(microseconds: int) -> int:
    return microseconds // 86_400_000_000


def _target(
    log: EventLog,
    target: str | Path | None,
    format: Literal["parquet", "delta"],
    filesystem: FileSystem | None,
    storage_options: Mapping[str, str] | None,
    bytes_per_file: int,
) -> Target:
    if format == "delta":
        if target is None:
            raise LogError("a Delta table needs a place of its own, beside the log")
        return DeltaTarget(str(target), storage_options)
    if target is None:
        return ParquetTarget(log.root, log.filesystem, bytes_per_file=bytes_per_file)
    # as a log is found, so are its files
    place = EventLog(target, filesystem)
    return ParquetTarget(place.root, place.filesystem, bytes_per_file=bytes_per_file)


@contextlib.contextmanager
def _alone(home: Path | None, consumer: str) -> Generator[None]:
    """Two that write the same files at once would each take the other's for their own.

    Raises:
        LogError: another process has begun.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    if home is None:
        yield
        return
    path = home / CONSUMERS / f".{consumer}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LogError(f"{home}: {consumer} runs already") from None
        yield


def _remove(home: Path, part: Sealed, target: ParquetTarget) -> None:
    """Delete a node's segments whose rows are all in files."""
    folder = home / part.key.directory
    names = [name for name in map(SegmentName.parse, os.listdir(folder)) if name is not None and name.end is None]
    firsts = sorted({name.first for name in names})
    files = target.files(part.key)
    for first, end in pairwise([*firsts, part.end]):
        if first < end <= part.end and covers(files, first, end):
            # without its index, a segment is none
            for suffix in (INDEX, DATA):
                (folder / str(SegmentName(first, None, suffix))).unlink(missing_ok=True)


def covers(files: list[tuple[int, int]], first: int, end: int) -> bool:
    """Whether all of [first, end) is in files, which are sorted."""
    at = first
    for low, high in files:
        if low > at:
            break
        at = max(at, high)
    return at >= end
