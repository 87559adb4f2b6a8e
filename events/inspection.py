"""The log for people: its newest events."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from trunkline.events.layout import NodeKey
from trunkline.mqtt.topics import matches

if TYPE_CHECKING:
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
