"""Items that wait to be sent, limited in number and bytes. When there is no room, the oldest are dropped."""

from __future__ import annotations

from collections import deque

import trio


class Outbox:
    def __init__(self, max_items: int, max_bytes: int) -> None:
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._items = deque[bytes]()
        self.byte_size = 0
        #: The number of items that a task waits for.
        self._awaited = 1
        self._there = trio.Event()

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: bytes) -> int:
        """Returns how many items were dropped for it: all waiting ones and itself if it is larger than the limit."""
        self._items.append(item)
        self.byte_size += len(item)
        dropped = 0
        while len(self._items) > self._max_items or self.byte_size > self._max_bytes:
            self.byte_size -= len(self._items.popleft())
            dropped += 1
        if len(self._items) >= self._awaited:
            self._there.set()
        return dropped

    def put_first(self, items: list[bytes]) -> int:
        """Those that came before all others. Returns how many were dropped."""
        later, self._items, self.byte_size = self._items, deque[bytes](), 0
        return sum(self.put(item) for item in (*items, *later))

    async def wait(self, count: int = 1) -> None:
        """Wait until there are `count` items."""
        while len(self._items) < count:
            self._awaited, self._there = count, trio.Event()
            await self._there.wait()

    def take(self, max_items: int, max_bytes: int) -> list[bytes]:
        """The oldest items: at least one, if there is one, then as many as fit."""
        taken = list[bytes]()
        size = 0
        while self._items and len(taken) < max_items:
            size += len(self._items[0])
            if taken and size > max_bytes:
                break
            taken.append(self._items.popleft())
            self.byte_size -= len(taken[-1])
        return taken
