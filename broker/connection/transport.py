"""The bytes of a connection: a socket or a stream with its output buffer, and the layers on top of it.

`SocketTransport` is driven by the node's poller. `StreamTransport` wraps any trio stream: in-process connections, and
sockets where the platform has no selector that can be waited for. A `Layer` stands between one of them, or another
layer, and the connection, which sees the top of that stack alone.
"""

from __future__ import annotations

import struct
import sys
from contextlib import suppress
from socket import IPPROTO_TCP, SHUT_WR, SO_LINGER, SOL_SOCKET, TCP_NODELAY, socket
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import trio

from trunkline.broker.connection.poller import MAX_READ, READ, WRITE

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.actors import Actor, Ref, Scheduler
    from trunkline.broker.connection.poller import Poller

#: Bytes of one read of a stream.
READ_SIZE: Final = 65_536
#: Bytes to ask a socket for whose last read brought fewer. Asking for more costs the memory for it: five times the read
#: itself.
SMALL_READ: Final = 16_384
#: From so many bytes on, a socket is written to at once: as much for each of many subscribers would not stay in the
#: processor's cache until the end of the turn, when the rest is written.
WRITTEN_AT_ONCE: Final = 4_096
#: Bytes that may wait for a stream before it counts as blocked. (A socket has the kernel's buffer for that.)
STREAM_BUFFER: Final = 65_536
#: Linger for no time: closing resets the connection.
_NO_LINGER: Final = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)


class Ended:
    """No more bytes will come; `error` is empty after an orderly end."""

    __slots__ = ("error",)

    def __init__(self, error: str) -> None:
        self.error = error


class OutputBlocked:
    """Some of what was sent waits, and `OutputDrained` will come."""

    __slots__ = ()


class OutputDrained:
    """All that was sent has left."""

    __slots__ = ()


BLOCKED: Final = OutputBlocked()
DRAINED: Final = OutputDrained()

Event: TypeAlias = "bytes | Ended | OutputBlocked | OutputDrained"
#: Takes what comes in: the mailbox of a connection, or the layer above.
Receiver: TypeAlias = "Callable[[Event], None]"


def _nobody(_event: Event) -> None:
    """Receives what still comes for a connection that is closed, and is no reference to it."""


class Transport(Protocol):
    @property
    def peer(self) -> tuple[str, int] | None:
        """Address and port of the other side; None when it has none."""
        ...

    def start(self, receiver: Receiver, owner: Actor[Any]) -> None:
        """Begin to read, on behalf of an actor: an error that nobody waits for crashes that actor.

        Raises:
            OSError: the system watches no more sockets.
        """
        ...

    def send(self, data: bytes) -> None:
        """All of it will be sent, by the end of this turn or, after `OutputBlocked`, when the other side takes more."""
        ...

    @property
    def pending(self) -> int:
        """Bytes that wait."""
        ...

    def pause(self) -> None:
        """Read no more."""
        ...

    def resume(self) -> None: ...
    def read_now(self) -> None:
        """Read what has come and was not read yet, by the end of the next turn."""
        ...

    def finish(self) -> None:
        """No more will be sent; reading goes on."""
        ...

    def reset(self) -> None:
        """End the connection abruptly. What was sent before leaves if the other side takes it, nothing after it; then
        `Ended` comes, and closing is a reset."""
        ...

    def close(self) -> None: ...


class Layer:
    """One step on the way of a connection's bytes: a PROXY header, TLS, WebSocket frames, faults.

    `receive` takes what comes from below, `send` what is sent from above, and each passes on what the layer makes of
    it. To what is above it, a layer is the transport. As it stands, it passes on everything as it is.
    """

    __slots__ = ("above", "below")

    above: Receiver

    def __init__(self, below: Transport) -> None:
        self.below = below

    def start(self, receiver: Receiver, owner: Actor[Any]) -> None:
        self.above = receiver
        self.below.start(self.receive, owner)

    def receive(self, event: Event) -> None:
        self.above(event)

    def send(self, data: bytes) -> None:
        self.below.send(data)

    @property
    def peer(self) -> tuple[str, int] | None:
        return self.below.peer

    @property
    def pending(self) -> int:
        return self.below.pending

    def pause(self) -> None:
        self.below.pause()

    def resume(self) -> None:
        self.below.resume()

    def read_now(self) -> None:
        self.below.read_now()

    def finish(self) -> None:
        self.below.finish()

    def reset(self) -> None:
        self.below.reset()

    def close(self) -> None:
        self.below.close()
        self.above = _nobody


