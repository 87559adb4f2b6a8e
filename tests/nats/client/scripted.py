"""A server of NATS that does what a test says: for what real ones do not show."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio

from trunkline.nats.protocol import encoder
from trunkline.nats.protocol.decoder import from_client
from trunkline.nats.protocol.operations import PING, PONG, Connect, FromClient

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from trunkline.nats.client.events import Event

INFO: dict[str, Any] = {"server_id": "S", "version": "2.15.1", "headers": True, "max_payload": 1000, "proto": 1}


class Told:
    """What a client tells of its connection: its `on_event`."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._changed = trio.Event()

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        self._changed.set()

    async def wait(self, count: int = 1) -> list[Event]:
        """Until there are so many."""
        while len(self.events) < count:
            self._changed = trio.Event()
            await self._changed.wait()
        return self.events


class Peer:
    """One client's connection, from the server's side."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._decoder = from_client()
        self._found: list[FromClient] = []

    async def send(self, data: bytes) -> None:
        await self._stream.send_all(data)

    async def next(self) -> FromClient | None:
        """None: the client has closed."""
        while not self._found:
            try:
                data = bytes(await self._stream.receive_some(1 << 16))
            except trio.BrokenResourceError:
                return None
            if not data:
                return None
            self._found += self._decoder.feed(data)
            assert self._decoder.error is None
        return self._found.pop(0)

    async def welcome(self, **info: Any) -> Connect:
        """Let the client in. Returns its CONNECT."""
        await self.send(encoder.info(INFO | info))
        connect = await self.next()
        assert isinstance(connect, Connect)
        assert await self.next() is PING
        await self.send(PONG.line)
        return connect

    async def answer(self) -> None:
        """Answer each PING, until the client closes."""
        while (operation := await self.next()) is not None:
            if operation is PING:
                await self.send(PONG.line)


@asynccontextmanager
async def serving(*stories: Callable[[Peer], Awaitable[object]]) -> AsyncGenerator[int]:
    """The port of a server on which the first connection meets the first story, and so on; the last one all others.
    A connection is closed at the end of its story."""
    told = 0

    async def tell(stream: trio.SocketStream) -> None:
        nonlocal told
        story = stories[min(told, len(stories) - 1)]
        told += 1
        await story(Peer(stream))

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, tell, 0)
        yield listeners[0].socket.getsockname()[1]
        nursery.cancel_scope.cancel()
