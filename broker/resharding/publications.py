"""The publications of a former part: they go to the new parts whose sessions have them, under new numbers.

The new numbers follow each other in the order of the former ones, those of each former part behind those of the one
before. So they are as many as there are publications, however often a store is divided anew.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from trunkline.broker.stored_publications import MESSAGES, REFERENCES
from trunkline.mqtt.packing import pack
from trunkline.mqtt.stored_codec import publication_from_bytes, publication_to_bytes
from trunkline.store.engine import key_of, number_of, rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.broker.resharding.new_parts import NewParts
    from trunkline.store import Engine

#: How many rows of queues a publication may have.
_COUNT: Final = "I"


class Publications:
    def __init__(self, engine: Engine, parts: NewParts, base: int) -> None:
        """`base` is the last number that the publications of earlier parts have got."""
        self._engine = engine
        self._parts = parts
        self._base = base
        self._former = array("Q", [number_of(key) for key, _ in rows(engine, MESSAGES)])
        # By new part, of each publication: its rows in queues, and whether a window has it.
        count = len(self._former)
        self._queued = [array(_COUNT, bytes(array(_COUNT).itemsize * count)) for _ in range(len(parts))]
        self._in_windows = [bytearray(count) for _ in range(len(parts))]

    @property
    def last(self) -> int:
        """The last number that they have got."""
        return self._base + len(self._former)

    def queued(self, part: int, number: int) -> int | None:
        """A row of a queue in this new part refers to it. Returns its new number; None: it is lost."""
        at = self._find(number)
        if at is None:
            return None
        self._queued[part][at] += 1
        return self._base + at + 1

    def in_window(self, part: int, number: int) -> int | None:
        """The same of a row of a window."""
        at = self._find(number)
        if at is None:
            return None
        self._in_windows[part][at] = 1
        return self._base + at + 1

    def _find(self, number: int) -> int | None:
        at = bisect_left(self._former, number)
        return at if at < len(self._former) and self._former[at] == number else None

    def copy(self, lag: float, step: Callable[[], object]) -> None:
        """To where they were asked for. `lag` is what is added to their moments, `step` is called after each."""
        for at, (_, row) in enumerate(rows(self._engine, MESSAGES)):
            if lag:
                row = publication_to_bytes(publication_from_bytes(row, 0.0), lag)
            key = key_of(self._base + at + 1)
            for part, queued, in_windows in zip(self._parts.all, self._queued, self._in_windows, strict=True):
                if queued[at] or in_windows[at]:
                    part.put(MESSAGES, key, row)
                if queued[at] + in_windows[at] > 1:
                    part.put(REFERENCES, key, pack(queued[at]))
            step()
