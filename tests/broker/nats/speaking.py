"""A broker that listens for NATS and MQTT, and a client of NATS that writes its lines by hand."""

from __future__ import annotations

import json
import re
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self

import trio

from tests.broker.inside import inside
from tests.wire import Wire
from trunkline import testing
from trunkline.broker.nats.connection import NatsConnection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trunkline.broker.node.parts import Node

#: Seconds that an answer may take.
PATIENCE = 60
NATS = "nats://127.0.0.1:0"


class Speaker:
    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._buffer = b""
        #: What the server has told of itself.
        self.info: dict[str, Any] = {}

    @classmethod
    async def over(cls, stream: trio.abc.Stream, options: dict[str, Any] | None = None) -> Self:
        """Behind INFO and, with options, behind CONNECT."""
        speaker = cls(stream)
        line = await speaker.line()
        assert line.startswith(b"INFO "), line
        speaker.info = json.loads(line[5:])
        if options is not None:
            await speaker.connect(**options)
        return speaker

    async def connect(self, **options: Any) -> None:
        """Quiet, unless it is to be otherwise."""
        said = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, **options}
        await self.say(b"CONNECT " + json.dumps(said).encode())

    async def say(self, *lines: bytes) -> None:
        """Each with a line break."""
        with trio.fail_after(PATIENCE):
            await self._stream.send_all(b"".join(line + b"\r\n" for line in lines))

    async def publish(self, subject: bytes, payload: bytes = b"", reply: bytes = b"") -> None:
        to = subject + b" " + reply if reply else subject
        await self.say(b"PUB %s %d" % (to, len(payload)), payload)

    async def read(self) -> bytes:
        """What comes next; nothing at the end."""
        with trio.fail_after(PATIENCE):
            try:
                return await self._stream.receive_some()
            except trio.BrokenResourceError:
                return b""

    async def line(self) -> bytes:
        while b"\r\n" not in self._buffer:
            data = await self.read()
            assert data, f"closed behind {self._buffer!r}"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\r\n")
        return line

    async def exactly(self, size: int) -> bytes:
        """So many bytes."""
        while len(self._buffer) < size:
            data = await self.read()
            assert data, f"closed behind {self._buffer!r}"
            self._buffer += data
        found, self._buffer = self._buffer[:size], self._buffer[size:]
        return found

    async def expect(self, *lines: bytes) -> None:
        """These lines come next."""
        for line in lines:
            assert await self.line() == line

    async def said(self) -> bytes:
        """All that comes before the answer to a PING."""
        await self.say(b"PING")
        before = b""
        while not (before + self._buffer).endswith(b"PONG\r\n"):
            data = await self.read()
            assert data, f"closed behind {before + self._buffer!r}"
            self._buffer += data
        before, self._buffer = self._buffer[: -len(b"PONG\r\n")], b""
        return before

    async def rest(self) -> bytes:
        """All until the server closes."""
        while data := await self.read():
            self._buffer += data
        return self._buffer

    def narrow(self) -> None:
        """The system keeps little of what it does not read."""
        assert isinstance(self._stream, trio.SocketStream)
        self._stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)

    async def leave(self) -> None:
        await trio.aclose_forcefully(self._stream)


class NatsRoom:
    def __init__(self, broker: testing.Broker) -> None:
        self.broker = broker
        self._speakers: list[Speaker] = []
        self._wires: list[Wire] = []

    @property
    def node(self) -> Node:
        return inside(self.broker.node)

    async def speaker(self, **options: Any) -> Speaker:
        """Accepted, and sure of it."""
        speaker = await self.stranger()
        await speaker.connect(**options)
        if options.get("verbose"):
            await speaker.expect(b"+OK")
        assert await speaker.said() == b""
        return speaker

    async def stranger(self) -> Speaker:
        """That has heard INFO and said nothing."""
        address = self.broker.listeners["nats"]
        speaker = await Speaker.over(await trio.open_tcp_stream(address.host, address.port))
        self._speakers.append(speaker)
        return speaker

    async def wire(self, client_id: str, *, version: int = 5, **settings: Any) -> Wire:
        """A client of MQTT."""
        wire = Wire(self.broker.connect(), version=version, patience=PATIENCE)
        self._wires.append(wire)
        await wire.connect(client_id, **settings)
        return wire

    @property
    def connection(self) -> NatsConnection:
        """The only one."""
        (found,) = self.connections
        return found

    @property
    def connections(self) -> list[NatsConnection]:
        return [each for each in self.node.listeners.connections if isinstance(each, NatsConnection)]

    async def leave(self) -> None:
        for speaker in self._speakers:
            await speaker.leave()
        for wire in self._wires:
            await wire.abort()


@asynccontextmanager
async def nats_room(*, listener: dict[str, Any] | None = None, **settings: Any) -> AsyncIterator[NatsRoom]:
    """`listener` are settings of the one that speaks NATS."""
    listening = {"url": NATS, "name": "nats", **(listener or {})}
    listeners = settings.pop("listeners", [])
    async with testing.broker(history=0, listeners=[listening, *listeners], **settings) as broker:
        opened = NatsRoom(broker)
        try:
            yield opened
        finally:
            await opened.leave()


def masked(said: bytes) -> bytes:
    """Without what INFO tells."""
    return re.sub(rb"INFO \{.*?\} ?\r\n", b"INFO\r\n", said)
