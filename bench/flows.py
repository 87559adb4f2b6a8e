"""What one generator process drives: publishers and subscribers that cost next to nothing a message.

A publisher sends slices of one buffer that holds many encoded packets. A subscriber doesn't parse where it can count:
every PUBLISH of one run has the same length on the wire, so bytes are messages. Acknowledgements are made in bulk, with
slices over the whole chunk.

Nothing is sent blindly. A publisher is at most `window` messages ahead of the slowest subscriber (QoS 0) or of its
acknowledgements (QoS 1 and 2), so a broker that loses messages does so without an excuse.
"""

import os
import select
import socket
import struct
from array import array
from collections.abc import Callable
from typing import Protocol

from bench import wire

CHUNK = 1 << 19
IN, OUT = select.EPOLLIN, select.EPOLLOUT


class BrokenRun(Exception):
    """The broker closed a connection, or said something that this flow doesn't expect."""


class Loop:
    """An epoll loop whose handlers are bound methods; no allocation an event beyond what epoll itself makes."""

    def __init__(self) -> None:
        self.epoll = select.epoll()
        self.handlers: dict[int, Callable[[int], None]] = {}

    def add(self, sock: socket.socket, handler: Callable[[int], None], mask: int = IN) -> int:
        fd = sock.fileno()
        self.handlers[fd] = handler
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


