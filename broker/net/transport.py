"""Transports of a connection's bytes: a socket with its output buffer, and the layers on top of it.

`SocketTransport` is driven by the node's poller; `StreamTransport`, in a module of its own, by tasks. A `Layer` is
between one of them, or another layer, and the connection, which uses only the top of the stack.
"""

from __future__ import annotations

import struct
import sys
from contextlib import suppress
from socket import IPPROTO_TCP, SHUT_WR, SO_LINGER, SOL_SOCKET, TCP_NODELAY, socket
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from trunkline.broker.net.poller import MAX_READ, READ, WRITE

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.actors import Actor, Ref
    from trunkline.broker.net.poller import Poller
    from trunkline.hooks.identity import Identity

#: Bytes of one read outside of the poller.
READ_SIZE: Final = 65_536
#: Bytes to ask a socket for whose last read brought fewer. Asking for more costs the memory for it: five times the read
#: itself.
SMALL_READ: Final = 16_384
#: The first read, which no other one is as large as.
FIRST_READ: Final = SMALL_READ + 1
#: From this many bytes on, a socket is written to at once: so much data for many subscribers would not stay in the
#: processor's cache until the end of the turn, when smaller output is written.
WRITTEN_AT_ONCE: Final = 4_096
#: Linger for no time: closing resets the connection.
NO_LINGER: Final = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)


class Ended:
    """No more bytes will come; `error` is empty after an orderly end."""

    __slots__ = ("error",)

    def __init__(self, error: str) -> None:
        self.error = error


class Failed:
    """The other side broke the protocol of a layer, or may not connect. The layer has sent its last output, and passes
    on nothing more in either direction but `Ended`. The connection ends in order, so that the other side can read why.
    """

    __slots__ = ("detail", "problem")

    def __init__(self, problem: str, detail: str = "") -> None:
        #: One of a fixed number of texts, by which failures are counted in the log.
        self.problem = problem
        self.detail = detail


class OutputBlocked:
    """Some of the output waits; `OutputDrained` will follow."""

    __slots__ = ()


class OutputDrained:
    """All output has been written."""

    __slots__ = ()


BLOCKED: Final = OutputBlocked()
DRAINED: Final = OutputDrained()

Event: TypeAlias = "bytes | Ended | Failed | OutputBlocked | OutputDrained"
#: Receives events: the mailbox of a connection, or the layer above.
Receiver: TypeAlias = "Callable[[Event], None]"


def discard(_event: Event) -> None:
    """Discards further events of a closed connection, without keeping a reference to it."""


class Transport(Protocol):
    @property
    def peer(self) -> tuple[str, int] | None:
        """Address and port of the other side; None if it has none."""
        ...

    @property
    def identity(self) -> Identity | None:
        """What layers know of the client, once their handshakes are over; None without such a layer."""
        ...

    def start(self, receiver: Receiver, owner: Actor[Any]) -> None:
        """Begin to read, on behalf of an actor: an error outside of its own calls crashes that actor.

        Raises:
            OSError: the system watches no more sockets.
        """
        ...

    def pass_to(self, receiver: Receiver) -> None:
        """From now on this one receives the events of a transport that was started."""
        ...

    @property
    def bare(self) -> socket | None:
        """The socket, if it has all of the connection: no layer is needed, and no bytes of it are anywhere else."""
        ...

    @property
    def was_passed(self) -> bool:
        """Whether another shard of this node has accepted the connection."""
        ...

    def send(self, data: bytes) -> None:
        """All of it will be sent, by the end of this turn or, after `OutputBlocked`, when the other side reads more."""
        ...

    def send_now(self, data: bytes) -> None:
        """As `send`, without waiting for the end of the turn: for a layer that gathers the output of a turn itself."""
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
        """Read all bytes that have already arrived, by the end of the next turn."""
        ...

    def take_unread(self) -> bytes:
        """What has arrived and was not passed on, up to one read, also while it is paused."""
        ...

    def finish(self) -> None:
        """No more will be sent; reading goes on."""
        ...

    def reset(self) -> None:
        """End the connection abruptly. Earlier output is still sent if the other side reads it, later output is not;
        then `Ended` comes, and closing is a reset."""
        ...

    def close(self) -> None: ...


