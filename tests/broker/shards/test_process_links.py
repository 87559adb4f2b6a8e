"""The sockets of one folder join shards, for what is published and for connections."""

import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.broker.net.echo import net_services
from tests.broker.shards.passage_ends import Client
from tests.broker.shards.some_shards import descriptors, until
from tests.broker.shards.test_link_sockets import StandIn
from trunkline.broker.net import poller as polling
from trunkline.broker.net.poller import Poller
from trunkline.broker.shards.homes import Homes, dealt
from trunkline.broker.shards.process_links import ProcessLinks

if TYPE_CHECKING:
    from trunkline.broker.net.passed import PassedConnection

pytestmark = pytest.mark.skipif(not polling.available(), reason="there are no Unix sockets")


class Shard:
    def __init__(self, number: int, folder: Path, term: int = 1, count: int = 2, *, serves: bool = True) -> None:
        self.place = SimpleNamespace(number=number)
        self.peers = {other: StandIn(number, term, other) for other in range(count) if other != number}
        self.taken: list[PassedConnection] = []
        self.take = self.taken.append
        self._serves = serves
        self.serve: Callable[[], None]
        self.links = ProcessLinks(folder, Homes(number, dealt(count)))

    def when_serving(self, call: Callable[[], None]) -> None:
        self.serve = call
        if self._serves:
            call()

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        async with net_services() as services, trio.open_nursery() as nursery:
            poller = Poller(services.scheduler, services.metrics)
            self.net = replace(services, poller=poller)
            await nursery.start(poller.run)
            task_status.started()
            try:
                await self.links.join(self)  # type: ignore[arg-type]
            finally:
                nursery.cancel_scope.cancel()
                poller.close()


@asynccontextmanager
async def running(*shards: Shard) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        for shard in shards:
            await nursery.start(shard.run)
        yield
        nursery.cancel_scope.cancel()


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:  # a short path: that of a socket may not be long
        yield Path(name)


async def test_what_is_published_and_connections_go_to_the_other_shard(folder: Path) -> None:
    before = descriptors()
    shards = [Shard(number, folder, count=3) for number in range(3)]
    client = Client()
    async with running(*shards):
        for shard in shards:
            for other, peer in shard.peers.items():
                await peer.until_up()
                peer.publish(b"%d to %d" % (shard.place.number, other))
        for shard in shards:
            for other, peer in shard.peers.items():
                await peer.until(lambda peer=peer: bool(peer.got))  # type: ignore[misc]
                assert peer.got == [b"%d to %d" % (other, shard.place.number)]
        assert shards[0].links.hand_over.passages.keys() == {1, 2}
        assert shards[0].links.hand_over.own == 0
        assert shards[0].links.hand_over.hand_over(2, client.passed)
        await until(lambda: bool(shards[2].taken))
        assert shards[1].taken == []
        [taken] = shards[2].taken
        assert (taken.peer, taken.first) == (client.passed.peer, client.passed.first)
        taken.close()
    left = os.listdir(folder)
    assert sorted(left) == ["0.link", "1.link", "2.link"], "nobody finds what nobody serves"
    assert not shards[0].links.hand_over.hand_over(1, client.passed), "it has ended"
    client.passed.close()
    client.close()
    assert descriptors() == before


async def test_a_connection_waits_for_a_shard_that_does_not_serve_yet(folder: Path) -> None:
    here, there = Shard(0, folder), Shard(1, folder, serves=False)
    client = Client()
    async with running(here, there):
        await here.peers[1].until_up()
        assert here.links.hand_over.hand_over(1, client.passed)
        await wait_all_tasks_blocked()
        assert there.taken == []
        there.serve()
        await until(lambda: bool(there.taken))
        there.taken[0].close()
    client.close()


async def test_a_shard_that_comes_back_is_joined_again(folder: Path) -> None:
    staying = Shard(0, folder)
    async with running(staying):
        async with running(Shard(1, folder)):
            await staying.peers[1].until_up()
        await staying.peers[1].until(lambda: staying.peers[1].losses == 1)
        again = Shard(1, folder, term=2)
        async with running(again):
            await again.peers[0].until_up()
            client = Client()
            assert staying.links.hand_over.hand_over(1, client.passed)
            await until(lambda: bool(again.taken))
            again.taken[0].close()
            client.close()


async def test_sockets_that_cannot_be_made(folder: Path) -> None:
    before = descriptors()
    shard = Shard(0, folder / "missing")
    with pytest.RaisesGroup(FileNotFoundError, flatten_subgroups=True):
        async with running(shard):
            await trio.sleep_forever()
    assert descriptors() == before
