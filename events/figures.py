"""The state of a log in figures: what there is of each node, what is missing of it, and how far consumers have read.

Only indexes and footers are read, the end of a segment that has no seal, and where a correction of the clock is noted.
So rows that are damaged within a file are not seen here: `checking` finds those.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyarrow.fs import FileType

from trunkline.events.layout import BEATS, LogError, NodeKey, local_root
from trunkline.events.notices import ClockCorrection, corrections, told, unread
from trunkline.events.parquet_segment import ParquetSegment
from trunkline.events.positions import Positions, consumers
from trunkline.events.segment import Part

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from trunkline.events.listing import SegmentFiles
    from trunkline.events.reader import EventLog, Extent, Segment

#: Microseconds by which times may go back from one batch to the next: rows are only nearly in the order of their times.
_NEARLY: Final = 1_000_000
#: Places of one kind that are named one by one.
_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """The state of one incarnation of a node."""

    node: str
    #: How many there are of [first, end), and how many there are not.
    rows: int
    missing: int
    first: int
    end: int
    ended: bool
    segments: int
    #: Bytes of the files.
    size: int
    #: Microseconds since the epoch.
    oldest: int
    newest: int
    #: What is missing, and what is wrong with the times, for people.
    notes: list[str]


@dataclass(frozen=True, slots=True)
class ConsumerFigures:
    """How far a consumer has read."""

    consumer: str
    #: Rows that it has not read yet.
    lag: int
    #: Rows that were deleted before it read them.
    missed: int
    updated: str


@dataclass(frozen=True, slots=True)
class Figures:
    nodes: list[NodeFigures] = field(default_factory=list[NodeFigures])
    consumers: list[ConsumerFigures] = field(default_factory=list[ConsumerFigures])
    #: Files that cannot be read, and consumers that are missing here because of theirs.
    problems: list[str] = field(default_factory=list[str])


def figures(log: EventLog, root: str) -> Figures:
    """As of the log's last `refresh`, or of a later one.

    Raises:
        LogError, OSError: the log's reader cannot tell which nodes there are.
    """
    return log.steadily(lambda: _figures(log, root))


def _figures(log: EventLog, root: str) -> Figures:
    found = Figures()
    extents = log.nodes()
    for key, segments in log.segments():
        if (extent := extents.get(str(key))) is not None:
            found.nodes.append(_node(log, key, extent, segments, found.problems))
        else:
            found.problems.extend(map(str, unread(log, key, segments)))
    if local_root(root) is not None:
        _consumers(root, extents, found)
    return found


def _node(log: EventLog, key: NodeKey, extent: Extent, segments: Sequence[Segment], problems: list[str]) -> NodeFigures:
    missing: list[tuple[int, int]] = []
    oldest: int | None = None
    at, newest = extent.first, 0
    back: list[int] = []
    for part in sorted(_parts(log, segments, problems), key=lambda part: part.first):
        if part.end <= at:  # of a segment that is compacted already
            continue
        if part.first > at:
            missing.append((at, part.first))
        at = part.end
        if part.min_time is not None and part.max_time is not None:
            oldest = part.min_time if oldest is None else oldest
            if part.min_time < newest - _NEARLY:
                back.append(part.first)
            newest = part.max_time
    if at < extent.end:
        missing.append((at, extent.end))
    notes = list(_told_missing(missing))
    try:
        notes += map(str, unread(log, key, segments))
        notes += _told_clock(corrections(key, segments), back)
    except FileNotFoundError:
        raise
    except (LogError, OSError) as error:
        if str(error) not in problems:
            problems.append(str(error))
    lost = sum(end - first for first, end in missing)
    return NodeFigures(
        str(key),
        extent.end - extent.first - lost,
        lost,
        extent.first,
        extent.end,
        extent.ended,
        len(segments),
        sum(_size(log, one.files) for one in segments),
        extent.newest if oldest is None else oldest,
        extent.newest,
        notes,
    )


def _parts(log: EventLog, segments: Iterable[Segment], problems: list[str]) -> Iterator[Part]:
    """All but those that have a number and no rows: their index record is damaged, or their file ends before them."""
    for segment in segments:
        try:
            if isinstance(segment, ParquetSegment):
                if segment.is_readable():
                    yield from segment.parts(segment.first, segment.end)
                continue
            (info,) = log.filesystem.get_file_info([segment.path])
            if info.type == FileType.NotFound:
                log.filesystem.open_input_file(segment.path).close()  # says why: it is gone, or a link in a circle
                raise FileNotFoundError(segment.path)  # it came back
            for batch in segment.index.batches:
                if batch.flags & BEATS or 0 < batch.size <= (info.size or 0) - batch.offset:
                    yield Part(batch.first, batch.end, batch.min_time, batch.max_time, batch.size)
        except FileNotFoundError:
            raise
        except (LogError, OSError) as error:
            problems.append(str(error))


def _told_missing(missing: Sequence[tuple[int, int]]) -> Iterator[str]:
    runs: list[tuple[int, int]] = []
    for first, end in missing:
        if runs and runs[-1][1] == first:
            runs[-1] = (runs[-1][0], end)
        else:
            runs.append((first, end))
    for first, end in runs[:_NAMED]:
        yield f"rows {first} to {end - 1} are missing"
    if others := runs[_NAMED:]:
        yield f"{sum(end - first for first, end in others)} more rows are missing, in {len(others)} places"


def _told_clock(found: Sequence[ClockCorrection], back: Sequence[int]) -> Iterator[str]:
    yield from told(found)
    if len(back) > sum(each.seconds < 0 for each in found):
        yield f"times go back, first at row {back[0]}"


def _consumers(root: str, extents: Mapping[str, Extent], found: Figures) -> None:
    for name in consumers(root):
        place = Positions(root, name)
        try:
            at, updated = place.read(), place.updated()
        except (LogError, OSError) as error:
            found.problems.append(str(error))
            continue
        found.consumers.append(
            ConsumerFigures(
                name,
                sum(max(0, extent.end - max(extent.first, at.get(node, 0))) for node, extent in extents.items()),
                sum(max(0, extent.first - at.get(node, 0)) for node, extent in extents.items()),
                updated.isoformat() if updated else "",
            )
        )


def _size(log: EventLog, files: SegmentFiles) -> int:
    """Of the files; nothing when they are gone meanwhile."""
    return sum(info.size or 0 for info in log.filesystem.get_file_info(list(files.paths)))
