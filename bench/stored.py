"""Stored state of a broker: retained messages for a new subscriber, and subscriptions that are made and ended."""

import contextlib
import socket
import struct
import time

from bench import wire
from bench.loop import BrokenRun, Loop, Totals
from bench.transport import IN, OUT
from bench.workloads import Workload

SCRATCH = 1 << 18
PATIENCE = 120.0  # s for one answer while things are prepared
QUIET = 1.0  # s after which nothing more is expected
AT_ONCE = 100  # retained messages
ROUNDS = 20  # in which a client uses different filters


def retain(sock: socket.socket, workload: Workload, version: int) -> None:
    """Sends the messages that the broker is to keep, with QoS 0: some brokers send what came with QoS 1 with QoS 1 to
    whoever asked for QoS 0."""
    sock.settimeout(PATIENCE)
    payload = wire.payload_of(workload.payload)
    topics = [workload.topic(0, number) for number in range(workload.held)]
    for start in range(0, len(topics), AT_ONCE):
        some = [wire.publish(topic, payload, 0, version, retain=True) for topic in topics[start : start + AT_ONCE]]
        sock.sendall(b"".join(some) + wire.PINGREQ)
        first, body = wire.read_packet(sock)
        if first != 0xD0:
            raise BrokenRun(f"PINGREQ was answered with {first:#x} {body[:8].hex()}")
    sock.setblocking(False)


def await_retained(address: tuple[str, int], workload: Workload, version: int) -> None:
    """Asks until all of them are there: some brokers answer PINGREQ before they have handled what came ahead of it."""
    deadline = time.monotonic() + PATIENCE
    had, tries = 0, 0
    while had < workload.held:
        if time.monotonic() > deadline:
            raise BrokenRun(f"the broker has retained {had:,} of {workload.held:,} messages")
        tries += 1
        had = 0
        with wire.open_connection(address, f"x-check-{tries}", version) as sock:
            sock.settimeout(QUIET)
            sock.sendall(wire.subscribe(workload.retained_filter, 0, version))
            with contextlib.suppress(TimeoutError):
                while had < workload.held:
                    had += wire.read_packet(sock)[0] == 0x31
            sock.sendall(wire.DISCONNECT)


def subscribe_held(sock: socket.socket, holder: int, workload: Workload, version: int) -> None:
    """One SUBSCRIBE for all subscriptions of this client."""
    sock.settimeout(PATIENCE)
    batch = workload.batch
    numbers = range(holder * batch, min((holder + 1) * batch, workload.held))
    sock.sendall(wire.subscribe_all([workload.held_filter(number) for number in numbers], 0, version))
    first, body = wire.read_packet(sock)
    if first != 0x90 or any(body[-len(numbers) :]) or len(body) < len(numbers) + 2:
        raise BrokenRun(f"SUBSCRIBE with {len(numbers):,} filters was answered with {first:#x} {body[:8].hex()}")
    sock.setblocking(False)


