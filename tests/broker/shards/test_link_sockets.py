"""Shards that are joined by real sockets. Their ends of the links are real ones, too; what becomes of a publication
elsewhere is not."""

import os
import socket
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import trio

from tests.broker.links.wires import wire_of
from trunkline.actors import Scheduler
from trunkline.broker.links.decoder import FrameDecoder
from trunkline.broker.links.frames import LinkHello
from trunkline.broker.links.link import BurstCame, LinkEnd, LinkState, LinkUp
from trunkline.broker.metrics import Metrics
from trunkline.broker.net import poller as polling
from trunkline.broker.net.poller import READ, Poller
from trunkline.broker.shards import link_sockets
from trunkline.broker.shards.link_sockets import (
    SEND_BUFFER,
    LinkConnection,
    LinkSockets,
    link_path,
)

pytestmark = pytest.mark.skipif(not polling.available(), reason="there are no Unix sockets")


class StandIn:
    """What a shard has of another one: it takes publications, and counts them."""

    def __init__(self, shard: int, term: int, peer: int) -> None:
        self.end = LinkEnd(shard, term, peer)
        self._decoder = FrameDecoder()
        self._send: Callable[[bytes], None] | None = None
        self.close: Callable[[], None] = lambda: None
        self.got: list[bytes] = []
        self.ups = self.losses = 0
        self._changed = trio.Event()

    def connected(self, send: Callable[[bytes], None], close: Callable[[], None]) -> None:
        self.close()
        self._send, self.close = send, close
        self._decoder = FrameDecoder()
        self.end.connect(0)
        self.flush()

    def received(self, data: bytes) -> None:
        frames = self._decoder.feed(data)
        assert self._decoder.error is None
        events = self.end.receive(frames, 0)
        assert self.end.error is None
        for event in events:
            if isinstance(event, LinkUp):
                self.ups += 1
            elif isinstance(event, BurstCame):
                self.got.append(event.data)
                self.end.applied(event.term, event.number)
                self.end.worked_off(event.weight)
        self.flush()
        self._change()

    def lost(self) -> None:
        self.losses += 1
        self._send = None
        self.end.lose()
        self._change()

    def publish(self, burst: bytes) -> None:
        self.end.publish(burst, lambda: None)
        self.flush()

    def flush(self) -> None:
        if self._send is not None and (output := self.end.take_output(0)):
            self._send(output)

    def _change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._changed.wait()

    async def until_up(self) -> None:
        await self.until(lambda: self.end.state is LinkState.UP)


class Shard:
    def __init__(self, number: int, count: int, folder: Path, term: int = 1) -> None:
        self.scheduler = Scheduler(now=trio.current_time())
        self.poller = Poller(self.scheduler, Metrics())
        self.peers = {other: StandIn(number, term, other) for other in range(count) if other != number}
        self.sockets = LinkSockets(number, folder, self.peers, self.poller, self.scheduler)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(self.scheduler.run)
            await nursery.start(self.poller.run)
            await nursery.start(self.sockets.run)
            task_status.started()


@asynccontextmanager
async def running(*shards: Shard) -> AsyncGenerator[None]:
    async with trio.open_nursery() as nursery:
        for shard in shards:
            await nursery.start(shard.run)
        yield
        nursery.cancel_scope.cancel()
    for shard in shards:
        shard.poller.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    with TemporaryDirectory() as name:  # a short path: that of a socket may not be long
        yield Path(name)


async def test_all_shards_are_joined_in_both_directions(folder: Path) -> None:
    shards = [Shard(number, 3, folder) for number in range(3)]
    async with running(*shards):
        for shard in shards:
            for peer in shard.peers.values():
                await peer.until_up()
        for number, shard in enumerate(shards):
            for other, peer in shard.peers.items():
                peer.publish(b"%d to %d" % (number, other))
        for number, shard in enumerate(shards):
            for other, peer in shard.peers.items():
                await peer.until(lambda peer=peer: bool(peer.got))  # type: ignore[misc]
                assert peer.got == [b"%d to %d" % (other, number)]


async def test_the_order_in_which_they_start_does_not_matter(folder: Path) -> None:
    low, high = Shard(0, 2, folder), Shard(1, 2, folder)
    async with running(high), running(low):
        await high.peers[0].until_up()
        await low.peers[1].until_up()


async def test_others_cannot_reach_the_socket(folder: Path) -> None:
    shard = Shard(0, 2, folder)
    async with running(shard):
        assert os.stat(link_path(folder, 0)).st_mode & 0o077 == 0


@pytest.mark.parametrize("size", [1, 100_000, 3_000_000])
async def test_bursts_of_any_size_arrive_whole_and_in_order(folder: Path, size: int) -> None:
    low, high = Shard(0, 2, folder), Shard(1, 2, folder)
    sent = [bytes([number]) * size for number in range(10)]
    async with running(low, high):
        for one, other in ((low.peers[1], high.peers[0]), (high.peers[0], low.peers[1])):
            await one.until_up()
            for burst in sent:
                one.publish(burst)
            await other.until(lambda other=other: len(other.got) == len(sent))  # type: ignore[misc]
            assert other.got == sent