class SocketTransport:
    __slots__ = (
        "_finishing",
        "_outgoing",
        "_pending",
        "_poller",
        "_reading",
        "_sock",
        "_usual_size",
        "owner",
        "peer",
        "receiver",
    )

    def __init__(self, sock: socket, peer: tuple[str, int] | None, poller: Poller) -> None:
        """
        Raises:
            OSError: the connection is lost already. The socket stays the caller's.
        """
        sock.setblocking(False)
        if peer is not None:
            # without it some mixes of small packets stall for 40 ms
            sock.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
        self.peer = peer
        #: Set at the start.
        self.owner: Ref[Any] | None = None
        self.receiver: Receiver
        self._sock = sock
        self._poller = poller
        self._usual_size = SMALL_READ
        #: What leaves at the end of this turn, and what the socket did not take of earlier turns.
        self._outgoing = b""
        self._pending = bytearray()
        self._reading = True
        self._finishing = False

    def start(self, receiver: Receiver, owner: Actor[Any]) -> None:
        self.receiver = receiver
        self.owner = owner.ref
        self._poller.register(self._sock, READ, self)

    def ready(self, events: int) -> bytes | None:
        if events != READ and self._pending:
            self._flush()
        if not self._reading or events == WRITE:
            return None
        size = min(self._poller.read_size, self._usual_size)
        try:
            data = self._sock.recv(size)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError as error:
            self._end(error.strerror or str(error))
            return None
        if not data:
            self._end("")
            return None
        self._usual_size = MAX_READ if len(data) == size else SMALL_READ
        return data

    def _end(self, error: str) -> None:
        self.pause()
        self.receiver(Ended(error))

    def send(self, data: bytes) -> None:
        if self._outgoing:
            self._outgoing += data
        elif len(data) < WRITTEN_AT_ONCE:
            self._outgoing = data
            self._poller.at_end(self)
        else:
            self._outgoing = data
            self.end_turn()

    def end_turn(self) -> None:
        """Write what was sent in this turn."""
        data, self._outgoing = self._outgoing, b""
        if not data:
            return  # the end of the connection could not wait for the end of the turn
        if self._pending:
            self._pending += data
            self.receiver(BLOCKED)
            return
        try:
            sent = self._sock.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            sent = len(data)  # the peer is gone; the next read says so
        if sent < len(data):
            self._pending += memoryview(data)[sent:]
            self._watch()
            self.receiver(BLOCKED)
        elif self._finishing:
            self._shut_down()

    def _flush(self) -> None:
        try:
            sent = self._sock.send(self._pending)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._pending.clear()
        else:
            del self._pending[:sent]
        if not self._pending:
            self._watch()
            if self._finishing:
                self._shut_down()
            else:
                self.receiver(DRAINED)

    def _watch(self) -> None:
        if self._sock.fileno() < 0:
            return  # closed already
        try:
            self._poller.modify(self._sock, READ * self._reading | WRITE * bool(self._pending), self)
        except OSError as error:  # nothing would be heard of this socket any more
            self.receiver(Ended(error.strerror or str(error)))

    @property
    def pending(self) -> int:
        return len(self._pending) + len(self._outgoing)

    def pause(self) -> None:
        self._reading = False
        self._watch()

    def resume(self) -> None:
        self._reading = True
        self._watch()

    def read_now(self) -> None:
        if self._reading:
            with suppress(OSError):  # there is nothing, or the poller meets the same error
                data = self._sock.recv(READ_SIZE)
                if data:
                    self.receiver(data)

    def finish(self) -> None:
        self._finishing = True
        if not self._pending and not self._outgoing:
            self._shut_down()

    def reset(self) -> None:
        if self._outgoing:
            self.end_turn()
        self._pending.clear()
        with suppress(OSError):  # the peer was faster
            self._sock.setsockopt(SOL_SOCKET, SO_LINGER, _NO_LINGER)
        self._end("reset")

    def _shut_down(self) -> None:
        try:
            self._sock.shutdown(SHUT_WR)
        except OSError:
            self._end("")  # the peer was faster

    def close(self) -> None:
        try:
            if self._outgoing:
                self.end_turn()
        finally:
            self._poller.forget(self._sock)
            with suppress(OSError):  # some systems report here that the peer is gone
                self._sock.close()
            # the poller may hold an event of this socket that it has not passed on
            self._reading = False
            self._pending.clear()
            self.receiver = _nobody


class StreamTransport:
    """Feeds a connection from any trio stream, by a task that reads and one that writes."""

    __slots__ = (
        "_blocked",
        "_finishing",
        "_pending",
        "_receiver",
        "_resetting",
        "_resumed",
        "_scheduler",
        "_stream",
        "_wake",
        "peer",
    )

    def __init__(self, stream: trio.abc.Stream, peer: tuple[str, int] | None, scheduler: Scheduler) -> None:
        self.peer = peer
        self._stream = stream
        self._scheduler = scheduler
        self._pending = bytearray()
        self._blocked = False
        self._finishing = False
        self._resetting = False
        self._wake = trio.Event()
        self._resumed = trio.Event()
        self._resumed.set()

    def start(self, receiver: Receiver, owner: Actor[Any]) -> None:
        self._receiver = receiver
        owner.start_task(self._run)

    async def _run(self) -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read)
                nursery.start_soon(self._write)
        finally:
            await trio.aclose_forcefully(self._stream)

    async def _read(self) -> None:
        while True:
            error = ""
            data: bytes | bytearray = b""
            try:
                data = await self._stream.receive_some(READ_SIZE)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as lost:
                error = str(lost.__cause__ or "connection lost")
            await self._resumed.wait()
            with self._scheduler.turn:
                self._receiver(bytes(data) if data else Ended(error))
            if not data:
                return
            await self._scheduler.drained()

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
                    self._stream.setsockopt(SOL_SOCKET, SO_LINGER, _NO_LINGER)
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
        self._pending += data
        self._wake.set()
        if self._blocked or len(self._pending) > STREAM_BUFFER:
            self._blocked = True
            self._receiver(BLOCKED)

    @property
    def pending(self) -> int:
        return len(self._pending)

    def pause(self) -> None:
        self._resumed = trio.Event()

    def resume(self) -> None:
        self._resumed.set()

    def read_now(self) -> None:
        """Its task does, which runs before the next turn."""

    def finish(self) -> None:
        self._finishing = True
        self._wake.set()

    def reset(self) -> None:
        self._resetting = True
        self._wake.set()

    def close(self) -> None:
        """The end of the connection cancels the tasks, which closes the stream."""
        self._receiver = _nobody
