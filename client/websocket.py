"""MQTT over WebSocket, as a stream of trio."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    Pong,
    RejectConnection,
    Request,
    TextMessage,
)
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from trunkline.network_reads import MAX_READ

if TYPE_CHECKING:
    from collections.abc import Iterator

#: [MQTT-6.0.0-3]
SUBPROTOCOL: Final = "mqtt"
#: Bytes of MQTT in one frame.
MAX_FRAME: Final = 262_144
#: Seconds that a Close may take to leave.
CLOSE_TIMEOUT: Final = 1.0


class WebSocketStream(trio.abc.HalfCloseableStream):
    """MQTT packets may lie across frames in any way. [MQTT-6.0.0-2]"""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._frames = WSConnection(ConnectionType.CLIENT)
        #: The server sends no more.
        self._is_closed = False
        #: Pongs, and the answer to a Close, are sent by the task that reads.
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
                    return  # frames that came with it are read later
                if isinstance(event, RejectConnection):
                    raise trio.BrokenResourceError(f"the server refused the WebSocket: HTTP status {event.status_code}")

    async def _next(self) -> Iterator[object]:
        data = await self._stream.receive_some(MAX_READ)
        if not data:
            raise trio.BrokenResourceError("the server closed the connection")
        return self._events(data)

    def _events(self, data: bytes | bytearray = b"") -> Iterator[object]:
        """Of frames that have come, the last with this data."""
        try:
            if data:
                self._frames.receive_data(bytes(data))
            yield from self._frames.events()
        except RemoteProtocolError as error:
            raise trio.BrokenResourceError(f"the server broke WebSocket: {error}") from error

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """As many bytes as have come; `max_bytes` is not needed and not kept to."""
        await trio.lowlevel.checkpoint_if_cancelled()
        payload = await self._payload(self._events())
        while not payload and not self._is_closed:
            data = await self._stream.receive_some(MAX_READ)
            if not data:
                return b""
            payload = await self._payload(self._events(data))
        return payload

    async def _payload(self, events: Iterator[object]) -> bytes:
        pieces: list[bytes] = []
        for event in events:
            if isinstance(event, BytesMessage):
                pieces.append(bytes(event.data))
            elif isinstance(event, Ping):
                pong = self._frame(event.response())
                async with self._sending:
                    await self._stream.send_all(pong)
            elif isinstance(event, CloseConnection):
                self._is_closed = True
                await self._close(event.response())
            elif isinstance(event, TextMessage):  # [MQTT-6.0.0-1]
                await self._close(CloseConnection(CloseReason.UNSUPPORTED_DATA))
                raise trio.BrokenResourceError("the server sent text, and MQTT is binary")
        return b"".join(pieces)

    def _frame(self, event: BytesMessage | Pong) -> bytes:
        try:
            return self._frames.send(event)
        except LocalProtocolError:
            raise trio.BrokenResourceError("the server has closed the WebSocket") from None

    async def _close(self, event: CloseConnection) -> None:
        """Send a Close, unless one was sent."""
        with suppress(LocalProtocolError), trio.move_on_after(CLOSE_TIMEOUT):
            frame = self._frames.send(event)
            async with self._sending:
                await self._stream.send_all(frame)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        data = bytes(data)
        frames = [
            self._frame(BytesMessage(data[start : start + MAX_FRAME])) for start in range(0, len(data), MAX_FRAME)
        ]
        async with self._sending:
            await self._stream.send_all(b"".join(frames))

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        """Close the WebSocket. The server answers, and closes the connection."""
        await self._close(CloseConnection(CloseReason.NORMAL_CLOSURE))

    async def aclose(self) -> None:
        try:
            await self.send_eof()
        except trio.BrokenResourceError:
            pass  # the server has closed the connection
        finally:
            await self._stream.aclose()