@pytest.mark.parametrize("crashed", [0, 1])
async def test_a_shard_that_comes_back_is_joined_again(folder: Path, crashed: int) -> None:
    """The one that listens, and the one that connects. What was not there yet is sent again."""
    shards = [Shard(0, 2, folder), Shard(1, 2, folder)]
    staying = shards[1 - crashed].peers[crashed]
    async with running(shards[1 - crashed]):
        async with running(shards[crashed]):
            await staying.until_up()
        await staying.until(lambda: staying.losses == 1)
        staying.publish(b"meanwhile")
        again = Shard(crashed, 2, folder, term=2)
        async with running(again):
            peer = again.peers[1 - crashed]
            await peer.until(lambda: bool(peer.got))
            assert peer.got == [b"meanwhile"]
    assert staying.ups == 2


@pytest.mark.parametrize("who_closes", [0, 1])
async def test_a_peer_may_give_its_connection_up(folder: Path, who_closes: int) -> None:
    """Another one follows. Whoever has closed it is not told that it is lost."""
    shards = [Shard(0, 2, folder), Shard(1, 2, folder)]
    async with running(*shards):
        one, other = shards[who_closes].peers[1 - who_closes], shards[1 - who_closes].peers[who_closes]
        await one.until_up()
        await other.until_up()
        with shards[who_closes].scheduler.turn:
            one.end.lose()
            one.close()
        await other.until(lambda: other.losses == 1)
        await one.until(lambda: one.ups == 2)
        await other.until(lambda: other.ups == 2)
        assert one.losses == 0


async def test_a_peer_that_crashes_costs_its_connection_alone(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    low, high = Shard(0, 2, folder), Shard(1, 2, folder)
    taken = low.peers[1].received
    broken: list[bytes] = []

    def breaks(data: bytes) -> None:
        if b"bad" in data and not broken:
            broken.append(data)
            raise RuntimeError("the peer broke")
        taken(data)

    low.peers[1].received = breaks  # type: ignore[method-assign]
    async with running(low, high):
        await high.peers[0].until_up()
        high.peers[0].publish(b"bad")
        await low.peers[1].until(lambda: low.peers[1].got == [b"bad"])
    assert "the peer broke" in caplog.text
    assert low.peers[1].losses == 1 + 1  # the last one when it ended


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        wire_of(LinkHello(0, 1, 1)),
        wire_of(LinkHello(7, 1, 1)),
        b"\xff\xff\xff\xff\x01",
        b"",
    ],
    ids=["no frame", "itself", "nobody", "too large", "nothing"],
)
async def test_whoever_is_no_shard_is_shut_out(folder: Path, said: bytes) -> None:
    shard = Shard(0, 2, folder)
    async with running(shard):
        stranger = await trio.open_unix_socket(str(link_path(folder, 0)))
        async with stranger:
            await stranger.send_all(said)
            if not said:
                await stranger.send_eof()
            assert await stranger.receive_some(1) == b""
    assert shard.peers[1].ups == 0


async def test_a_silent_stranger_is_shut_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_sockets, "GREETING_TIME", 0.01)
    shard = Shard(0, 2, folder)
    async with running(shard), await trio.open_unix_socket(str(link_path(folder, 0))) as stranger:
        assert await stranger.receive_some(1) == b""


async def test_there_are_not_too_many_strangers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_sockets, "MAX_STRANGERS", 1)
    shard = Shard(0, 2, folder)
    async with (
        running(shard),
        await trio.open_unix_socket(str(link_path(folder, 0))),
        await trio.open_unix_socket(str(link_path(folder, 0))) as second,
    ):
        assert await second.receive_some(1) == b""


class Unread:
    """Takes whatever is said to it."""

    losses = 0

    def connected(self, send: Callable[[bytes], None], close: Callable[[], None]) -> None: ...
    def received(self, data: bytes) -> None: ...
    def lost(self) -> None:
        self.losses += 1


async def test_one_that_reads_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_sockets, "MAX_PENDING", 1_000_000)
    scheduler = Scheduler(now=trio.current_time())
    poller, peer = Poller(scheduler, Metrics()), Unread()
    near, far = socket.socketpair()
    near.setblocking(False)
    with far:
        connection = LinkConnection(near, peer, poller)
        connection.open(b"")
        async with trio.open_nursery() as nursery:
            await nursery.start(scheduler.run)
            await nursery.start(poller.run)
            for _ in range(20):
                connection.send(bytes(200_000))
            await connection.ended.wait()
            nursery.cancel_scope.cancel()
    assert peer.losses == 1
    connection.send(b"nobody")
    connection.close()
    assert peer.losses == 1
    poller.close()


class Kept(Unread):
    """Keeps what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.received_data: list[bytes] = []

    def received(self, data: bytes) -> None:
        self.received_data.append(data)


async def test_a_read_takes_a_whole_burst_and_leaves_what_other_reads_brought() -> None:
    near, far = socket.socketpair()
    for sock in (near, far):
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
    peer = Kept()
    connection = LinkConnection(near, peer, None)  # type: ignore[arg-type]
    sent = [b"a" * 150_000, b"b" * 150_000, b"c"]
    with near, far:
        for data in sent:
            assert far.send(data) == len(data)
            connection.ready(READ, 0)
        connection.ready(READ, 0)  # there is nothing
    assert peer.received_data == sent
    assert peer.losses == 0


async def test_the_system_takes_as_much_at_once_as_it_may(folder: Path) -> None:
    low, high = Shard(0, 2, folder), Shard(1, 2, folder)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        most = sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    async with running(low, high):
        await low.peers[1].until_up()
        await high.peers[0].until_up()
        for shard in (low, high):
            (connection,) = shard.sockets._connections
            assert connection._sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == most
