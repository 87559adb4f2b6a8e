"""A bounded queue for a few slots, served round-robin by group: a group with many waiters does not delay the others."""

from __future__ import annotations

from collections import OrderedDict, deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class QueueFull(Exception):
    """The queue is full, and no group has more waiters than the new one's own."""


class _Waiter:
    __slots__ = ("called", "free")

    def __init__(self) -> None:
        #: Set when the wait is over.
        self.called = trio.Event()
        #: Whether it got a slot; otherwise it was dismissed.
        self.free = False


class FairQueue:
    def __init__(self, at_once: int, max_waiting: int) -> None:
        self._free = at_once
        self._max_waiting = max_waiting
        #: Waiters by group; the first group is next.
        self._rows: OrderedDict[str, deque[_Waiter]] = OrderedDict()
        self.waiting = 0

    @asynccontextmanager
    async def turn(self, group: str) -> AsyncGenerator[None]:
        """
        Raises:
            QueueFull: the queue has no room for another waiter.
        """
        if self._free:
            self._free -= 1
        else:
            await self._wait(group)
        try:
            yield
        finally:
            self._next()

    async def _wait(self, group: str) -> None:
        if self.waiting >= self._max_waiting:
            self._make_room_for(group)
        place = _Waiter()
        self._rows.setdefault(group, deque()).append(place)
        self.waiting += 1
        try:
            await place.called.wait()
        except trio.Cancelled:
            if place.free:
                self._next()  # called between the cancellation and now
            elif not place.called.is_set():
                self._remove(group, place)
            raise
        if not place.free:
            raise QueueFull

    def _make_room_for(self, group: str) -> None:
        """Dismiss the last waiter of the group with the most; the new one, if that is its own group."""
        longest = max(self._rows, key=lambda name: len(self._rows[name]))
        if len(self._rows[longest]) <= len(self._rows.get(group, ())) + 1:
            raise QueueFull
        last = self._rows[longest][-1]
        self._remove(longest, last)
        last.called.set()

    def _remove(self, group: str, place: _Waiter) -> None:
        row = self._rows[group]
        row.remove(place)
        self.waiting -= 1
        if not row:
            del self._rows[group]

    def _next(self) -> None:
        if not self._rows:
            self._free += 1
            return
        group, row = self._rows.popitem(last=False)
        place = row.popleft()
        self.waiting -= 1
        if row:
            self._rows[group] = row  # behind the others
        place.free = True
        place.called.set()
