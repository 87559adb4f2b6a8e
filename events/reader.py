"""Reads any range of rows of the log, each row once, from files of either format.

It follows a log that is being written, and one that others compact or clear up meanwhile: rows that were moved are
searched for again before they count as lost.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias, TypeVar

import pyarrow as pa
from pyarrow.fs import FileSystem

from trunkline.events.arrow_segment import ArrowSegment
from trunkline.events.layout import LogError, NodeKey
from trunkline.events.listing import SegmentFiles, list_logs, located
from trunkline.events.parquet_segment import ParquetSegment
from trunkline.events.projection import Projection
from trunkline.events.segment import Damage

__all__ = ["CorruptBatch", "EventLog", "Extent", "LogError", "LostRows", "Span"]

T = TypeVar("T")

#: A file of rows, in either format.
Segment: TypeAlias = ArrowSegment | ParquetSegment

#: Segments whose indexes or footers are kept. Tens of kilobytes each.
_WARM: Final = 64
#: How often a file may be in the listing although it is gone.
_TRIES: Final = 5


class CorruptBatch(LogError):
    """Rows [first, end) of a segment cannot be read."""

    def __init__(self, path: str, first: int, end: int, reason: str) -> None:
        super().__init__(f"{path}: rows {first} to {end - 1} are corrupt: {reason}")
        self.path: Final = path
        self.first: Final = first
        self.end: Final = end


class LostRows(LogError):
    """Rows [first, end) of a node are not, or no longer, in the log."""

    def __init__(self, node: str, first: int, end: int, held: str) -> None:
        super().__init__(f"rows {first} to {end - 1} of {node} are not in the log: {held}")
        self.node: Final = node
        self.first: Final = first
        self.end: Final = end


class Extent(NamedTuple):
    """The available rows of a node: [first, end)."""

    first: int
    end: int
    #: No more rows will come: it ended normally, or has been restarted since.
    ended: bool
    #: Time of its newest row, microseconds since the epoch.
    newest: int
    #: Rows before this number are in segments that will not change any more.
    sealed: int


class Span(NamedTuple):
    """Rows [first, end) of a node that are together in a file, and cheap to read together."""

    node: str
    first: int
    end: int
    #: Microseconds since the epoch, of the whole batch or row group.
    min_time: int
    max_time: int
    #: Bytes in the file.
    size: int
    #: Of the file.
    path: str


class _Node:
    """The segments of one node, as of the last listing."""

    def __init__(self, key: NodeKey, segments: Sequence[Segment]) -> None:
        self.key: Final = key
        #: All of them, by their first rows; those whose rows are in others too.
        self.segments: Final = segments
        self.arrows: Final = [segment for segment in segments if isinstance(segment, ArrowSegment)]
        self.parquets: Final = [segment for segment in segments if isinstance(segment, ParquetSegment)]
        #: How far the segments up to each one go, for they may overlap.
        self._reach: Final = list(accumulate((segment.end for segment in self.parquets), max))

    def covering(self, seq: int) -> tuple[Segment, int] | None:
        """The segment to read a row from, and up to where: a compacted one where there is one."""
        behind = bisect_right(self.parquets, seq, key=lambda segment: segment.first)
        best: ParquetSegment | None = None
        for number in range(behind - 1, -1, -1):
            if self._reach[number] <= seq:
                break
            segment = self.parquets[number]
            if segment.end > (best.end if best else seq):
                best = segment
        if best is not None:
            return best, best.end
        number = bisect_right(self.arrows, seq, key=lambda segment: segment.first) - 1
        if number < 0 or self.arrows[number].end <= seq:
            return None
        follow: list[Segment] = [*self.parquets[behind : behind + 1], *self.arrows[number + 1 : number + 2]]
        return self.arrows[number], min([self.arrows[number].end, *(segment.first for segment in follow)])

    def after(self, seq: int) -> int | None:
        """The number of the first row behind `seq` that is there."""
        found = [segment.first for segment in self.parquets if segment.first > seq][:1]
        for segment in self.arrows[bisect_right(self.arrows, seq, key=lambda segment: segment.first) :]:
            if segment.end > segment.first:
                found.append(segment.first)
                break
        return min(found, default=None)

    def first(self) -> int | None:
        return 0 if self.covering(0) else self.after(0)

    def newest(self) -> Segment | None:
        """The segment with the last row."""
        last: Segment | None = max(self.parquets, key=lambda segment: segment.end, default=None)
        for segment in reversed(self.arrows):
            if segment.end > segment.first:
                return segment if last is None or segment.end > last.end else last
        return last

    def is_closed(self) -> bool:
        if self.arrows and self.arrows[-1].index.last:
            return True
        last = self.newest()
        try:
            return isinstance(last, ParquetSegment) and last.is_last
        except FileNotFoundError:
            return False

    def sealed(self, end: int) -> int:
        """Where the segment begins that is being written."""
        return end if not self.arrows or self.arrows[-1].index.sealed else self.arrows[-1].first


class EventLog:
    """The log below a directory, or below a URI that pyarrow knows (`s3://…`, `gs://…`, `file://…`).

    A path of this machine may be a pattern (`*`, `?`, `[…]`) that stands for several directories. Several places are
    read as one log, and a node may be in one of them only. With `filesystem`, they are paths in that one. A missing
    directory is a log without nodes: it may be created later. One object belongs to one thread at a time.

    All methods raise LogError for an invalid log, and OSError if the files cannot be read.
    """

    def __init__(self, *roots: str | Path, filesystem: FileSystem | None = None) -> None:
        found = [located(root) if filesystem is None else (filesystem, str(root)) for root in roots]
        #: Where the log is, within `filesystem`.
        self.roots: Final = tuple(base.rstrip("/") or base for _, base in found)
        self.filesystem: Final = found[0][0]
        for root, (system, _) in zip(roots, found, strict=True):
            if not system.equals(self.filesystem):
                raise LogError(f"{root}: it is on another file system than {roots[0]}; read them apart")
        self._nodes: dict[str, _Node] | None = None
        self._files: dict[NodeKey, list[SegmentFiles]] = {}
        self._segments: dict[str, Segment] = {}
        self._warm: OrderedDict[str, Segment] = OrderedDict()

    def refresh(self) -> None:
        """Looks for new nodes, segments and rows. Of an index that was read before only what is new is read."""
        segments: dict[str, Segment] = {}
        nodes: list[_Node] = []
        self._files = list_logs(self.filesystem, self.roots)
        for key, listed in self._files.items():
            mine: list[Segment] = []
            for files in listed:
                if files.is_whole:
                    made = ArrowSegment if files.end is None else ParquetSegment
                    segment = self._segments.get(files.paths[-1]) or made(self.filesystem, files)
                    segment.mark_stale()
                    segments[segment.path] = segment
                    mine.append(segment)
            nodes.append(_Node(key, mine))
        self._segments = segments
        for path in [path for path in self._warm if path not in segments]:
            del self._warm[path]
        self._nodes = {str(node.key): node for node in sorted(nodes, key=lambda node: node.key)}

    def nodes(self) -> dict[str, Extent]:
        """The extent of each node with rows, by its key, as of the last `refresh`."""
        return self.steadily(self._extents)

    def steadily(self, look: Callable[[], T]) -> T:
        """What `look` returns, which is called again if files were merged, compacted or deleted after they were
        listed."""
        for _ in range(_TRIES - 1):
            with suppress(FileNotFoundError):
                return look()
            self.refresh()
        return look()

    def _extents(self) -> dict[str, Extent]:
        extents: dict[str, Extent] = {}
        latest = {node.key.name: node.key for node in self._known().values()}
        for text, node in self._known().items():
            first, segment = node.first(), node.newest()
            if first is not None and segment is not None:
                ended = latest[node.key.name] != node.key or node.is_closed()
                newest = self._newest(segment)
                extents[text] = Extent(
                    first,
                    segment.end,
                    ended,
                    _start_of(node.key) if newest is None else newest,
                    segment.end if ended else node.sealed(segment.end),
                )
        return extents

    def spans(self, node: str, first: int, end: int | None = None) -> Iterator[Span]:
        """The spans that [first, end) consists of, in order and cut to it; without `end`, all from `first` on. Missing
        rows have no span; damaged rows do."""
        NodeKey.parse(node)
        return self._spans(node, first, end)

    def read(
        self,
        node: str,
        first: int,
        end: int,
        *,
        columns: Sequence[str] | None = None,
        on_corrupt: Literal["fail", "skip"] = "fail",
        on_lost: Literal["fail", "skip"] = "fail",
        verify: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """Exactly rows [first, end) of a node in order, with the columns that are asked for, or all of `SCHEMA`.

        With "skip", a row of kind `log.corrupt` or `log.lost` stands for each run of rows that cannot be read: its
        `seq` is the first one's, its `value` how many there are, its time that of a neighbour. Without `verify`,
        checksums are not checked.

        Raises CorruptBatch and LostRows, after all rows before have come; both are LogErrors, as is the error for an
        unknown column.
        """
        key = NodeKey.parse(node)
        if not 0 <= first <= end:
            raise LogError(f"rows {first} to {end} are not a valid range")
        return self._read(key, first, end, Projection(columns), on_corrupt == "skip", on_lost == "skip", verify)

    def segments(self) -> Iterator[tuple[NodeKey, Sequence[Segment]]]:
        """All files of each node as of the last `refresh`, by their first rows; those whose rows are in others too."""
        for node in list(self._known().values()):
            yield node.key, node.segments

    def files(self) -> Mapping[NodeKey, Sequence[SegmentFiles]]:
        """The files of each node as of the last `refresh`, also those that lack their other half."""
        self._known()
        return self._files

    def _read(
        self,
        key: NodeKey,
        first: int,
        end: int,
        projection: Projection,
        skip_corrupt: bool,
        skip_lost: bool,
        verify: bool,
    ) -> Iterator[pa.RecordBatch]:
        node = str(key)
        at = first
        failures = 0
        while at < end:
            segment, upto = self._find(node, at, end)
            if segment is None:
                if not skip_lost:
                    raise LostRows(node, at, upto, self._held(node))
                yield projection.placeholder(key, "log.lost", at, upto - at, self._time_beside(key, at, upto))
                at = upto
                continue
            try:
                for piece in segment.read(key, at, upto, projection, verify=verify):
                    if isinstance(piece, Damage):
                        if not skip_corrupt:
                            raise CorruptBatch(segment.path, piece.first, piece.end, piece.reason)
                        time = self._time_beside(key, piece.first, piece.end) if piece.time is None else piece.time
                        yield projection.placeholder(key, "log.corrupt", piece.first, piece.end - piece.first, time)
                    else:
                        yield piece.batch
                    at = piece.end
                    failures = 0
            except FileNotFoundError:
                failures += 1
                self._retry(segment, failures)

    def _spans(self, node: str, first: int, end: int | None) -> Iterator[Span]:
        at = first
        newest = 0
        failures = 0
        while end is None or at < end:
            segment, upto = self._find(node, at, end)
            if segment is None:
                if upto == at:
                    return
                at = upto
                continue
            try:
                for part in segment.parts(at, upto):
                    low, high = max(at, part.first), min(upto, part.end)
                    min_time = newest if part.min_time is None else part.min_time
                    newest = min_time if part.max_time is None else part.max_time
                    size = part.size * (high - low) // (part.end - part.first)
                    yield Span(node, low, high, min_time, newest, size, segment.path)
                    at = high
                    failures = 0
            except FileNotFoundError:
                failures += 1
                self._retry(segment, failures)

    def _find(self, node: str, at: int, end: int | None) -> tuple[Segment | None, int]:
        """The segment with row `at`, and up to where to read it. None if the rows up to there are in none."""
        after: int | None = None
        for again in range(_TRIES):
            if again:
                self.refresh()  # missing rows may just have been moved
            if there := self._known().get(node):
                try:
                    if (found := there.covering(at)) is not None:
                        segment, upto = found
                        return self._touch(segment), upto if end is None else min(upto, end)
                    after = there.after(at)
                except FileNotFoundError:
                    if again == _TRIES - 1:
                        raise
                    continue
            if again or (end is None and after is None):
                break
        if end is None:
            return None, at if after is None else after
        return None, end if after is None else min(after, end)

    def _retry(self, segment: Segment, failures: int) -> None:
        if failures >= _TRIES:
            raise LogError(f"{segment.path}: it is in the listing but does not exist")
        self.refresh()

    def _known(self) -> dict[str, _Node]:
        if self._nodes is None:
            self.refresh()
        return self._nodes or {}

    def _touch(self, segment: Segment) -> Segment:
        self._warm[segment.path] = segment
        self._warm.move_to_end(segment.path)
        if len(self._warm) > max(_WARM, 2 * len(self._known())):
            self._warm.popitem(last=False)[1].forget()
        return segment

    def _newest(self, segment: Segment) -> int | None:
        try:
            return self._touch(segment).newest
        except FileNotFoundError:  # reading the rows will report it
            return None

    def _held(self, node: str) -> str:
        extent = self.nodes().get(node)
        return "the log has no such node" if extent is None else f"it has {extent.first} to {extent.end - 1}"

    def _time_beside(self, key: NodeKey, first: int, end: int) -> int:
        """Time of what comes behind the rows, or else before them, or else when the exporter started."""
        for span in self._spans(str(key), end, None):
            if span.min_time:
                return span.min_time
            break
        extent = self.nodes().get(str(key))
        return extent.newest if extent is not None and extent.end <= first else _start_of(key)


def _start_of(key: NodeKey) -> int:
    return key.incarnation * 1000
