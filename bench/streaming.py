"""What one generator process drives: publishers and subscribers that cost next to nothing a message.

A publisher sends slices of one buffer that holds many encoded packets. A subscriber doesn't parse where it can count:
every PUBLISH of one run has the same length on the wire, so bytes are messages. Acknowledgements are made in bulk, with
slices over the whole chunk.

Nothing is sent blindly. A publisher is at most `window` messages ahead of the slowest subscriber (QoS 0) or of its
acknowledgements (QoS 1 and 2), so a broker that loses messages does so without an excuse.
"""

import re
import socket
from array import array
from collections.abc import Callable
from itertools import compress

from bench.loop import CHUNK, BrokenRun, Held, Link, Loop, Totals
from bench.transport import IN, OUT, framed_send

SCRATCH = bytearray(CHUNK)
LOOKED_AT = 8  # one read of so many
IS_PUBREC = bytes(kind == 0x50 for kind in range(256))
PUBRELS = re.compile(rb"(?:\x62\x02..)++", re.DOTALL)


class Publisher:
    """QoS 0: sends as far as `low()` (bytes that the slowest subscriber has) allows."""

    def __init__(
        self,
        loop: Loop,
        sock: socket.socket,
        buffer: bytes,
        frame: int,
        window: int,
        low: Callable[[], int],
        delivered: int = 0,
    ) -> None:
        """A message has `frame` bytes here, and `delivered` where `low` counts, if these are others."""
        self.loop, self.sock, self.frame, self.low = loop, sock, frame, low
        self.send, self.delivered = framed_send(sock), delivered or frame
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
        credit = self.low() // self.delivered * self.frame + self.window - self.sent
        return credit if credit >= self.threshold else 0

    def push(self) -> None:
        if self.blocked:
            return
        credit = self.credit() if self.running else -self.sent % self.frame
        size = len(self.buffer)
        while credit > 0:
            offset = self.sent % size
            try:
                taken = self.send(self.buffer[offset : offset + credit])
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
    """QoS 0: counts bytes. Most of them stay in the system, which throws them away; some are looked at."""

    def __init__(self, loop: Loop, sock: socket.socket, frame: int, totals: Totals) -> None:
        self.sock, self.frame, self.totals = sock, frame, totals
        self.received = self.reads = 0
        self.fd = loop.add(sock, self.ready)

    def ready(self, mask: int) -> None:
        if self.reads % LOOKED_AT:
            size = self.sock.recv_into(SCRATCH, CHUNK, socket.MSG_TRUNC)
        else:
            size = self.sock.recv_into(SCRATCH)
            boundary = -self.received % self.frame
            if boundary < size and SCRATCH[boundary] != 0x30:
                raise BrokenRun("a subscriber got something else than the expected PUBLISH")
        if not size:
            raise BrokenRun("the broker closed a subscriber's connection")
        self.reads += 1
        self.received += size
        self.totals.shared[self.totals.slot] += size

    @property
    def messages(self) -> int:
        return self.received // self.frame


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
            self.write_framed(self.buffer[offset * self.frame : (offset + number) * self.frame])
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
        kinds = data[::4]
        completed = kinds.count(0x70)
        self.acknowledged += completed
        received = kinds.count(0x50)
        if completed + received != len(kinds):
            raise BrokenRun(f"publisher got {data[:16].hex()}")
        if received:
            recs = data
            if completed:
                recs = array("I", compress(array("I", data), kinds.translate(IS_PUBREC))).tobytes()
            rels = bytearray(recs)
            rels[::4] = b"\x62" * received
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


class SubscriberQos1(Held):
    """Acknowledges a whole chunk with four slices: every PUBLISH has its packet id at the same place."""

    def __init__(self, loop: Loop, sock: socket.socket, frame: int, totals: Totals, at: int) -> None:
        super().__init__(loop, sock)
        self.frame, self.totals = frame, totals
        self.at = at  # where the packet id stands
        self.messages = self.duplicates = 0

    def read_held(self, begin: int, end: int) -> int:
        data, frame, at = self.buffer, self.frame, begin + self.at
        number = (end - begin) // frame
        whole = begin + number * frame
        if not number:
            return begin
        kinds = data[begin:whole:frame]
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
        return whole


class SubscriberQos2(Held):
    """PUBLISH and PUBREL come mixed: runs of each are found by patterns, and answered as a whole."""

    def __init__(self, loop: Loop, sock: socket.socket, frame: int, totals: Totals, at: int) -> None:
        super().__init__(loop, sock)
        self.frame, self.totals = frame, totals
        self.at = at
        self.publishes = re.compile(rb"(?:\x34.{%d})++" % (frame - 1), re.DOTALL)
        self.messages = self.duplicates = 0

    def read_held(self, begin: int, end: int) -> int:
        data, frame, at = self.buffer, self.frame, self.at
        position, published = begin, 0
        answers: list[bytes | bytearray] = []
        while end - position >= 4:
            if run := self.publishes.match(data, position, end):
                number = (run.end() - position) // frame
                recs = bytearray(b"\x50\x02\0\0") * number
                recs[2::4] = data[position + at : run.end() : frame]
                recs[3::4] = data[position + at + 1 : run.end() : frame]
                answers.append(recs)
                published += number
            elif run := PUBRELS.match(data, position, end):
                comps = bytearray(run[0])
                comps[::4] = b"\x70" * (len(comps) >> 2)
                answers.append(comps)
            elif data[position] == 0x34:
                break  # the rest of it is still to come
            elif data[position] == 0x62 and data[position + 1] > 2:  # with a reason code, or properties
                if end - position < data[position + 1] + 2:
                    break
                answers.append(b"\x70\x02" + data[position + 2 : position + 4])
                position += data[position + 1] + 2
                continue
            else:
                raise BrokenRun(f"a subscriber got {data[position : position + 16].hex()}")
            position = run.end()
        self.messages += published
        self.totals.shared[self.totals.slot] += published
        if answers:
            self.write(b"".join(answers))
        return position
