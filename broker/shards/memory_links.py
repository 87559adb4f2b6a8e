"""Links between the shards of one process, which tests can cut, stall and slow."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from trunkline.broker.shards.place import OwnShard


class MemoryLink:
    """A connection between two shards: bytes arrive in order, until it is cut."""

    def __init__(self, one: OwnShard, other: OwnShard) -> None:
        self._ends = one, other
        self._is_cut = trio.Event()
        #: Seconds that bytes take.
        self.delay = 0.0
        #: Whether the ends notice that it is cut.
        self.is_noticed = True
        self._flows = trio.Event()
        self._flows.set()

    async def run(self) -> None:
        """Until it is cut, or one of them ends: then both ends notice."""
        one, other = self._ends
        try:
            async with trio.open_nursery() as nursery:
                for near, far in ((one, other), (other, one)):
                    send, receive = trio.open_memory_channel[tuple[float, bytes]](inf)
                    with near.net.scheduler.turn:
                        near.peers[far.place.number].connected(partial(self._send, send), self.cut)
                    nursery.start_soon(self._carry, receive, near.place.number, far)
                await self._is_cut.wait()
                nursery.cancel_scope.cancel()
        finally:
            for near, far in ((one, other), (other, one)) if self.is_noticed else ():
                with near.net.scheduler.turn:
                    near.peers[far.place.number].lost()

    def _send(self, channel: trio.MemorySendChannel[tuple[float, bytes]], data: bytes) -> None:
        channel.send_nowait((trio.current_time() + self.delay, data))

    async def _carry(self, receive: trio.MemoryReceiveChannel[tuple[float, bytes]], number: int, far: OwnShard) -> None:
        async for arrival, data in receive:
            if arrival > trio.current_time():
                await trio.sleep_until(arrival)
            while not self._flows.is_set():
                await self._flows.wait()
            if not self._is_cut.is_set():
                with far.net.scheduler.turn:
                    far.peers[number].received(data)

    def cut(self) -> None:
        self._is_cut.set()

    def stall(self) -> None:
        """Nothing arrives until it goes on."""
        if self._flows.is_set():
            self._flows = trio.Event()

    def go_on(self) -> None:
        self._flows.set()


class MemoryLinks:
    """Of the shards of one node. Those that are cut are connected again when they are `mended`."""

    def __init__(self) -> None:
        #: As far as they are there.
        self._shards: dict[int, OwnShard] = {}
        self._links: dict[frozenset[int], MemoryLink] = {}
        #: Shards between which there is to be no link.
        self._apart: set[frozenset[int]] = set()
        self._mended: dict[frozenset[int], trio.Event] = {}
        #: Seconds that bytes take between some; and shards between which nothing arrives.
        self._slow: dict[frozenset[int], float] = {}
        self._stopped: set[frozenset[int]] = set()

    def between(self, one: int, other: int) -> MemoryLink:
        return self._links[frozenset({one, other})]

    async def join(self, shards: OwnShard) -> None:
        """Connect this shard to the others, until it ends."""
        number = shards.place.number
        others = list(self._shards)
        self._shards[number] = shards
        try:
            async with trio.open_nursery() as nursery:
                for other in others:
                    nursery.start_soon(self._connect, number, other)
                await trio.sleep_forever()
        finally:
            del self._shards[number]
            for ends, link in self._links.items():
                if number in ends:
                    link.cut()

    async def _connect(self, one: int, other: int) -> None:
        """Again and again, as long as both are there."""
        ends, shards = frozenset({one, other}), self._shards[other]
        while self._shards.get(other) is shards:
            if ends in self._apart:
                mended = self._mended.setdefault(ends, trio.Event())
                await mended.wait()
                continue
            link = self._links[ends] = MemoryLink(self._shards[one], shards)
            link.delay = self._slow.get(ends, 0.0)
            if ends in self._stopped:
                link.stall()
            await link.run()

    def part(self, one: int, other: int) -> None:
        """There is no link between these until they are mended."""
        ends = frozenset({one, other})
        self._apart.add(ends)
        if ends in self._links:
            self._links[ends].cut()

    def mend(self, one: int, other: int) -> None:
        ends = frozenset({one, other})
        self._apart.discard(ends)
        if ends in self._mended:
            self._mended.pop(ends).set()

    def slow(self, one: int, other: int, seconds: float) -> None:
        """Bytes take so long from now on, on all links between these."""
        ends = frozenset({one, other})
        self._slow[ends] = seconds
        if ends in self._links:
            self._links[ends].delay = seconds

    def stop(self, one: int, other: int) -> None:
        """Nothing arrives between these, on no link, until it goes on."""
        ends = frozenset({one, other})
        self._stopped.add(ends)
        if ends in self._links:
            self._links[ends].stall()

    def go_on(self, one: int, other: int) -> None:
        ends = frozenset({one, other})
        self._stopped.discard(ends)
        if ends in self._links:
            self._links[ends].go_on()

    def mend_all(self) -> None:
        """Nothing is parted, stopped or slow any more."""
        for one, other in [*self._apart, *self._stopped, *self._slow]:
            self.mend(one, other)
            self.go_on(one, other)
            self.slow(one, other, 0.0)

    def part_silently(self) -> None:
        """All shards are about to end: none notices that others have."""
        for link in self._links.values():
            link.is_noticed = False
