"""A transport without a socket in the poller: any trio stream.

In-process connections, and sockets where the platform has no selector that can be waited for.
"""

from __future__ import annotations

from contextlib import nullcontext
from socket import SO_LINGER, SOL_SOCKET
from typing import TYPE_CHECKING, Any, Final

import trio

from trunkline.broker.net.transport import BLOCKED, DRAINED, NO_LINGER, READ_SIZE, Ended, discard

if TYPE_CHECKING:
    from socket import socket

    from trunkline.actors import Actor, Scheduler
    from trunkline.broker.metrics import Metrics
    from trunkline.broker.net.transport import Receiver
    from trunkline.hooks.identity import Identity

#: Bytes that may wait for a stream before it counts as blocked. (A socket has the kernel's buffer for that.)
STREAM_BUFFER: Final = 65_536


class StreamTransport:
    """Connects a trio stream to a connection, by a task that reads and one that writes."""

    identity: Identity | None = None
    was_passed = False
    #: A task may be reading from it at any time.
    bare: socket | None = None
    __slots__ = (
        "_ahead",
        "_blocked",
        "_finishing",
        "_metrics",
        "_pending",
        "_receiver",
        "_resetting",
        "_resumed",
        "_scheduler",
        "_stream",
        "_unread",
        "_wake",
        "peer",
    )

    def __init__(
        self, stream: trio.abc.Stream, peer: tuple[str, int] | None, scheduler: Scheduler, metrics: Metrics
    ) -> None:
        self.peer = peer
        self._stream = stream
        self._scheduler = scheduler
        self._metrics = metrics
        self._pending = bytearray()
        self._blocked = False
        self._finishing = False
        self._resetting = False
        #: What was read and waits for the end of a pause, which ends the reading of more.
        self._unread = b""
        self._ahead = trio.CancelScope()
        self._wake = trio.Event()
        self._resumed = trio.Event()
        self._resumed.set()

    def start(self, receiver: Receiver, owner: Actor[Any]) -> None:
        self._receiver = receiver
        owner.start_task(self._run)

    def pass_to(self, receiver: Receiver) -> None:
        self._receiver = receiver

    async def _run(self) -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read)
                nursery.start_soon(self._write)
        finally:
            await trio.aclose_forcefully(self._stream)

    async def _read(self) -> None:
        """During a pause it reads ahead, up to one read: a client that is held up may say goodbye."""
        error, has_ended = "", False
        while not has_ended:
            try:
                with self._reading_ahead() if self._unread else nullcontext():
                    data = await self._stream.receive_some(READ_SIZE - len(self._unread))
                    self._unread += data
                    has_ended = not data
            except (trio.BrokenResourceError, trio.ClosedResourceError) as lost:
                error, has_ended = str(lost.__cause__ or "connection lost"), True
            if not has_ended and not self._resumed.is_set() and len(self._unread) < READ_SIZE:
                continue
            await self._resumed.wait()
            if self._unread:
                with self._scheduler.turn:
                    self._receiver(self.take_unread())
                await self._scheduler.drained()
        await self._resumed.wait()
        with self._scheduler.turn:
            self._receiver(Ended(error))

    def _reading_ahead(self) -> trio.CancelScope:
        self._ahead = trio.CancelScope()
        return self._ahead

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            data, self._pending = self._pending, bytearray()
            try:
                if data:
                    await self._stream.send_all(data)
                if self._finishing and not self._pending and isinstance(self._stream, trio.abc.HalfCloseableStream):
                    await self._stream.send_eof()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return  # the peer is gone, and reading says so
            if self._resetting:
                if isinstance(self._stream, trio.SocketStream):
                    self._stream.setsockopt(SOL_SOCKET, SO_LINGER, NO_LINGER)
                with self._scheduler.turn:
                    self._receiver(Ended("reset"))
                return
            if not self._pending:
                self._wake = trio.Event()
                if self._blocked:
                    self._blocked = False
                    with self._scheduler.turn:
                        self._receiver(DRAINED)

    def send(self, data: bytes) -> None:
        self._metrics.bytes_sent += len(data)
        self._pending += data
        self._wake.set()
        if self._blocked or len(self._pending) > STREAM_BUFFER:
            self._blocked = True
            self._receiver(BLOCKED)

    def send_now(self, data: bytes) -> None:
        self.send(data)

    @property
    def pending(self) -> int:
        return len(self._pending)

    def pause(self) -> None:
        self._resumed = trio.Event()

    def resume(self) -> None:
        self._resumed.set()
        self._ahead.cancel()

    def read_now(self) -> None:
        """Its task does, which runs before the next turn."""

    def take_unread(self) -> bytes:
        data, self._unread = self._unread, b""
        self._metrics.bytes_received += len(data)
        return data

    def finish(self) -> None:
        self._finishing = True
        self._wake.set()

    def reset(self) -> None:
        self._resetting = True
        self._wake.set()

    def close(self) -> None:
        """The end of the connection cancels the tasks, which closes the stream."""
        self._receiver = discard
