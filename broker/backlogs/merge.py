"""The entries of several backlogs in the order of their sequence, read from an engine page by page."""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, NamedTuple

from trunkline.broker.backlogs.rows import ENTRIES, Entry, entry_from_row, entry_key
from trunkline.broker.stored_publications import REFERENCES, queued_rows, stored_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trunkline.store import Engine

#: Entries of one backlog that are read at a time: each row waits for the GIL, beside traffic.
AT_ONCE: Final = 64
#: Entries, roughly, that are in memory for one reader, however many backlogs it reads.
MAX_BUFFERED: Final = 4096
#: Backlogs that are looked into before commits have their turn.
BACKLOGS_AT_ONCE: Final = 256


class Read(NamedTuple):
    """An entry, the publication as bytes unless it is lost, what the store says of its rows in queues, and the backlogs
    that have it, with what they had had until then."""

    entry: Entry
    data: bytes | None
    queued: int
    totals: tuple[tuple[int, Entry], ...]


class Merge:
    """Belongs to one reader. Used in the thread of the engine, while nobody else uses it."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []
        self._buffers: dict[int, deque[Entry]] = {}
        #: Backlogs that were not looked into yet, and the last entry that was read of each.
        self._unseen: list[tuple[int, int]] = []

    @property
    def drained(self) -> bool:
        """There was nothing more when it was read last."""
        return not self._heap and not self._unseen

    def page(self, engine: Engine, woken: list[tuple[int, int]], max_rows: int, max_weight: int) -> list[Read]:
        """The next entries with their publications. `woken` are backlogs that may have more than there was, each with
        the last entry that was read of it. There are none yet if many backlogs have to be looked into."""
        self._unseen.extend(woken)
        for _ in range(min(len(self._unseen), BACKLOGS_AT_ONCE)):
            backlog, after = self._unseen.pop()
            if backlog not in self._buffers:
                self._refill(engine, backlog, after)
        if self._unseen:
            return []
        reads: list[Read] = []
        weight, number, data, queued, in_queues = 0, 0, None, 0, engine.count(REFERENCES) > 0
        for entry, totals in self._walk(engine):
            if entry.number != number:
                number, data = entry.number, stored_bytes(engine, entry.number)
                queued = queued_rows(engine, number) if in_queues else 0
            reads.append(Read(entry, data, queued, totals))
            weight += entry.weight
            if len(reads) >= max_rows or weight >= max_weight:
                break
        return reads

    def _walk(self, engine: Engine) -> Iterator[tuple[Entry, tuple[tuple[int, Entry], ...]]]:
        heap, buffers = self._heap, self._buffers
        while heap:
            sequence = heap[0][0]
            found: list[tuple[int, Entry]] = []
            while heap and heap[0][0] == sequence:
                _, backlog = heappop(heap)
                entry = buffers[backlog].popleft()
                found.append((backlog, entry))
                if buffers[backlog]:
                    heappush(heap, (buffers[backlog][0].sequence, backlog))
                else:
                    self._refill(engine, backlog, sequence)
            yield found[0][1], tuple(found)

    def _refill(self, engine: Engine, backlog: int, after: int) -> None:
        low, high = entry_key(backlog, after + 1), entry_key(backlog + 1, 0)
        others = len(self._buffers) + len(self._unseen)
        rows = engine.scan(ENTRIES, low, high, limit=max(2, min(AT_ONCE, MAX_BUFFERED // (others + 1))))
        if rows:
            self._buffers[backlog] = deque([entry_from_row(key, row) for key, row in rows])
            heappush(self._heap, (self._buffers[backlog][0].sequence, backlog))
        else:
            self._buffers.pop(backlog, None)
