"""The client's end of a WebSocket, as a stream: what is sent at a time is a message, and so is what is received."""

from collections.abc import Sequence
from typing import Any

import trio
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Request


class Frames(trio.abc.HalfCloseableStream):
    def __init__(self, stream: trio.abc.HalfCloseableStream) -> None:
        self.stream = stream
        self._connection = WSConnection(ConnectionType.CLIENT)
        #: What the broker has chosen.
        self.subprotocol: str | None = None
        #: How the broker has closed it.
        self.closed: CloseConnection | None = None

    @classmethod
    async def open(cls, host: str, port: int, before: bytes = b"", **asked: Any) -> "Frames":
        """`before` is sent ahead of the request."""
        return await cls.over(await trio.open_tcp_stream(host, port), before, **asked)

    @classmethod
    async def over(
        cls,
        stream: trio.abc.HalfCloseableStream,
        before: bytes = b"",
        target: str = "/mqtt",
        subprotocols: Sequence[str] = ("mqtt", "mqttv3.1"),
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> "Frames":
        opened = cls(stream)
        asked = Request(host="broker", target=target, subprotocols=list(subprotocols), extra_headers=list(headers))
        request = opened._connection.send(asked)
        await opened.stream.send_all(before + request)
        accepted = await opened._next()
        assert isinstance(accepted, AcceptConnection)
        opened.subprotocol = accepted.subprotocol
        return opened

    async def _next(self) -> object:
        while True:
            for event in self._connection.events():
                return event
            self._connection.receive_data(await self.stream.receive_some() or None)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self.stream.send_all(self._connection.send(BytesMessage(bytes(data))))

    async def wait_send_all_might_not_block(self) -> None:
        await self.stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        await self.stream.send_eof()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        event = await self._next()
        if isinstance(event, CloseConnection):
            self.closed = event
            return b""
        assert isinstance(event, BytesMessage)
        return bytes(event.data)

    async def aclose(self) -> None:
        await self.stream.aclose()
