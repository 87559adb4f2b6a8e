"""What one commit writes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sortedcontainers import SortedSet

if TYPE_CHECKING:
    from collections.abc import Callable

#: What a row takes in memory besides its bytes, roughly.
ROW_OVERHEAD: Final = 200
#: Values of a space that are looked at one by one for those in a range; while the disk is full there may be many, and
#: many ranges.
SCANNED: Final = 256
#: A value of so many bytes is packed by the thread that writes.
LARGE: Final = 16_384


class Space(NamedTuple):
    """A name space of keys, declared once by the module that uses it: `SESSIONS = Space("sessions")`."""

    name: str


class WriteBatch:
    """Changes that become durable together or not at all, in the order in which they were noted.

    Plain data, but for what is packed later: `ranges` are deleted before `values` are written, and what a range deletes
    of the batch's own values is taken out when the range is noted.
    """

    __slots__ = ("_later", "_sorted", "ranges", "values", "weight")

    def __init__(self) -> None:
        #: None deletes.
        self.values: dict[Space, dict[bytes, bytes | None]] = {}
        #: What gives the values that are not there yet.
        self._later: dict[tuple[Space, bytes], Callable[[], bytes]] = {}
        #: The keys of spaces with many values from which ranges are deleted, and some that are gone.
        self._sorted: dict[Space, SortedSet[bytes]] = {}
        #: Space, lowest key, and the first key above.
        self.ranges: list[tuple[Space, bytes, bytes]] = []
        #: Bytes noted so far, those overwritten included.
        self.weight = 0

    def put(self, space: Space, key: bytes, value: bytes) -> None:
        try:
            self.values[space][key] = value
        except KeyError:
            self.values[space] = {key: value}
        if self._sorted and space in self._sorted:
            self._sorted[space].add(key)
        self.weight += len(key) + len(value)

    def put_packed(self, space: Space, key: bytes, weight: int, pack: Callable[..., bytes], *arguments: Any) -> None:
        """A value of about so many bytes, which the thread that writes packs if that takes long."""
        if weight < LARGE:
            self.put(space, key, pack(*arguments))
        else:
            self.put(space, key, b"")
            self._later[space, key] = partial(pack, *arguments)
            self.weight += weight

    def add(self, later: WriteBatch) -> None:
        """Change what the other one changes, after what this one does."""
        weight = self.weight + later.weight
        for each in later.ranges:
            self.delete_range(*each)
        for space, values in later.values.items():
            self.values.setdefault(space, {}).update(values)
            if space in self._sorted:
                self._sorted[space].update(values)
        self._later |= later._later
        self.weight = weight

    def pack(self) -> None:
        """Get the values that are not there yet."""
        for (space, key), value in self._later.items():
            if self.values[space].get(key) == b"":  # nobody has deleted or put it since
                self.values[space][key] = value()
        self._later.clear()

    def weigh(self) -> None:
        """Count its bytes without what was overwritten."""
        self.pack()
        self.weight = sum(
            [len(key) + len(value or b"") for values in self.values.values() for key, value in values.items()]
        ) + sum([len(low) + len(high) for _, low, high in self.ranges])

    def delete(self, space: Space, key: bytes, *, put_once: bool = False) -> None:
        """A key that is `put_once`, and in this batch, is in no store yet: nothing of it is left to be written."""
        values = self.values.setdefault(space, {})
        if put_once and values.get(key) is not None:
            del values[key]
        else:
            values[key] = None
            if self._sorted and space in self._sorted:
                self._sorted[space].add(key)
            self.weight += len(key)

    def delete_range(self, space: Space, low: bytes, high: bytes) -> None:
        """Delete all keys with low <= key < high."""
        values = self.values.get(space)
        if values:
            if len(values) > SCANNED and space not in self._sorted:
                self._sorted[space] = SortedSet(values)
            keys = self._sorted.get(space)
            if keys is None:
                found = [key for key in values if low <= key < high]
            else:
                found = list(keys.irange(low, high, (True, False)))
                keys -= found
            for key in found:
                values.pop(key, None)
        self.ranges.append((space, low, high))
        self.weight += len(low) + len(high)

    @property
    def memory(self) -> int:
        """Bytes that it takes, roughly."""
        return self.weight + ROW_OVERHEAD * len(self)

    def __len__(self) -> int:
        """Rows, and ranges of them."""
        return len(self.ranges) + sum(map(len, self.values.values()))
