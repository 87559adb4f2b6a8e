"""Shards of one node in one process, between which connections are handed over in memory or by sockets."""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any

import trio
from trio.testing import memory_stream_pair

from tests.broker.inside import inside
from tests.conformance import raw
from tests.frames import Frames
from tests.wire import Wire
from trunkline.broker.connection.arriving import ArrivingConnection
from trunkline.broker.net.services import NetServices
from trunkline.broker.node.admin import Admin
from trunkline.broker.node.opening import open_node
from trunkline.broker.node.parts import Node
from trunkline.broker.shards.hand_over import ShardHandOver
from trunkline.broker.shards.homes import Homes, dealt
from trunkline.broker.shards.passage_listener import PassageListener
from trunkline.broker.shards.passage_socket import SocketPassage
from trunkline.broker.shards.passages import MemoryPassage
from trunkline.broker.shards.place import ShardPlace
from trunkline.testing.certificates import certificates
from trunkline.testing.running import configuration

#: The ways of passing.
WAYS = ["memory", "sockets"]
#: Kinds of listeners.
KINDS = ["tcp", "tls", "ws", "wss", "unix"]
#: Those whose clients are relayed.
LAYERED = ["tls", "ws", "wss"]


class Shard:
    def __init__(self, number: int, kind: str, admin: Admin, hand_over: ShardHandOver) -> None:
        self.number = number
        self.kind = kind
        self.admin = admin
        self.hand_over = hand_over

    @property
    def node(self) -> Node:
        return inside(self.admin)

    @property
    def net(self) -> NetServices:
        return self.node.listeners._services  # pyright: ignore[reportPrivateUsage]

    @property
    def connections(self) -> list[Any]:
        return list(self.node.listeners.connections)

    @property
    def relays(self) -> list[ArrivingConnection]:
        return [each for each in self.connections if each.state == "relayed"]

    def id(self, start: str = "client") -> str:
        """A client id whose home this is."""
        return next(self.ids(start))

    def ids(self, start: str = "client") -> Iterator[str]:
        return (name for n in count() if self.hand_over.home_of(name := f"{start}-{n}") == self.number)

    async def stream(self, certificate: str | None = None, before: bytes = b"") -> trio.abc.HalfCloseableStream:
        """A connection to this one's listener, with its layers."""
        host, port = self.node.listeners[0].address
        stream: Any
        if self.kind == "unix":
            return await trio.open_unix_socket(host)
        stream = await trio.open_tcp_stream(host, port)
        stream.setsockopt(6, 1, 1)
        if self.kind in ("tls", "wss"):
            context = certificates().context(certificate)
            stream = trio.SSLStream(stream, context, server_hostname="localhost", https_compatible=True)
            stream = _Encrypted(stream)
        if self.kind in ("ws", "wss"):
            stream = await Frames.over(stream)
        if before:
            await stream.send_all(before)
        return stream  # type: ignore[no-any-return]

    async def wire(self, version: int = 5, **how: Any) -> Wire:
        return Wire(await self.stream(**how), version=version, patience=60)

    def inside_wire(self) -> Wire:
        ours, theirs = memory_stream_pair()
        self.admin.serve(theirs)
        return Wire(ours, patience=60)

    async def has(self, client_id: str) -> None:
        """Wait until it has this client, connected."""
        await until(lambda: self.node.sessions.get(client_id) is not None)

    async def is_empty(self) -> None:
        await until(lambda: not self.connections)


class _Encrypted(trio.abc.HalfCloseableStream):
    """TLS whose end is that of its output."""

    def __init__(self, tls: trio.SSLStream[trio.SocketStream]) -> None:
        self.tls = tls

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self.tls.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self.tls.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self.tls.receive_some(max_bytes)

    async def aclose(self) -> None:
        await self.tls.aclose()

    async def send_eof(self) -> None:
        await self.tls.transport_stream.send_eof()


async def until(condition: Any) -> None:
    """Whatever leads there is under way: it takes no time but that of turns."""
    over = perf_counter() + 60  # by no clock that a test stops
    while not condition():
        assert perf_counter() < over
        await trio.lowlevel.checkpoint()


def descriptors() -> int:
    return len(os.listdir("/dev/fd"))


def listener_of(kind: str, folder: Path, number: int, **more: Any) -> dict[str, Any]:
    if kind == "unix":
        return {"url": f"unix://{folder}/mqtt-{number}", "name": "at", **more}
    listener: dict[str, Any] = {"url": f"{kind}://127.0.0.1:0", "name": "at", **more}
    if kind in ("tls", "wss"):
        made = certificates()
        files = {"certificate": str(made.server), "key": str(made.server_key), "client_ca": str(made.authority)}
        listener["tls"] = {**files, "client_certificates": "optional", **more.get("tls", {})}
    return listener


@asynccontextmanager
async def shards(way: str = "memory", kind: str = "tcp", number: int = 2, **more: Any) -> AsyncIterator[list[Shard]]:
    """`more` are settings of the listener; `settings` are those of the node, and `layers` are its own."""
    settings = more.pop("settings", {})
    layers = more.pop("layers", ())
    folder = Path(tempfile.mkdtemp())
    opened: list[Shard] = []
    async with AsyncExitStack() as stack:
        stack.callback(shutil.rmtree, folder)
        for own in range(number):
            hand_over = ShardHandOver(Homes(own, dealt(number)))
            place = ShardPlace(0, 1, 1, 0.0, _alone, hand_over)  # with no link to any other
            config = configuration({"listeners": [listener_of(kind, folder, own, **more)], **settings})
            admin = await stack.enter_async_context(open_node(config, place=place, grace=5, layers=layers))
            opened.append(Shard(own, kind, admin, hand_over))
        for shard in opened:
            if way == "sockets":
                listening = PassageListener(f"{folder}/{shard.number}", shard.net, shard.node.listeners.take)
                stack.callback(listening.close)
        for shard in opened:
            for other in opened:
                if other is shard:
                    continue
                assert shard.net.poller is not None
                if way == "sockets":
                    passage: Any = SocketPassage(f"{folder}/{other.number}", shard.net.poller, shard.net.scheduler)
                else:
                    passage = MemoryPassage(other.node.listeners.take, other.net.scheduler)
                shard.hand_over.passages[other.number] = passage
            stack.callback(shard.hand_over.close)
        yield opened


async def _alone(_: object) -> None:
    """There is no link."""
    await trio.sleep_forever()


def will(topic: str = "gone") -> raw.Will:
    return raw.Will(topic, b"gone", 1)
