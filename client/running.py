"""Moves bytes between a connection and its stream, until either ends."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

import trio

from trunkline.client.connection import ClientConnection, Phase
from trunkline.client.errors import Disconnected
from trunkline.network_errors import NETWORK_ERRORS, reason_of
from trunkline.network_reads import StreamReader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trunkline.mqtt.session.receiving import Handover

#: A read of fewer bytes, all of them answers, is small: reading again at once would bring as few.
SMALL_READ: Final = 2048
#: Seconds after a small read, while many answers are to come. Otherwise a client that is faster than its server takes
#: a whole core to read them one by one.
READ_PAUSE: Final = 0.001
#: Seconds that it may take to send what is left.
CLOSE_TIMEOUT: Final = 5.0
#: Seconds that the server has to close, after the last packet of this side: who closes first may lose that packet.
LINGER: Final = 1.0


class RequestSource(Protocol):
    """What is sent on a connection."""

    def sent(self) -> None:
        """Some may have left the queue."""


class MessageSink(Protocol):
    """What a connection's messages are for."""

    @property
    def is_crowded(self) -> bool:
        """Whether there is no room for more. After a change of it, somebody calls `Runner.wake`."""
        ...

    def hand_over(self, handovers: Sequence[Handover], size: int) -> None:
        """So many bytes came, with these messages."""


class Runner:
    def __init__(
        self, connection: ClientConnection, stream: trio.abc.Stream, requests: RequestSource, receivers: MessageSink
    ) -> None:
        self.connection = connection
        self._stream = stream
        self._reader = StreamReader(stream)
        self._requests = requests
        self._receivers = receivers
        self._output = trio.Event()
        self._room = trio.Event()
        #: Whether the writer waits for output, so that another task may write.
        self._is_idle = False
        #: What the socket did not take of such a write.
        self._unsent = b""
        # its owner says when it ends: also in a block that is cancelled, DISCONNECT is sent
        self._scope = trio.CancelScope(shield=True)
        #: Set when CONNACK came, or never will.
        self.answered = trio.Event()

    def wake(self) -> None:
        """There may be something to send, or room to read."""
        self._output.set()
        self._room.set()

    def write_now(self) -> None:
        """Send what there is to send in the task that calls, which saves the turn of another one. What the socket does
        not take at once is left to the writer, and so is all output of a stream that is no plain socket."""
        self._room.set()  # a request that waits for its answer makes room
        if not (self._is_idle and isinstance(self._stream, trio.SocketStream)):
            self._output.set()
            return
        data = self._take_output()
        if data:
            try:
                sent = os.write(self._stream.socket.fileno(), data)
            except OSError:  # the socket is full, or broken: the writer finds out
                sent = 0
            if sent < len(data):
                self._unsent = data[sent:]
                self._is_idle = False
                self._output.set()
        elif self.connection.phase is Phase.OVER:
            self._output.set()

    def _take_output(self) -> bytes:
        data = self.connection.take_output(trio.current_time())
        self._requests.sent()
        return data

    def finish(self) -> None:
        """The connection is over. What is left is sent, within a limit."""
        self._scope.deadline = trio.current_time() + CLOSE_TIMEOUT
        self.wake()

    def abort(self) -> None:
        """Close the stream at once."""
        self._scope.cancel()

    async def run(self) -> None:
        """Until the connection is over. Whatever is to be sent then is sent, and the stream is closed."""
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._read)
                    nursery.start_soon(self._watch)
                    await self._write()
                    nursery.cancel_scope.cancel()
                await self._linger()
        finally:
            self.connection.lost(Disconnected("the connection was given up"))
            self.answered.set()
            with trio.CancelScope(shield=True), suppress(*NETWORK_ERRORS):
                await trio.aclose_forcefully(self._stream)

    async def _read(self) -> None:
        connection = self.connection
        is_small = False
        while connection.phase is not Phase.OVER:
            try:
                data = await self._reader.next()
            except NETWORK_ERRORS as error:
                connection.lost(Disconnected(f"the connection broke: {reason_of(error)}"))
            else:
                handovers = connection.receive(data, trio.current_time())
                self._receivers.hand_over(handovers, len(data))
                is_small = not handovers and len(data) < SMALL_READ
            if connection.phase is not Phase.CONNECTING:
                self.answered.set()
            self.write_now()
            if is_small and connection.answers_may_wait:
                await trio.sleep(READ_PAUSE)
            if not self._may_read:
                await self._wait_for_room()
        self.finish()

    @property
    def _may_read(self) -> bool:
        """Whether messages have room. An answer that somebody waits for stands behind them, so they must be read."""
        return self.connection.is_waiting or not self._receivers.is_crowded

    async def _wait_for_room(self) -> None:
        self.connection.set_reading(False, trio.current_time())
        while not self._may_read:
            self._room = trio.Event()
            await self._room.wait()
        self.connection.set_reading(True, trio.current_time())

    async def _write(self) -> None:
        connection = self.connection
        while True:
            self._output = trio.Event()
            unsent, self._unsent = self._unsent, b""
            # what comes behind it is taken only afterwards, when the socket has room again
            data = unsent or self._take_output()
            if data:
                try:
                    await self._stream.send_all(data)
                except NETWORK_ERRORS as error:
                    connection.lost(Disconnected(f"the connection broke: {reason_of(error)}"))
            elif connection.phase is Phase.OVER:
                return
            else:
                self._is_idle = True
                await self._output.wait()
                self._is_idle = False

    async def _watch(self) -> None:
        """Keep-alive."""
        await self.answered.wait()
        while True:
            await trio.sleep_until(self.connection.deadline)
            # after a time in which nothing ran, as of a stopped process, the answer may be there, and is read first
            await trio.lowlevel.checkpoint()
            self.connection.on_time(trio.current_time())
            if self.connection.phase is Phase.OVER:
                self.finish()
                return
            self._output.set()

    async def _linger(self) -> None:
        if self.connection.error is None and isinstance(self._stream, trio.abc.HalfCloseableStream):
            with trio.move_on_after(LINGER), suppress(*NETWORK_ERRORS):
                await self._stream.send_eof()
                while await self._reader.next():
                    pass