def ring(frames: list[bytes], at_least: int) -> bytes:
    """The frames over and over, whole rounds only."""
    once = b"".join(frames)
    return once * max(1, -(-at_least // len(once)))


class Publisher:
    """QoS 0: sends as far as `low()` (bytes that the slowest subscriber has) allows."""

    def __init__(
        self, loop: Loop, sock: socket.socket, buffer: bytes, frame: int, window: int, low: Callable[[], int]
    ) -> None:
        self.loop, self.sock, self.frame, self.low = loop, sock, frame, low
        self.buffer = memoryview(buffer)
        self.window = window * frame
        self.threshold = self.window // 8  # small top-ups would make this process busy, and show the broker nothing
        self.sent = 0
        self.blocked = self.running = False
        self.fd = loop.add(sock, self.ready)

    def start(self) -> None:
        self.running = True
        self.push()

    def ready(self, mask: int) -> None:
        if mask & OUT:
            self.blocked = False
            self.loop.epoll.modify(self.fd, IN)
            self.push()
        if mask & ~OUT:
            self.read()

    def read(self) -> None:
        data = self.sock.recv(CHUNK)
        raise BrokenRun(f"publisher got {data[:16].hex() or 'end of stream'}")

    def credit(self) -> int:
        credit = self.low() + self.window - self.sent
        return credit if credit >= self.threshold else 0

    def push(self) -> None:
        if self.blocked:
            return
        credit = self.credit() if self.running else -self.sent % self.frame
        size = len(self.buffer)
        while credit > 0:
            offset = self.sent % size
            try:
                taken = self.sock.send(self.buffer[offset : offset + credit])
            except BlockingIOError:
                self.blocked = True
                self.loop.epoll.modify(self.fd, IN | OUT)
                return
            self.sent += taken
            credit -= taken

    def after_turn(self) -> None:
        self.push()

    def stop(self) -> None:
        self.running = False
        self.push()

    def idle(self) -> bool:
        return self.sent % self.frame == 0

    @property
    def messages(self) -> int:
        return self.sent // self.frame


class Subscriber:
    """QoS 0: counts bytes."""

    def __init__(self, loop: Loop, sock: socket.socket, frame: int, totals: Totals) -> None:
        self.sock, self.frame, self.totals = sock, frame, totals
        self.received = 0
        self.scratch = bytearray(CHUNK)
        self.fd = loop.add(sock, self.ready)

    def ready(self, mask: int) -> None:
        size = self.sock.recv_into(self.scratch)
        if not size:
            raise BrokenRun("the broker closed a subscriber's connection")
        if self.scratch[-self.received % self.frame] != 0x30 and size > -self.received % self.frame:
            raise BrokenRun("a subscriber got something else than the expected PUBLISH")
        self.received += size
        self.totals.shared[self.totals.slot] += size

    @property
    def messages(self) -> int:
        return self.received // self.frame


class Link:
    """A socket with what it would not take yet; for the small packets of QoS 1 and 2."""

    def __init__(self, loop: Loop, sock: socket.socket) -> None:
        self.loop, self.sock = loop, sock
        self.pending = bytearray()
        self.rest = b""  # an incomplete packet
        self.fd = loop.add(sock, self.ready)

    def ready(self, mask: int) -> None:
        if mask & OUT:
            del self.pending[: self.sock.send(self.pending)]
            if not self.pending:
                self.loop.epoll.modify(self.fd, IN)
                self.drained()
        if mask & ~OUT:
            data = self.sock.recv(CHUNK)
            if not data:
                raise BrokenRun("the broker closed a connection")
            self.read(self.rest + data if self.rest else data)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self.pending:
            try:
                taken = self.sock.send(data)
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


class AcknowledgedPublisher(Link):
    """QoS 1 and 2: at most `window` messages without PUBACK or PUBCOMP."""

    def __init__(self, loop: Loop, sock: socket.socket, buffer: bytes, frame: int, window: int, qos: int) -> None:
        super().__init__(loop, sock)
        self.buffer, self.frame, self.window, self.qos = memoryview(buffer), frame, window, qos
        self.messages = self.acknowledged = 0
        self.running = False

    def start(self) -> None:
        self.running = True
        self.push()

    def push(self) -> None:
        credit = self.acknowledged + self.window - self.messages
        size = len(self.buffer) // self.frame
        while self.running and credit > 0 and not self.pending:
            offset = self.messages % size
            number = min(credit, size - offset)
            self.write(self.buffer[offset * self.frame : (offset + number) * self.frame])
            self.messages += number
            credit -= number

    def drained(self) -> None:
        self.push()

    def read(self, data: bytes) -> None:
        length = data[1] + 2 if len(data) > 1 else 4
        if length == 4 and len(data) % 4 == 0 and data[1::4].count(2) == len(data) >> 2:
            self.read_short(data)
        else:
            self.read_any(data)
        self.push()

    def read_short(self, data: bytes) -> None:
        """Every acknowledgement in its four-byte form."""
        self.rest = b""
        if self.qos == 1:
            if data[::4].count(0x40) != len(data) >> 2:
                raise BrokenRun(f"publisher got {data[:16].hex()}")
            self.acknowledged += len(data) >> 2
            return
        words = array("I", data)
        first = [word & 0xFF for word in words]
        completed = first.count(0x70)
        self.acknowledged += completed
        if completed < len(words):
            recs = array("I", [word for word, kind in zip(words, first, strict=True) if kind == 0x50])
            if completed + len(recs) != len(words):
                raise BrokenRun(f"publisher got {data[:16].hex()}")
            rels = bytearray(recs.tobytes())
            rels[::4] = b"\x62" * len(recs)
            self.write(rels)

    def read_any(self, data: bytes) -> None:
        """Longer forms (a reason code, properties), or a chunk that ends within a packet."""
        position, rels = 0, bytearray()
        while len(data) - position >= 2 and len(data) - position >= data[position + 1] + 2:
            kind, length = data[position], data[position + 1]
            if length > 2 and data[position + 4] >= 0x80:
                raise BrokenRun(f"a PUBLISH was refused with {data[position + 4]:#x}")
            if kind in (0x40, 0x70):
                self.acknowledged += 1
            elif kind == 0x50:
                rels += b"\x62\x02" + data[position + 2 : position + 4]
            else:
                raise BrokenRun(f"publisher got {data[position : position + 16].hex()}")
            position += length + 2
        self.rest = data[position:]
        if rels:
            self.write(rels)

    def after_turn(self) -> None:
        pass

    def stop(self) -> None:
        self.running = False

    def idle(self) -> bool:
        return self.acknowledged == self.messages and not self.pending


class SubscriberQos1(Link):
    """Acknowledges a whole chunk with four slices: every PUBLISH has its packet id at the same place."""

    def __init__(self, loop: Loop, sock: socket.socket, frame: int, totals: Totals, topic_length: int) -> None:
        super().__init__(loop, sock)
        self.frame, self.totals = frame, totals
        self.at = 4 + topic_length  # where the packet id stands; the length of the packet is one byte
        self.messages = self.duplicates = 0

    def read(self, data: bytes) -> None:
        frame, at = self.frame, self.at
        number = len(data) // frame
        whole = number * frame
        self.rest = data[whole:]
        if not number:
            return
        kinds = data[0:whole:frame]
        if kinds.count(0x32) != number:
            duplicates = kinds.count(0x3A)
            if kinds.count(0x32) + duplicates != number:
                raise BrokenRun("a subscriber got something else than the expected PUBLISH")
            self.duplicates += duplicates
        acks = bytearray(b"\x40\x02\0\0") * number
        acks[2::4] = data[at:whole:frame]
        acks[3::4] = data[at + 1 : whole : frame]
        self.messages += number
        self.totals.shared[self.totals.slot] += number
        self.write(acks)


class SubscriberQos2(Link):
    """PUBLISH and PUBREL come mixed, so this one parses; QoS 2 is never fast enough to make that the bottleneck."""

    def __init__(self, loop: Loop, sock: socket.socket, frame: int, totals: Totals, topic_length: int) -> None:
        super().__init__(loop, sock)
        self.frame, self.totals = frame, totals
        self.at = 4 + topic_length
        self.messages = self.duplicates = 0

    def read(self, data: bytes) -> None:
        frame, at, end = self.frame, self.at, len(data)
        position = published = 0
        answers: list[bytes] = []
        while end - position >= 4:
            kind = data[position]
            if kind == 0x34:
                if end - position < frame:
                    break
                answers.append(b"\x50\x02" + data[position + at : position + at + 2])
                published += 1
                position += frame
            elif kind == 0x62:
                length = data[position + 1] + 2
                if end - position < length:
                    break
                answers.append(b"\x70\x02" + data[position + 2 : position + 4])
                position += length
            else:
                raise BrokenRun(f"a subscriber got {data[position : position + 16].hex()}")
        self.rest = data[position:]
        self.messages += published
        self.totals.shared[self.totals.slot] += published
        if answers:
            self.write(b"".join(answers))


class EchoQos0:
    """One connection that is subscribed to its own topic, with one message on its way."""

    def __init__(self, loop: Loop, sock: socket.socket, frame: bytes, totals: Totals) -> None:
        self.sock, self.frame, self.totals = sock, frame, totals
        self.length = len(frame)
        self.got = self.sent = self.messages = 0
        self.running = False
        loop.add(sock, self.ready)

    def start(self) -> None:
        self.running = True
        self.sent += 1
        self.sock.send(self.frame)

    def ready(self, mask: int) -> None:
        size = len(self.sock.recv(4096))
        if not size:
            raise BrokenRun("the broker closed a connection")
        self.got += size
        if self.got >= self.length:
            if self.got > self.length:
                raise BrokenRun("more came back than was sent")
            self.got = 0
            self.messages += 1
            totals = self.totals
            totals.shared[totals.slot] += 1
            if self.running:
                self.sent += 1
                self.sock.send(self.frame)

    def after_turn(self) -> None:
        pass

    def stop(self) -> None:
        self.running = False

    def idle(self) -> bool:
        return self.sent == self.messages


class EchoQos1:
    """As EchoQos0; the next one leaves when both the message and the PUBACK of the last one have come."""

    def __init__(self, loop: Loop, sock: socket.socket, frame: bytes, totals: Totals, topic_length: int) -> None:
        self.sock, self.frame, self.totals = sock, frame, totals
        self.length = len(frame)
        self.at = 4 + topic_length
        self.sent = self.messages = 0
        self.rest = b""
        self.open = 0  # bit 0: the message, bit 1: its PUBACK
        self.running = False
        loop.add(sock, self.ready)

    def start(self) -> None:
        self.running = True
        self.sent += 1
        self.open = 3
        self.sock.send(self.frame)

    def ready(self, mask: int) -> None:
        data = self.sock.recv(4096)
        if not data:
            raise BrokenRun("the broker closed a connection")
        if self.rest:
            data = self.rest + data
        position, end, answer = 0, len(data), b""
        while end - position >= 2:
            length = data[position + 1] + 2
            if end - position < length:
                break
            kind = data[position]
            if kind == 0x40:
                self.open &= 1
            elif kind == 0x32 and length == self.length:
                self.open &= 2
                self.messages += 1
                self.totals.shared[self.totals.slot] += 1
                answer = b"\x40\x02" + data[position + self.at : position + self.at + 2]
            else:
                raise BrokenRun(f"got {data[position : position + 16].hex()}")
            position += length
        self.rest = data[position:]
        if not self.open and self.running:
            self.open = 3
            self.sent += 1
            self.sock.send(answer + self.frame)
        elif answer:
            self.sock.send(answer)

    def after_turn(self) -> None:
        pass

    def stop(self) -> None:
        self.running = False

    def idle(self) -> bool:
        return self.sent == self.messages and not self.open


IP_BIND_ADDRESS_NO_PORT = 24


class Caller:
    """One place in which connections come and go: TCP, CONNECT, CONNACK, DISCONNECT, close, and again.

    Each place has a source address of its own (all of 127/8 is loopback), or the ephemeral ports would run out within
    two seconds.
    """

    def __init__(self, loop: Loop, address: tuple[str, int], hellos: list[bytes], totals: Totals, place: int) -> None:
        self.loop, self.address, self.hellos, self.totals = loop, address, hellos, totals
        self.source = (f"127.{1 + os.getpid() % 200}.{1 + place // 200}.{1 + place % 200}", 0)
        self.sent = self.messages = 0
        self.running = False
        self.sock: socket.socket | None = None

    def start(self) -> None:
        self.running = True
        self.call()

    def call(self) -> None:
        sock = socket.socket()
        sock.setblocking(False)
        if self.address[0] == "127.0.0.1":
            sock.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
            sock.bind(self.source)
        sock.connect_ex(self.address)
        self.sock = sock
        self.fd = sock.fileno()
        self.greeted = False
        self.loop.handlers[self.fd] = self.ready
        self.loop.epoll.register(self.fd, OUT)
        self.sent += 1

    def ready(self, mask: int) -> None:
        assert self.sock is not None
        if not self.greeted:
            self.sock.send(self.hellos[self.sent % len(self.hellos)])
            self.greeted = True
            self.loop.epoll.modify(self.fd, IN)
            return
        data = self.sock.recv(256)
        if len(data) < 4 or data[0] != 0x20 or data[3]:
            raise BrokenRun(f"CONNECT was answered with {data.hex() or 'end of stream'}")
        self.messages += 1
        self.totals.shared[self.totals.slot] += 1
        self.sock.send(wire.DISCONNECT)
        del self.loop.handlers[self.fd]
        self.sock.close()  # which also takes it out of the epoll
        self.sock = None
        if self.running:
            self.call()

    def after_turn(self) -> None:
        pass

    def stop(self) -> None:
        self.running = False

    def idle(self) -> bool:
        return self.sock is None


def publish_frames(topics: list[str], payload: bytes, qos: int, version: int, number: int) -> list[bytes]:
    """Frames of one length; with QoS, packet ids from 1 upwards."""
    frames = [
        wire.publish(topics[index % len(topics)], payload, qos, version, index + 1 if qos else 0)
        for index in range(number)
    ]
    assert len({len(frame) for frame in frames}) == 1, "all frames must have one length"
    assert len(frames[0]) < 130, "the length must fit one byte"
    return frames


def payload_of(size: int) -> bytes:
    return struct.pack("!Q", 0x0123456789ABCDEF) * (size // 8) + b"." * (size % 8)
