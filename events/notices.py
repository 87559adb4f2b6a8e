"""What a reader of rows does not notice: rows that no index leads to, and corrections of the clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.fs import FileType

from trunkline.events.arrow_segment import ArrowSegment, rows_of_half
from trunkline.events.layout import DATA, INDEX, NodeKey
from trunkline.events.listing import covers
from trunkline.events.parquet_segment import ParquetSegment
from trunkline.events.projection import Projection
from trunkline.events.segment import Rows
from trunkline.events.times import from_microseconds, to_microseconds

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Sequence

    from trunkline.events.listing import SegmentFiles
    from trunkline.events.reader import EventLog, Segment

#: The kind of the rows that note a correction of the clock.
CLOCK: Final = "node.clock"
_OF_CLOCK: Final = Projection(["seq", "time", "kind", "value"])
#: Corrections that are named one by one.
_NAMED: Final = 5


class Unread(NamedTuple):
    """Rows that are in a file and that no reader finds."""

    node: NodeKey
    path: str
    #: Rows [first, end).
    first: int
    end: int
    #: For people.
    why: str

    def __str__(self) -> str:
        return f"{self.end - self.first} rows of {self.path} are not read: {self.why}"


class ClockCorrection(NamedTuple):
    """The clock of a node was put forward, or back."""

    seq: int
    #: Microseconds since the epoch.
    time: int
    #: By which it was put forward.
    seconds: float

    def __str__(self) -> str:
        moment = from_microseconds(self.time).isoformat(timespec="seconds").replace("+00:00", "Z")
        where = "back" if self.seconds < 0 else "forward"
        return f"the clock was put {where} by {abs(self.seconds):.1f} s: row {self.seq}, {moment}"


def notices(log: EventLog, nodes: Container[str], within: Callable[[int], bool]) -> list[str]:
    """Lines for people about these nodes, by their keys or names, or about all: rows that are not read, and
    corrections of the clock at times that are `within`, in microseconds since the epoch.

    Raises:
        LogError, OSError: as the log's reader.
    """

    def look() -> list[str]:
        found: list[str] = []
        for key, segments in log.segments():
            if not nodes or str(key) in nodes or key.name in nodes:
                lines = [*map(str, unread(log, key, segments))]
                lines += told([each for each in corrections(key, segments) if within(each.time)])
                found += [f"{key}: {line}" for line in lines]
        return found

    return log.steadily(look)


def unread(log: EventLog, key: NodeKey, segments: Iterable[Segment]) -> Iterator[Unread]:
    """The rows of a node that are in a file whose index is gone, or ends before them."""
    for segment in segments:
        if isinstance(segment, ArrowSegment) and (behind := segment.unindexed()):
            yield Unread(key, segment.path, segment.end, segment.end + behind, "its index ends before them")
    for files, rows in without_other(log, key):
        if files.paths[0].endswith(DATA):  # the others are among the missing ones
            yield Unread(key, files.paths[0], files.first, files.first + rows, "its index is gone")


def without_other(log: EventLog, key: NodeKey) -> Iterator[tuple[SegmentFiles, int]]:
    """The files of a node that have rows and no index, or an index and no rows, and how many rows. A segment that is
    being made has no rows yet, and the rows of one whose deletion was cut short are in another file."""
    listed = log.files().get(key, ())
    moved = [(files.first, files.end) for files in listed if files.end is not None]
    for files in listed:
        rows = 0 if files.is_whole else rows_of_half(log.filesystem, files)
        if rows and not covers(moved, files.first, files.first + rows) and not _has_other(log, files):
            yield files, rows


def _has_other(log: EventLog, files: SegmentFiles) -> bool:
    """Whether the other file was made since the log was listed."""
    stem, _, suffix = files.paths[0].rpartition(".")
    other = f"{stem}{INDEX if f'.{suffix}' == DATA else DATA}"
    [info] = log.filesystem.get_file_info([other])
    return bool(info.type != FileType.NotFound)


def corrections(key: NodeKey, segments: Iterable[Segment]) -> list[ClockCorrection]:
    """Of the clock of a node, by their rows."""
    found = {each.seq: each for segment in segments for each in _corrections(key, segment)}
    return [found[seq] for seq in sorted(found)]


def _corrections(key: NodeKey, segment: Segment) -> Iterator[ClockCorrection]:
    """With a correction begins a segment; many of these may be in one compacted file."""
    if isinstance(segment, ParquetSegment):
        places = list(segment.groups_with(CLOCK))
    else:
        places = [(batch.first, batch.end) for batch in segment.index.batches if batch.size][:1]
    for first, end in places:
        for piece in segment.read(key, first, end, _OF_CLOCK, verify=True):
            if isinstance(piece, Rows):
                rows = piece.batch.filter(pc.equal(piece.batch.column("kind"), pa.scalar(CLOCK, pa.string())))
                for row in rows.to_pylist():
                    yield ClockCorrection(row["seq"], to_microseconds(row["time"]), row["value"])


def told(found: Sequence[ClockCorrection]) -> Iterator[str]:
    """Lines for people; none if there were no corrections."""
    yield from map(str, found[:_NAMED])
    if others := found[_NAMED:]:
        yield f"the clock was put forward or back {len(others)} more times"
