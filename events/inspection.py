"""The log for people: its newest events, and the state of each node."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from trunkline.events.layout import LogError, NodeKey, local_root
from trunkline.events.positions import Positions, consumers
from trunkline.mqtt.topics import matches

if TYPE_CHECKING:
    from trunkline.events.listing import SegmentFiles
    from trunkline.events.reader import EventLog

Row = Mapping[str, Any]

#: Rows that are searched at once, from the end of a node backwards.
_STEP: Final = 10_000


@dataclass(frozen=True, slots=True)
class Selection:
    """Selects the events to show; an empty field selects all."""

    node: str = ""
    #: Patterns with `*` and `?`.
    kinds: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()
    #: Topic filters.
    topics: tuple[str, ...] = ()

    def has_node(self, key: str) -> bool:
        return not self.node or self.node in (key, NodeKey.parse(key).name)

    def takes(self, row: Row) -> bool:
        return (
            _any(self.kinds, row["kind"])
            and _any(self.clients, row["client_id"])
            and (
                not self.topics or (row["topic"] is not None and any(matches(one, row["topic"]) for one in self.topics))
            )
        )


def _any(patterns: tuple[str, ...], text: str | None) -> bool:
    return not patterns or (text is not None and any(fnmatchcase(text, pattern) for pattern in patterns))


def newest(log: EventLog, choice: Selection, count: int) -> tuple[list[Row], dict[str, int]]:
    """The last `count` selected events, by time, and where each node ends.

    Raises:
        LogError, OSError: as the log's reader.
    """
    log.refresh()
    found: list[Row] = []
    ends: dict[str, int] = {}
    for node, extent in log.nodes().items():
        ends[node] = extent.end
        if not choice.has_node(node):
            continue
        mine: deque[Row] = deque()
        end = extent.end
        while end > extent.first and len(mine) < count:
            first = max(extent.first, end - _STEP)
            mine.extendleft(reversed([row for row in _rows(log, node, first, end) if choice.takes(row)]))
            end = first
        found += list(mine)[-count:] if count else []
    return sorted(found, key=_moment)[-count:] if count else [], ends


def following(log: EventLog, choice: Selection, ends: dict[str, int]) -> list[Row]:
    """The new events by time; `ends` is updated to where each node ends now. For events that were deleted before they
    could be shown there is an event `log.lost`.

    Raises:
        LogError, OSError: as the log's reader.
    """
    log.refresh()
    found: list[Row] = []
    for node, extent in log.nodes().items():
        first = ends.get(node, extent.first)
        ends[node] = extent.end
        if choice.has_node(node) and first < extent.end:
            found += [row for row in _rows(log, node, first, extent.end) if choice.takes(row)]
    return sorted(found, key=_moment)


def _moment(row: Row) -> Any:
    return row["time"], row["node"], row["incarnation"], row["seq"]


def _rows(log: EventLog, node: str, first: int, end: int) -> Iterator[Row]:
    for batch in log.read(node, first, end, on_corrupt="skip", on_lost="skip"):
        yield from batch.to_pylist()


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """The state of one incarnation of a node."""

    node: str
    first: int
    end: int
    ended: bool
    segments: int
    #: Bytes of the files.
    size: int
    #: Microseconds since the epoch.
    oldest: int
    newest: int

    @property
    def rows(self) -> int:
        return self.end - self.first


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
    #: Problems of the consumers that are missing here.
    problems: list[str] = field(default_factory=list[str])


def figures(log: EventLog, root: str) -> Figures:
    """
    Raises:
        LogError, OSError: as the log's reader.
    """
    log.refresh()
    extents = log.nodes()
    sizes = {str(key): (len(found), sum(_size(log, one.files) for one in found)) for key, found in log.segments()}
    rows: list[NodeFigures] = []
    for node, extent in extents.items():
        first = next(log.spans(node, extent.first, extent.first + 1), None)
        oldest = extent.newest if first is None else first.min_time
        count, size = sizes.get(node, (0, 0))
        rows.append(NodeFigures(node, extent.first, extent.end, extent.ended, count, size, oldest, extent.newest))
    if local_root(root) is None:
        return Figures(rows)
    readers: list[ConsumerFigures] = []
    problems: list[str] = []
    for name in consumers(root):
        place = Positions(root, name)
        try:
            at, updated = place.read(), place.updated()
        except (LogError, OSError) as error:
            problems.append(str(error))
            continue
        readers.append(
            ConsumerFigures(
                name,
                sum(max(0, extent.end - max(extent.first, at.get(node, 0))) for node, extent in extents.items()),
                sum(max(0, extent.first - at.get(node, 0)) for node, extent in extents.items()),
                updated.isoformat() if updated else "",
            )
        )
    return Figures(rows, readers, problems)


def _size(log: EventLog, files: SegmentFiles) -> int:
    """Of the files; nothing when they are gone meanwhile."""
    return sum(info.size or 0 for info in log.filesystem.get_file_info(list(files.paths)))
