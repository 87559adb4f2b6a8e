"""A bounded queue for a few slots, served round-robin by group, and within a group by name: who has many waiters does
not delay the others."""

from __future__ import annotations

from collections import OrderedDict, deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeAlias

import trio

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Hashable

Group: TypeAlias = "Hashable"


class QueueFull(Exception):
    """The queue is full, and no group has more waiters than the new one's own."""


class _Waiter:
    __slots__ = ("called", "free")

    def __init__(self) -> None:
        #: Set when the wait is over.
        self.called = trio.Event()
        #: Whether it got a slot; otherwise it was dismissed.
        self.free = False


class _Row:
    """The waiters of a group, by name; the first name is next."""

    __slots__ = ("by_name", "count")

    def __init__(self) -> None:
        self.by_name: OrderedDict[str, deque[_Waiter]] = OrderedDict()
        self.count = 0

    def push(self, name: str, place: _Waiter) -> None:
        self.by_name.setdefault(name, deque()).append(place)
        self.count += 1

    def pop(self) -> _Waiter:
        name, places = self.by_name.popitem(last=False)
        self.count -= 1
        place = places.popleft()
        if places:
            self.by_name[name] = places  # behind the others
        return place

    def remove(self, name: str, place: _Waiter) -> None:
        places = self.by_name[name]
        places.remove(place)
        self.count -= 1
        if not places:
            del self.by_name[name]

    def pop_last(self) -> _Waiter:
        """The last one of the name with the most, of several such names of the last."""
        name = max(reversed(self.by_name), key=lambda each: len(self.by_name[each]))
        place = self.by_name[name][-1]
        self.remove(name, place)
        return place


class FairQueue:
    def __init__(self, at_once: int, max_waiting: int) -> None:
        #: Slots that nobody has; below 0, while more have one than there are.
        self._free = self._at_once = at_once
        self._max_waiting = max_waiting
        #: The first group is next.
        self._rows: OrderedDict[Group, _Row] = OrderedDict()
        self.waiting = 0

    def resize(self, at_once: int, max_waiting: int) -> None:
        """Those who have a slot, or wait, stay."""
        self._free += at_once - self._at_once
        self._at_once, self._max_waiting = at_once, max_waiting
        while self._rows and self._free > 0:
            self._free -= 1
            self._call()

    @asynccontextmanager
    async def turn(self, group: Group, name: str = "") -> AsyncGenerator[None]:
        """
        Raises:
            QueueFull: the queue has no room for another waiter.
        """
        if self._free > 0:
            self._free -= 1
        else:
            await self._wait(group, name)
        try:
            yield
        finally:
            self._next()

    async def _wait(self, group: Group, name: str) -> None:
        if self.waiting >= self._max_waiting:
            self._make_room_for(group)
        place = _Waiter()
        row = self._rows.setdefault(group, _Row())
        row.push(name, place)
        self.waiting += 1
        try:
            await place.called.wait()
        except trio.Cancelled:
            if place.free:
                self._next()  # called between the cancellation and now
            elif not place.called.is_set():
                self._rows[group].remove(name, place)
                self._left(group)
            raise
        if not place.free:
            raise QueueFull

    def _make_room_for(self, group: Group) -> None:
        """Dismiss the last waiter of the group with the most; the new one, if that is its own group."""
        longest = max(self._rows, key=lambda each: self._rows[each].count)
        own = self._rows[group].count if group in self._rows else 0
        if self._rows[longest].count <= own + 1:
            raise QueueFull
        last = self._rows[longest].pop_last()
        self._left(longest)
        last.called.set()

    def _left(self, group: Group) -> None:
        self.waiting -= 1
        if not self._rows[group].count:
            del self._rows[group]

    def _next(self) -> None:
        if self._rows and self._free >= 0:
            self._call()
        else:
            self._free += 1

    def _call(self) -> None:
        group = next(iter(self._rows))
        place = self._rows[group].pop()
        self._rows.move_to_end(group)  # behind the others
        self._left(group)
        place.free = True
        place.called.set()
