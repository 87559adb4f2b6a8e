"""Several shards in one process, on disks that outlive them, and the links between them: what tests cut."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from tests.broker.disk import Disk, Life
from tests.conformance import raw
from tests.wire import Wire
from trunkline.broker.shards.homes import Homes, dealt
from trunkline.broker.shards.memory_links import MemoryLinks
from trunkline.broker.shards.place import ShardPlace
from trunkline.broker.shards.process_links import ProcessLinks


class House:
    def __init__(
        self, nursery: trio.Nursery, disks: list[Disk], settings: dict[str, Any], sockets: Path | None = None
    ) -> None:
        """With `sockets`, a folder, the links are those of processes."""
        self._sockets = sockets
        self._nursery = nursery
        self._disks = disks
        self._settings = settings
        self._terms = [0] * len(disks)
        #: By shard: they end it, and are set when it has ended.
        self._ends: dict[int, tuple[trio.Event, trio.Event]] = {}
        self.lives: dict[int, Life] = {}
        self.links = MemoryLinks()

    async def begin(self, number: int) -> None:
        self._terms[number] += 1
        self._ends[number] = trio.Event(), trio.Event()
        await self._nursery.start(self._live, number)

    async def begin_all(self, *numbers: int) -> None:
        """At once: each waits for what the others want."""
        async with trio.open_nursery() as beginning:
            for number in numbers:
                beginning.start_soon(self.begin, number)

    async def _live(self, number: int, *, task_status: trio.TaskStatus[None]) -> None:
        count = len(self._disks)
        sockets = None if self._sockets is None else ProcessLinks(self._sockets, Homes(number, dealt(count)))
        join = self.links.join if sockets is None else sockets.join
        place = ShardPlace(number, count, self._terms[number], 0.0, join)
        is_over, has_ended = self._ends[number]
        async with self._disks[number].broker(place=place, **self._settings) as self.lives[number]:
            task_status.started()
            await is_over.wait()
        has_ended.set()

    async def end(self, number: int) -> None:
        """As a power cut; the others go on."""
        self.lives.pop(number)
        is_over, has_ended = self._ends.pop(number)
        is_over.set()
        await has_ended.wait()

    async def client(self, shard: int, client_id: str, **settings: Any) -> Wire:
        wire = await self.lives[shard].wire()
        await wire.connect(client_id, **settings)
        return wire

    async def stay(self, shard: int, client_id: str, expiry: int = 1000) -> Wire:
        """A session that outlives its connection."""
        return await self.client(shard, client_id, clean=False, properties=raw.session_expiry(expiry))


@asynccontextmanager
async def house(
    shards: int = 3, *, memory: bool = False, sockets: Path | None = None, **settings: Any
) -> AsyncIterator[House]:
    if memory:
        settings["store"] = {"durability": "memory"}
    async with trio.open_nursery() as nursery:
        opened = House(nursery, [Disk() for _ in range(shards)], settings, sockets)
        await opened.begin_all(*range(shards))
        try:
            yield opened
        finally:
            with trio.CancelScope(shield=True):
                for number in list(opened.lives):
                    await opened.end(number)
            nursery.cancel_scope.cancel()
