"""Several shards in one process, on disks that outlive them, and the links between them: what tests cut."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import combinations
from typing import Any

import trio

from tests.broker.disk import Disk, Life
from tests.conformance import raw
from tests.wire import Wire
from trunkline.broker.shards.shards import Shards
from trunkline.broker.shards.stored_links import ShardPlace


class Cable:
    """A connection between two shards. Bytes arrive in order, until it is cut."""

    def __init__(self, nursery: trio.Nursery, one: Shards, other: Shards) -> None:
        self._ends = one, other
        self.is_cut = False
        #: While it is not set, nothing arrives.
        self.flows = trio.Event()
        self.flows.set()
        for near, far in ((one, other), (other, one)):
            send, receive = trio.open_memory_channel[bytes](10_000)
            near.connected(far.place.number, send.send_nowait, self.cut)
            nursery.start_soon(self._carry, receive, near.place.number, far)

    async def _carry(self, receive: trio.MemoryReceiveChannel[bytes], number: int, far: Shards) -> None:
        async for data in receive:
            await self.flows.wait()
            if self.is_cut:
                break
            far.received(number, data)

    def cut(self) -> None:
        if not self.is_cut:
            self.is_cut = True
            self.flows.set()

    def lose(self) -> None:
        """Both ends notice."""
        self.cut()
        one, other = self._ends
        one.lost(other.place.number)
        other.lost(one.place.number)

    def stall(self) -> None:
        self.flows = trio.Event()

    def go_on(self) -> None:
        self.flows.set()


class House:
    def __init__(self, nursery: trio.Nursery, disks: list[Disk], settings: dict[str, Any]) -> None:
        self._nursery = nursery
        self._disks = disks
        self._settings = settings
        self._terms = [0] * len(disks)
        #: By shard: they end it, and are set when it has ended.
        self._ends: dict[int, tuple[trio.Event, trio.Event]] = {}
        self.lives: dict[int, Life] = {}
        self.cables: dict[frozenset[int], Cable] = {}

    async def begin(self, number: int) -> None:
        self._terms[number] += 1
        self._ends[number] = trio.Event(), trio.Event()
        await self._nursery.start(self._live, number)
        for other in self.lives:
            if other != number:
                self.connect(number, other)

    async def _live(self, number: int, *, task_status: trio.TaskStatus[None]) -> None:
        place = ShardPlace(number, len(self._disks), self._terms[number], 0.0)
        is_over, has_ended = self._ends[number]
        async with self._disks[number].broker(shard=place, **self._settings) as self.lives[number]:
            task_status.started()
            await is_over.wait()
        has_ended.set()

    def connect(self, one: int, other: int) -> Cable:
        shards = [self.lives[each].admin.shards for each in (one, other)]
        cable = self.cables[frozenset({one, other})] = Cable(self._nursery, *[each for each in shards if each])
        return cable

    def cable(self, one: int, other: int) -> Cable:
        return self.cables[frozenset({one, other})]

    async def end(self, number: int) -> None:
        """As a power cut; the others go on."""
        self.lives.pop(number)
        for ends in [each for each in self.cables if number in each]:
            cable = self.cables.pop(ends)
            cable.cut()
            (other,) = ends - {number}
            shards = self.lives[other].admin.shards if other in self.lives else None
            if shards is not None:
                shards.lost(number)
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

    async def linked(self) -> None:
        """All links are up."""
        for one, other in combinations(self.lives, 2):
            for number, peer in ((one, other), (other, one)):
                while not self.lives[number].node.services.pubsub.peers[peer].is_up:  # type: ignore[attr-defined]
                    await trio.lowlevel.checkpoint()


@asynccontextmanager
async def house(shards: int = 3, *, memory: bool = False, **settings: Any) -> AsyncIterator[House]:
    if memory:
        settings["store"] = {"durability": "memory"}
    async with trio.open_nursery() as nursery:
        opened = House(nursery, [Disk() for _ in range(shards)], settings)
        for number in range(shards):
            await opened.begin(number)
        await opened.linked()
        try:
            yield opened
        finally:
            with trio.CancelScope(shield=True):
                for number in list(opened.lives):
                    await opened.end(number)
            nursery.cancel_scope.cancel()
