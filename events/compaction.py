"""Turns the finished part of the log into a few large files that other programs read fast: Parquet, or a Delta table.

Rows are written in the order of their numbers, and the target itself shows which are there. So it makes no difference
when compaction is killed: the next run goes on behind the last row that the target has, and no row is there twice.

It is meant for a process of its own: reading and writing Parquet takes the processor for longer than a broker can
spare.
"""

import contextlib
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

import pyarrow as pa
from pyarrow.fs import FileSystem, LocalFileSystem

from trunkline.events.delta import DeltaTarget
from trunkline.events.file_lock import locked
from trunkline.events.layout import CONSUMERS, LogError, NodeKey
from trunkline.events.listing import covers, list_segments
from trunkline.events.parquet_target import ParquetTarget, is_compacted, sweep
from trunkline.events.positions import Positions
from trunkline.events.reader import EventLog, Extent
from trunkline.events.target import Missing, Piece

#: Each target stores the position of each node itself, atomically with the rows.
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
    """The result of a run."""

    rows: int
    #: Or commits of a Delta table.
    files: int
    #: Of the files; 0 for a Delta table.
    bytes: int
    #: Rows that could not be read.
    missing: int
    #: Finished rows that are too few and too new for a file.
    waiting: int
    #: Rows in segments that are still written to.
    unfinished: int


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
    """Compact all finished segments of all nodes.

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
    root, *others = log.roots
    if others:
        raise LogError(f"{root} and {', '.join(others)}: compact one log at a time")
    home = Path(root) if isinstance(log.filesystem, LocalFileSystem) else None
    if home is not None and not home.is_dir():
        raise LogError(f"{home} does not contain an event log")
    into = _target(log, target, format, filesystem, storage_options, bytes_per_file)
    in_place = isinstance(into, ParquetTarget) and into.root == root and into.filesystem.equals(log.filesystem)
    if remove and not (in_place and home is not None):
        raise LogError("segments are only removed where their files take their place: in the log's own directory")
    now = time.time() if now is None else now
    positions = Positions(home, consumer) if home is not None else None
    local = isinstance(into, ParquetTarget) and isinstance(into.filesystem, LocalFileSystem)
    folder = Path(into.root) if isinstance(into, ParquetTarget) and local else None
    locks = [] if home is None else [home / CONSUMERS / f".{consumer}.lock"]
    locks += [] if folder is None else [folder / ".compaction.lock"]
    with _alone(locks):
        for day in [] if folder is None else folder.glob("*/date=*"):
            sweep(day)
        log.refresh()
        run = _Run(log, into, positions, rows_per_file, damaged, progress or (lambda _: None))
        for key, extent in run.nodes.items():
            run.node(key, extent, int((now - settle) * 1_000_000))
            if remove and isinstance(into, ParquetTarget):
                _remove(log, key, extent.sealed, into)
        return run.done


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
        #: Those with rows that will not change any more.
        self.nodes: Final = {NodeKey.parse(node): each for node, each in extents.items() if each.sealed > each.first}
        self._starts = {key: target.next_seq(key) or extent.first for key, extent in self.nodes.items()}
        self._total = sum(max(0, extent.sealed - self._starts[key]) for key, extent in self.nodes.items())
        self._at = {} if positions is None else {key: at for key, at in positions.read().items() if key in extents}
        unfinished = sum(extent.end - max(extent.sealed, extent.first) for extent in extents.values())
        self.done = Compacted(0, 0, 0, 0, 0, unfinished)

    def node(self, key: NodeKey, extent: Extent, settled: int) -> None:
        """Write the available rows of a node. Rows older than `settled`, in microseconds, do not wait for others."""
        at, last = self._starts[key], extent.sealed
        if at < last:
            self._note(key, at)
        while at < last:
            end = min(at + self._rows_per_file, last)
            if end == last and not extent.ended and self._waits(str(key), at, end, settled):
                break
            written = self._target.write(key, at, end, self._pieces(key, at, end))
            self.done = self.done._replace(
                rows=self.done.rows + written.rows,
                files=self.done.files + written.files,
                bytes=self.done.bytes + written.bytes,
                missing=self.done.missing + written.missing,
            )
            at = written.end
            self._note(key, at)
            self._report(key, 0)
        self.done = self.done._replace(waiting=self.done.waiting + max(0, last - at))

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
    """The missing rows that a row stands for, if any."""
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
        return ParquetTarget(log.roots[0], log.filesystem, bytes_per_file=bytes_per_file)
    # as a log is found, so are its files
    place = EventLog(target, filesystem=filesystem)
    return ParquetTarget(place.roots[0], place.filesystem, bytes_per_file=bytes_per_file)


@contextlib.contextmanager
def _alone(paths: Iterable[Path]) -> Generator[None]:
    """Two runs that write the same files at once would each mistake the other's files for their own.

    Raises:
        LogError: another process is compacting.
    """
    with contextlib.ExitStack() as locks:
        for path in paths:
            try:
                locks.enter_context(locked(path))
            except BlockingIOError:
                raise LogError(f"{path} is locked: compaction runs already") from None
        yield


def _remove(log: EventLog, key: NodeKey, end: int, target: ParquetTarget) -> None:
    """Delete a node's segments before `end` whose rows are all in files."""
    listed = list_segments(log.filesystem, log.roots[0], key).get(key, ())
    segments = [files for files in listed if not is_compacted(files)]
    compacted = target.files(key)
    for files, next_first in zip(segments, [*(other.first for other in segments[1:]), end], strict=False):
        behind = files.end or next_first
        if files.first < behind <= end and covers(compacted, files.first, behind):
            files.delete()
