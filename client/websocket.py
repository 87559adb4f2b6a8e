"""MQTT over WebSocket, as a stream of trio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    RejectConnection,
    Request,
    TextMessage,
)
from wsproto.utilities import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterator

#: [MQTT-6.0.0-3]
SUBPROTOCOL: Final = "mqtt"
MAX_READ: Final = 65_536
#: Bytes of MQTT in one frame.
MAX_FRAME: Final = 262_144


class WebSocketStream(trio.abc.Stream):
    """MQTT packets may lie across frames in any way. [MQTT-6.0.0-2]"""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._frames = WSConnection(ConnectionType.CLIENT)
        #: Payload that came with the answer to the handshake.
        self._early = b""
        #: Pongs are sent by the task that reads.
        self._sending = trio.Lock()

    async def handshake(self, host: str, resource: str) -> None:
        """
        Raises:
            trio.BrokenResourceError: the server accepts no WebSocket there, or none for MQTT.
        """
        request = Request(host=host, target=resource, subprotocols=[SUBPROTOCOL])
        await self._stream.send_all(self._frames.send(request))
        while True:
            for event in await self._next():
                if isinstance(event, AcceptConnection):
                    if event.subprotocol != SUBPROTOCOL:
                        raise trio.BrokenResourceError("the server has a WebSocket there, but not for MQTT")
                    self._early = b"".join(self._payloads())
                    return
                if isinstance(event, RejectConnection):
                    raise trio.BrokenResourceError(f"the server refused the WebSocket: HTTP status {event.status_code}")

    async def _next(self) -> Iterator[object]:
        data = await self._stream.receive_some(MAX_READ)
        if not data:
            raise trio.BrokenResourceError("the server closed the connection")
        return self._received(bytes(data))

    def _received(self, data: bytes) -> Iterator[object]:
        try:
            self._frames.receive_data(data)
            yield from self._frames.events()
        except RemoteProtocolError as error:
            raise trio.BrokenResourceError(f"the server broke WebSocket: {error}") from error

    def _payloads(self) -> Iterator[bytes]:
        """Of frames that have come already."""
        try:
            for event in self._frames.events():
                if isinstance(event, BytesMessage):
                    yield bytes(event.data)
        except RemoteProtocolError as error:
            raise trio.BrokenResourceError(f"the server broke WebSocket: {error}") from error

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """As many bytes as have come; `max_bytes` is not needed and not kept to."""
        payload, self._early = self._early, b""
        if payload:
            await trio.lowlevel.checkpoint()
            return payload
        while True:
            data = await self._stream.receive_some(MAX_READ)
            if not data:
                return b""
            pieces: list[bytes] = []
            for event in self._received(bytes(data)):
                if isinstance(event, BytesMessage):
                    pieces.append(bytes(event.data))
                elif isinstance(event, Ping):
                    async with self._sending:
                        await self._stream.send_all(self._frames.send(event.response()))
                elif isinstance(event, CloseConnection):
                    return b"".join(pieces)
                elif isinstance(event, TextMessage):  # [MQTT-6.0.0-1]
                    raise trio.BrokenResourceError("the server sent text, and MQTT is binary")
            if pieces and (payload := b"".join(pieces)):
                return payload

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        data = bytes(data)
        frames = [
            self._frames.send(BytesMessage(data[start : start + MAX_FRAME])) for start in range(0, len(data), MAX_FRAME)
        ]
        async with self._sending:
            await self._stream.send_all(b"".join(frames))

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._stream.aclose()
