"""What a broker keeps: retained messages that a new subscriber gets, and subscriptions that come and go."""

import socket

from bench import wire
from bench.loop import IN, OUT, BrokenRun, Loop, Totals
from bench.workloads import Workload

SCRATCH = 1 << 18
PATIENCE = 120.0  # s for one answer while things are prepared
UNANSWERED = 100  # retained messages without PUBACK
FILTERS = 100  # of each client, one after the other


def retain(sock: socket.socket, workload: Workload, version: int) -> None:
    """Leaves the messages at the broker. With QoS 1, as the answer says that the broker has them."""
    sock.settimeout(PATIENCE)
    payload = wire.payload_of(workload.payload)
    topics = [workload.topic(0, number) for number in range(workload.held)]
    for start in range(0, len(topics), UNANSWERED):
        some = topics[start : start + UNANSWERED]
        sock.sendall(
            b"".join(
                wire.publish(topic, payload, 1, version, identifier, retain=True)
                for identifier, topic in enumerate(some, 1)
            )
        )
        for _ in some:
            first, body = wire.read_packet(sock)
            if first != 0x40 or (len(body) > 2 and body[2] >= 0x80):
                raise BrokenRun(f"a retained message was answered with {first:#x} {body[:8].hex()}")
    sock.close()


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
        number: int,
        totals: Totals,
        name: str,
    ) -> None:
        self.loop, self.address, self.frame, self.number, self.totals = loop, address, frame, number, totals
        self.hello = wire.connect(f"x-new-{name}", version)
        self.subscribe = wire.subscribe("bench/000/+/t", 0, version)
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
        self.sock.send(self.hello)
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
    """A client that subscribes and unsubscribes, with one packet on its way."""

    def __init__(self, loop: Loop, sock: socket.socket, flow: int, version: int, totals: Totals) -> None:
        self.sock, self.totals = sock, totals
        filters = [f"come/{flow:03}/{number:03}/t" for number in range(FILTERS)]
        self.packets = [
            packet
            for topic_filter in filters
            for packet in (wire.subscribe(topic_filter, 0, version), wire.unsubscribe(topic_filter, version))
        ]
        self.rest = b""
        self.sent = self.messages = 0
        self.running = False
        loop.add(sock, self.ready)

    def start(self) -> None:
        self.running = True
        self.send()

    def send(self) -> None:
        self.sock.send(self.packets[self.sent % len(self.packets)])
        self.sent += 1

    def ready(self, mask: int) -> None:
        data = self.sock.recv(4096)
        if not data:
            raise BrokenRun("the broker closed a connection")
        data = self.rest + data
        if len(data) < 2 or len(data) < data[1] + 2:
            self.rest = data
            return
        self.rest = b""
        kind = 0x90 if self.messages % 2 == 0 else 0xB0
        refused = (kind == 0x90 or len(data) > 4) and data[-1]
        if data[0] != kind or len(data) != data[1] + 2 or refused:
            raise BrokenRun(f"{'UNSUBSCRIBE' if self.messages % 2 else 'SUBSCRIBE'} was answered with {data.hex()}")
        self.messages += 1
        self.totals.shared[self.totals.slot] += 1
        if self.running:
            self.send()

    def after_turn(self) -> None:
        pass

    def stop(self) -> None:
        self.running = False

    def idle(self) -> bool:
        return self.sent == self.messages
