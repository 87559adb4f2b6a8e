"""Moves bytes between a connection and its stream, until either ends."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

from trunkline.nats.client.connection import Connection, Phase
from trunkline.nats.client.transport import encrypt
from trunkline.nats.errors import ConnectionLost, StaleConnection
from trunkline.network_errors import NETWORK_ERRORS, reason_of
from trunkline.network_reads import StreamReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.nats.client.settings import Address, Settings

#: Bytes that a slow network takes in the time in which a server has to answer.
MAX_WRITE: Final = 1 << 16
#: Seconds that it may take to write what is left at the end.
CLOSE_TIMEOUT: Final = 2.0


class Runner:
    def __init__(
        self,
        connection: Connection,
        stream: trio.abc.Stream,
        address: Address,
        settings: Settings,
        on_written: Callable[[], object],
    ) -> None:
        """`on_written` is called when less waits to be written."""
        self.connection = connection
        connection.on_output = self.wake
        self.address = address
        self._stream = stream
        self._reader = StreamReader(stream)
        self._settings = settings
        self._output = trio.Event()
        #: Whether the writer waits for output, so that another task may write.
        self._is_idle = False
        #: What the socket did not take of such a write.
        self._unsent = b""
        self._scope = trio.CancelScope()
        self._on_written = on_written
        #: When the server has read something last.
        self._written_at = trio.current_time()

    async def greet(self) -> None:
        """Until the server has let the client in, or not: see the connection."""
        connection = self.connection
        while connection.phase is Phase.OPENED:
            await self._read_some()
        plain = self._stream if isinstance(self._stream, trio.SocketStream) else None
        if plain is not None and connection.phase is not Phase.OVER and connection.begins_tls():
            try:
                self._stream = await encrypt(plain, self.address, self._settings.tls)
                self._reader = StreamReader(self._stream)
            except NETWORK_ERRORS as error:
                connection.lost(ConnectionLost(reason_of(error)))
        while not connection.is_settled:
            await self._send(connection.take_output())
            await self._read_some()

    async def run(self) -> None:
        """Until the connection is over. The stream is closed then."""
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._read)
                    nursery.start_soon(self._watch)
                    await self._write()
                    nursery.cancel_scope.cancel()
        finally:
            self.connection.lost(ConnectionLost("the connection was given up"))
            await self.close()

    async def close(self) -> None:
        with trio.CancelScope(shield=True), suppress(*NETWORK_ERRORS):
            await trio.aclose_forcefully(self._stream)

    def finish(self) -> None:
        """This side ends the connection. What is left is written, within a limit."""
        self._scope.deadline = trio.current_time() + CLOSE_TIMEOUT
        self.connection.lost(None)
        self.wake()

    def wake(self) -> None:
        """There may be something to write."""
        self._output.set()

    def write_now(self) -> None:
        """Write what waits in the task that calls, which saves the turn of another one."""
        if self._may_write:
            self._put(self.connection.take_output())

    def send(self, data: bytes) -> None:
        """Write this at once, if nothing waits."""
        if self._may_write and not self.connection.waiting:
            self._put(data)
        else:
            self.connection.write(data)

    @property
    def _may_write(self) -> bool:
        """What waits for a socket that is full, or is to be encrypted, is left to the writer."""
        return self._is_idle and isinstance(self._stream, trio.SocketStream)

    def _put(self, data: bytes) -> None:
        assert isinstance(self._stream, trio.SocketStream)
        try:
            sent = os.write(self._stream.socket.fileno(), data) if data else 0
        except OSError:  # the socket is full, or broken: the writer finds out
            sent = 0
        if sent:
            self._written_at = trio.current_time()
            self._on_written()
        if sent < len(data):
            self._unsent = data[sent:]
            self._is_idle = False
            self._output.set()

    async def _read_some(self) -> None:
        try:
            data = await self._reader.next()
        except NETWORK_ERRORS as error:
            self.connection.lost(ConnectionLost(f"the connection broke: {reason_of(error)}"))
        else:
            self.connection.receive(data, trio.current_time())

    async def _read(self) -> None:
        connection = self.connection
        while connection.phase is not Phase.OVER:
            await self._read_some()
            if connection.waiting:
                self.write_now()
        self._scope.deadline = min(self._scope.deadline, trio.current_time() + CLOSE_TIMEOUT)
        self.wake()

    async def _write(self) -> None:
        connection = self.connection
        while True:
            self._output = trio.Event()
            unsent, self._unsent = self._unsent, b""
            data = unsent or connection.take_output()
            if data:
                await self._send(data)
                self._on_written()
            elif connection.phase is Phase.OVER:
                return
            else:
                self._is_idle = True
                await self._output.wait()
                self._is_idle = False

    async def _send(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            for begin in range(0, len(view), MAX_WRITE):
                await self._stream.send_all(view[begin : begin + MAX_WRITE])
                self._written_at = trio.current_time()
        except NETWORK_ERRORS as error:
            self.connection.lost(ConnectionLost(f"the connection broke: {reason_of(error)}"))

    async def _watch(self) -> None:
        """A server that says nothing, and answers nothing, is given up: also while a write does not end."""
        connection = self.connection
        while connection.phase is not Phase.OVER:
            heard_at = connection.heard_at
            await trio.sleep(self._settings.ping_interval)
            # after a time in which nothing ran, as of a stopped process, what has come is read first
            await trio.lowlevel.checkpoint()
            patience = self._settings.ping_interval * (self._settings.max_pings + 1)
            if not self._is_idle and trio.current_time() > self._written_at + patience:
                connection.lost(StaleConnection(f"the server has read nothing for {patience:g} s"))
            elif connection.heard_at > heard_at:
                connection.unanswered = 0
            else:
                connection.watch(self._settings.max_pings)
            if isinstance(connection.error, StaleConnection):
                self._scope.cancel()