class Layer:
    """One step on the way of a connection's bytes: a PROXY header, TLS, WebSocket frames, faults.

    `receive` takes events from below, `send` bytes from above, and each passes its result on. For the layer above, this
    one is the transport. This class passes everything on unchanged.
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

    def pass_to(self, receiver: Receiver) -> None:
        self.above = receiver

    @property
    def bare(self) -> socket | None:
        return None

    @property
    def was_passed(self) -> bool:
        return self.below.was_passed

    def send(self, data: bytes) -> None:
        self.below.send(data)

    def send_now(self, data: bytes) -> None:
        self.below.send_now(data)

    @property
    def peer(self) -> tuple[str, int] | None:
        return self.below.peer

    @property
    def identity(self) -> Identity | None:
        return self.below.identity

    @property
    def pending(self) -> int:
        return self.below.pending

    def pause(self) -> None:
        self.below.pause()

    def resume(self) -> None:
        self.below.resume()

    def read_now(self) -> None:
        self.below.read_now()

    def take_unread(self) -> bytes:
        above, payloads = self.above, list[bytes]()
        self.above = lambda event: payloads.append(event) if isinstance(event, bytes) else above(event)
        try:
            data = self.below.take_unread()
            if data:
                self.receive(data)
        finally:
            self.above = above
        return b"".join(payloads)

    def finish(self) -> None:
        self.below.finish()

    def reset(self) -> None:
        self.below.reset()

    def close(self) -> None:
        self.below.close()
        self.above = discard


class OutputLayer(Layer):
    """A step of sent bytes alone. It may be put on top of a started transport, because received bytes bypass it."""

    __slots__ = ()

    def take_unread(self) -> bytes:
        return self.below.take_unread()


class SocketTransport:
    identity: Identity | None = None
    was_passed = False
    __slots__ = (
        "_finishing",
        "_metrics",
        "_outgoing",
        "_pending",
        "_poller",
        "_reading",
        "_scheduler",
        "_sock",
        "_usual_size",
        "owner",
        "peer",
        "receiver",
    )

    def __init__(self, sock: socket, peer: tuple[str, int] | None, poller: Poller) -> None:
        """
        Raises:
            OSError: the connection is lost already. The caller keeps the socket.
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
        self._scheduler = poller.scheduler
        self._metrics = poller.metrics
        self._usual_size = FIRST_READ
        #: The output of this turn, and output of earlier turns that the socket has not accepted yet.
        self._outgoing = b""
        self._pending = bytearray()
        self._reading = True
        self._finishing = False

    def start(self, receiver: Receiver, owner: Actor[Any]) -> None:
        self.receiver = receiver
        self.owner = owner.ref
        self._poller.register(self._sock, READ, self)

    def pass_to(self, receiver: Receiver) -> None:
        self.receiver = receiver

    @property
    def bare(self) -> socket | None:
        return None if self.pending else self._sock

    @property
    def is_new(self) -> bool:
        return self._usual_size == FIRST_READ

    def ready(self, events: int, limit: int) -> bytes | None:
        if events != READ or not self._reading:
            if self._pending:
                self._flush()
            if not self._reading or events == WRITE:
                return None
        usual = self._usual_size
        size = min(usual, limit)
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
        if len(data) == size:
            self._usual_size = MAX_READ
        elif usual > SMALL_READ:
            self._usual_size = SMALL_READ
        return data

    def _end(self, error: str) -> None:
        self.pause()
        self.receiver(Ended(error))

    def send(self, data: bytes) -> None:
        if self._outgoing:
            self._outgoing += data
            return
        self._outgoing = data
        if len(data) < WRITTEN_AT_ONCE:
            self._scheduler.at_end(self)
        else:
            self.end_turn()

    def send_now(self, data: bytes) -> None:
        self._outgoing += data
        self.end_turn()

    def end_turn(self) -> None:
        """Write the output of this turn."""
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
        self._metrics.bytes_sent += sent
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
            self._metrics.bytes_sent += sent
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
        except OSError as error:  # this socket would not be watched any more
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
        data = self.take_unread() if self._reading else b""
        if data:
            self.receiver(data)

    def take_unread(self) -> bytes:
        try:
            data = self._sock.recv(READ_SIZE)
        except OSError:  # there is nothing, or the poller meets the same error
            return b""
        self._metrics.bytes_received += len(data)
        return data

    def finish(self) -> None:
        self._finishing = True
        if not self._pending and not self._outgoing:
            self._shut_down()

    def reset(self) -> None:
        if self._outgoing:
            self.end_turn()
        self._pending.clear()
        with suppress(OSError):  # the peer was faster
            self._sock.setsockopt(SOL_SOCKET, SO_LINGER, NO_LINGER)
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
            self.receiver = discard