class Newcomer:
    """One place in which subscribers come, get everything that is retained, and go."""

    def __init__(
        self,
        loop: Loop,
        address: tuple[str, int],
        version: int,
        frame: int,
        workload: Workload,
        totals: Totals,
        name: str,
    ) -> None:
        self.loop, self.address, self.frame, self.totals = loop, address, frame, totals
        self.number = workload.held
        self.name, self.version = name, version
        self.subscribe = wire.subscribe(workload.retained_filter, 0, version)
        self.scratch = bytearray(SCRATCH)
        self.sent = self.messages = 0
        self.running = False
        self.sock: socket.socket | None = None

    def start(self) -> None:
        self.running = True
        self.come()

    def come(self) -> None:
        self.sock = socket.socket()
        self.sock.setblocking(False)
        self.sock.connect_ex(self.address)
        self.fd = self.loop.add(self.sock, self.greet, OUT)
        self.early = b""
        self.sent += self.number

    def greet(self, mask: int) -> None:
        assert self.sock is not None
        # a client id of its own each time: nobody is to wait for the end of the last one
        self.sock.send(wire.connect(f"x-{self.name}-{self.sent}", self.version))
        self.loop.epoll.modify(self.fd, IN)
        self.loop.handlers[self.fd] = self.welcomed

    def read(self) -> bytes:
        assert self.sock is not None
        data = self.sock.recv(SCRATCH)
        if not data:
            raise BrokenRun("the broker closed a new subscriber's connection")
        return self.early + data

    def welcomed(self, mask: int) -> None:
        """CONNACK; of one length byte, with all that brokers say there."""
        assert self.sock is not None
        data = self.read()
        if len(data) < 2 or len(data) < data[1] + 2:
            self.early = data
            return
        if data[0] != 0x20 or data[3] or len(data) != data[1] + 2:
            raise BrokenRun(f"CONNECT was answered with {data[:16].hex()}")
        self.early = b""
        self.got = 0
        self.sock.send(self.subscribe)
        self.loop.handlers[self.fd] = self.subscribed

    def subscribed(self, mask: int) -> None:
        """SUBACK, which some brokers send behind the first messages."""
        data = self.read()
        at = 0
        while at < len(data) and data[at] == 0x31:
            at += self.frame
        if len(data) < at + 2 or len(data) < at + data[at + 1] + 2:
            self.early = data
            return
        end = at + data[at + 1] + 2
        if data[at] != 0x90 or data[end - 1]:
            raise BrokenRun(f"SUBSCRIBE was answered with {data[at : at + 16].hex()}")
        self.early = b""
        self.loop.handlers[self.fd] = self.counting
        self.count(len(data) - (end - at))

    def counting(self, mask: int) -> None:
        assert self.sock is not None
        size = self.sock.recv_into(self.scratch)
        if not size:
            raise BrokenRun("the broker closed a new subscriber's connection")
        boundary = -self.got % self.frame
        if boundary < size and self.scratch[boundary] != 0x31:
            raise BrokenRun("a new subscriber got something else than a retained message")
        self.count(size)

    def count(self, size: int) -> None:
        before = self.got // self.frame
        self.got += size
        messages = self.got // self.frame
        self.messages += messages - before
        self.totals.shared[self.totals.slot] += messages - before
        if self.got < self.number * self.frame:
            return
        if self.got > self.number * self.frame:
            raise BrokenRun("a new subscriber got more than what is retained")
        assert self.sock is not None
        self.sock.send(wire.DISCONNECT)
        self.loop.remove(self.fd)
        self.sock.close()
        self.sock = None
        if self.running:
            self.come()

    def after_turn(self) -> None:
        pass

    def stop(self) -> None:
        self.running = False

    def idle(self) -> bool:
        return self.sock is None


class Subscribing:
    """A client that subscribes, waits for all answers, unsubscribes, and so on with other filters."""

    def __init__(self, loop: Loop, sock: socket.socket, flow: int, window: int, version: int, totals: Totals) -> None:
        self.sock, self.totals, self.window = sock, totals, window
        self.batches: list[tuple[int, bytes, bytes]] = []  # the kind of the answers, the packets, the usual answers
        properties = b"\0" if version == wire.V5 else b""
        for start in range(0, ROUNDS * window, window):
            filters = [(f"come/{flow:03}/{start + number:03}/t", number + 1) for number in range(window)]
            ids = [struct.pack("!H", number) for _, number in filters]
            asked = b"".join([wire.subscribe(text, 0, version, number) for text, number in filters])
            ended = b"".join([wire.unsubscribe(text, version, number) for text, number in filters])
            granted = b"".join([wire.packet(0x90, each + properties + b"\0") for each in ids])
            gone = b"".join([wire.packet(0xB0, each + properties * 2) for each in ids])
            self.batches += [(0x90, asked, granted), (0xB0, ended, gone)]
        self.batch = self.sent = self.messages = 0
        self.rest = b""
        self.running = False
        loop.add(sock, self.ready)

    def start(self) -> None:
        self.running = True
        self.send()

    def send(self) -> None:
        self.kind, packets, self.usual = self.batches[self.batch % len(self.batches)]
        self.batch += 1
        self.sent += self.window
        self.sock.send(packets)

    def ready(self, mask: int) -> None:
        data = self.sock.recv(4096)
        if not data:
            raise BrokenRun("the broker closed a connection")
        if data == self.usual and self.sent == self.messages + self.window:
            answers = self.window
        else:
            answers = self.read(self.rest + data)
        self.messages += answers
        self.totals.shared[self.totals.slot] += answers
        if self.running and self.messages == self.sent:
            self.send()

    def read(self, data: bytes) -> int:
        """The answers one by one: those of some brokers come one by one, and some have properties."""
        at = answers = 0
        while len(data) - at >= 2 and len(data) - at >= data[at + 1] + 2:
            end = at + data[at + 1] + 2
            refused = (self.kind == 0x90 or end - at > 4) and data[end - 1]
            if data[at] != self.kind or refused:
                asked = "SUBSCRIBE" if self.kind == 0x90 else "UNSUBSCRIBE"
                raise BrokenRun(f"{asked} was answered with {data[at : at + 16].hex()}")
            at = end
            answers += 1
        self.rest = data[at:]
        return answers

    def after_turn(self) -> None:
        pass

    def stop(self) -> None:
        self.running = False

    def idle(self) -> bool:
        return self.sent == self.messages
