"""What everything in a generator process stands on: the loop, the socket with an output queue, the shared count."""

import select
import socket
from collections.abc import Callable
from typing import Protocol

from bench.transport import IN, OUT, Buffer, LayeredSocket, framed, framed_send, is_framed

CHUNK = 1 << 19


class BrokenRun(Exception):
    """The broker closed a connection, or said something that this flow doesn't expect."""


class Loop:
    """An epoll loop whose handlers are bound methods; no allocation an event beyond what epoll itself makes."""

    def __init__(self) -> None:
        self.epoll = select.epoll()
        self.handlers: dict[int, Callable[[int], None]] = {}

    def add(self, sock: socket.socket, handler: Callable[[int], None], mask: int = IN) -> int:
        fd = sock.fileno()
        self.handlers[fd] = sock.attach(self, handler) if isinstance(sock, LayeredSocket) else handler
        self.epoll.register(fd, mask)
        return fd

    def remove(self, fd: int) -> None:
        self.epoll.unregister(fd)
        del self.handlers[fd]

    def turn(self, timeout: float) -> None:
        handlers = self.handlers
        for fd, mask in self.epoll.poll(timeout):
            handlers[fd](mask)


class Flow(Protocol):
    """What the worker asks of everything that it drives."""

    def start(self) -> None: ...
    def after_turn(self) -> None: ...
    def stop(self) -> None: ...
    def idle(self) -> bool: ...


class Totals:
    """Messages of this process, for the loss account; `delivered` also goes to the parent while the run lasts."""

    def __init__(self, delivered: memoryview, slot: int) -> None:
        self.shared = delivered
        self.slot = slot
        self.sent = 0


class Link:
    """A socket with what it would not take yet; for the small packets of QoS 1 and 2."""

    def __init__(self, loop: Loop, sock: socket.socket) -> None:
        self.loop, self.sock = loop, sock
        self.is_framed, self.send_framed = is_framed(sock), framed_send(sock)
        self.pending = bytearray()
        self.rest = b""  # an incomplete packet
        self.fd = loop.add(sock, self.ready)

    def ready(self, mask: int) -> None:
        if mask & OUT:
            del self.pending[: self.send_framed(self.pending)]
            if not self.pending:
                self.loop.epoll.modify(self.fd, IN)
                self.drained()
        if mask & ~OUT:
            self.take()

    def take(self) -> None:
        data = self.sock.recv(CHUNK)
        if not data:
            raise BrokenRun("the broker closed a connection")
        self.read(self.rest + data if self.rest else data)

    def write(self, data: Buffer) -> None:
        self.write_framed(framed(bytes(data)) if self.is_framed else data)

    def write_framed(self, data: Buffer) -> None:
        if not self.pending:
            try:
                taken = self.send_framed(data)
            except BlockingIOError:
                taken = 0
            if taken == len(data):
                return
            data = data[taken:]
            self.loop.epoll.modify(self.fd, IN | OUT)
        self.pending += data

    def read(self, data: bytes) -> None:
        raise NotImplementedError

    def drained(self) -> None:
        pass


class Held(Link):
    """One with a buffer, in which the rest of a large packet is put where it belongs: nothing is joined."""

    def __init__(self, loop: Loop, sock: socket.socket) -> None:
        super().__init__(loop, sock)
        self.buffer = bytearray(4 * CHUNK)
        self.view = memoryview(self.buffer)
        self.begin = self.end = 0

    def take(self) -> None:
        if self.begin == self.end:
            self.begin = self.end = 0
        elif len(self.buffer) - self.end < CHUNK:
            rest = self.buffer[self.begin : self.end]
            self.buffer[: len(rest)] = rest
            self.begin, self.end = 0, len(rest)
        size = self.sock.recv_into(self.view[self.end : self.end + CHUNK])
        if not size:
            raise BrokenRun("the broker closed a connection")
        self.end += size
        self.begin = self.read_held(self.begin, self.end)

    def read_held(self, begin: int, end: int) -> int:
        """What is in the buffer there; says where it comes to a packet that isn't complete."""
        raise NotImplementedError
