"""Shards of one process are joined as by sockets: in order, until the link is cut or one of them ends."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from trunkline.actors import Scheduler
from trunkline.broker.shards.memory_links import MemoryLinks


class End:
    """One other shard, as a shard has it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.got: list[bytes] = []
        self.connections = self.losses = 0
        self.send: Callable[[bytes], None] = _nowhere
        self.close: Callable[[], None] = lambda: None

    def connected(self, send: Callable[[bytes], None], close: Callable[[], None]) -> None:
        assert self._scheduler._open, "it is called in a turn"
        self.connections += 1
        self.send, self.close = send, close

    def received(self, data: bytes) -> None:
        assert self._scheduler._open
        self.got.append(data)

    def lost(self) -> None:
        assert self._scheduler._open
        self.losses += 1
        self.send = _nowhere


def _nowhere(data: bytes) -> None:
    raise AssertionError


class Shard:
    def __init__(self, number: int, count: int = 2) -> None:
        scheduler = Scheduler(now=trio.current_time())
        self.place = SimpleNamespace(number=number)
        self.net = SimpleNamespace(scheduler=scheduler)
        self.peers = {other: End(scheduler) for other in range(count) if other != number}
        self.is_over = trio.Event()
        self.has_ended = trio.Event()

    async def run(self, links: MemoryLinks) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(links.join, self)  # type: ignore[arg-type]
            await self.is_over.wait()
            nursery.cancel_scope.cancel()
        self.has_ended.set()

    async def end(self) -> None:
        self.is_over.set()
        await self.has_ended.wait()
        await wait_all_tasks_blocked()


class House:
    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self.links = MemoryLinks()

    async def begin(self, *shards: Shard) -> None:
        for shard in shards:
            self._nursery.start_soon(shard.run, self.links)
            await wait_all_tasks_blocked()


@asynccontextmanager
async def house(*shards: Shard) -> AsyncIterator[House]:
    async with trio.open_nursery() as nursery:
        made = House(nursery)
        await made.begin(*shards)
        yield made
        nursery.cancel_scope.cancel()


async def test_each_is_joined_to_each() -> None:
    shards = [Shard(number, 3) for number in range(3)]
    async with house(*shards):
        for shard in shards:
            for other, end in shard.peers.items():
                end.send(b"%d to %d" % (shard.place.number, other))
                end.send(b"more")
        await wait_all_tasks_blocked()
        for shard in shards:
            for other, end in shard.peers.items():
                assert end.connections == 1
                assert end.got == [b"%d to %d" % (other, shard.place.number), b"more"]


@pytest.mark.parametrize("first", [0, 1])
async def test_both_ends_notice_a_cut_and_are_connected_again(first: int) -> None:
    one, other = Shard(first), Shard(1 - first)
    here, there = one.peers[1 - first], other.peers[first]
    async with house(one, other) as made:
        former = made.links.between(0, 1)
        here.send(b"on its way")
        former.cut()
        await wait_all_tasks_blocked()
        assert (here.losses, there.losses) == (1, 1)
        assert there.got == []
        assert (here.connections, there.connections) == (2, 2)
        former.cut()
        there.send(b"x")
        await wait_all_tasks_blocked()
        assert here.got == [b"x"]
        here.close()
        await wait_all_tasks_blocked()
        assert (here.connections, there.connections) == (3, 3), "an end cuts it, too"


@pytest.mark.parametrize("ends", [0, 1])
async def test_a_shard_notices_the_end_of_another_one(ends: int) -> None:
    """Of one that was there before it, and of one that came later."""
    shards = [Shard(0), Shard(1)]
    here, there = shards[1 - ends].peers[ends], shards[ends].peers[1 - ends]
    async with house(*shards) as made:
        await shards[ends].end()
        assert (here.losses, there.losses) == (1, 1), "whoever ends has to store what it has not sent"
        again = Shard(ends)
        await made.begin(again)
        assert (here.connections, here.losses) == (2, 1)
        again.peers[1 - ends].send(b"x")
        await wait_all_tasks_blocked()
        assert here.got == [b"x"]


async def test_links_that_are_parted_wait_until_they_are_mended() -> None:
    shards = [Shard(number, 3) for number in range(3)]
    async with house(shards[0]) as made:
        made.links.part(0, 1)
        await made.begin(shards[1], shards[2])
        assert [shard.peers[0].connections for shard in shards[1:]] == [0, 1]
        made.links.part(2, 0)
        await wait_all_tasks_blocked()
        assert shards[0].peers[2].losses == 1
        assert shards[2].peers[0].connections == 1
        made.links.mend(1, 0)
        made.links.mend(1, 2)
        await wait_all_tasks_blocked()
        assert [shard.peers[0].connections for shard in shards[1:]] == [1, 1]
        await shards[0].end()
        made.links.mend(0, 2)
        await wait_all_tasks_blocked()
        assert shards[2].peers[0].connections == 1, "it is not there any more"
        assert shards[2].peers[1].losses == 0


async def test_a_link_that_is_stalled_brings_everything_later() -> None:
    one, other = Shard(0), Shard(1)
    async with house(one, other) as made:
        link = made.links.between(1, 0)
        link.stall()
        for payload in (b"1", b"2", b"3"):
            one.peers[1].send(payload)
        await wait_all_tasks_blocked()
        assert other.peers[0].got == []
        link.stall()
        await wait_all_tasks_blocked()
        link.go_on()
        link.stall()
        await wait_all_tasks_blocked()
        assert other.peers[0].got == []
        link.go_on()
        await wait_all_tasks_blocked()
        assert other.peers[0].got == [b"1", b"2", b"3"]
        link.stall()
        one.peers[1].send(b"lost")
        link.cut()
        await wait_all_tasks_blocked()
        one.peers[1].send(b"4")
        await wait_all_tasks_blocked()
        assert other.peers[0].got == [b"1", b"2", b"3", b"4"], "the next one is not stalled"


async def test_a_slow_link_brings_everything_in_order(autojump_clock: MockClock) -> None:
    one, other = Shard(0), Shard(1)
    async with house(one, other) as made:
        made.links.between(0, 1).delay = 5.0
        began = trio.current_time()
        one.peers[1].send(b"1")
        await trio.sleep(4.0)
        assert other.peers[0].got == []
        await trio.sleep(1.5)
        assert other.peers[0].got == [b"1"]
        made.links.between(0, 1).delay = 0.0
        one.peers[1].send(b"2")
        await wait_all_tasks_blocked()
        assert other.peers[0].got == [b"1", b"2"]
        assert trio.current_time() == began + 5.5
