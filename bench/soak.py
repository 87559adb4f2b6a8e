"""A long run with mixed traffic and clients that are killed, cut and stalled at random: `python -m bench.soak --help`.

A fifth of the connections are publishers at QoS 1 and 2, a fifth their subscribers, in sessions that stay; the others
are idle. At the end no message may be missing, none of QoS 2 may have come twice, memory must not have grown after the
first quarter, and no file may be open in the broker that was not at the start.
"""

import argparse
import contextlib
import os
import random
import resource
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio

from bench import wire
from bench.command import write_results
from bench.peers import PEERS, Running, running
from bench.wire import V311, Refused

PUBACK, PUBREC, PUBREL, PUBCOMP = 0x40, 0x50, 0x62, 0x70
INTERVAL: Final = 1.0  # s between two messages of a publisher
KEEP_ALIVE: Final = 20.0  # s between two PINGREQs of an idle client
STALL: Final = 5.0  # s for which a stalled client reads nothing
TROUBLE: Final = 0.02  # the share of all connections that trouble comes to, each second
PATIENCE: Final = 120.0  # s for everything to arrive, after the end
GROWTH: Final = 1.1  # times the memory after the first quarter
SLACK: Final = 16_000_000  # bytes, for what an allocator keeps


class Client:
    """It connects again whenever its connection is lost."""

    def __init__(self, soak: "Soak", name: str) -> None:
        self.soak = soak
        self.name = name
        self.stream: trio.SocketStream | None = None
        self.stalled = 0.0  # until then
        self.buffer = b""

    async def run(self) -> None:
        while not self.soak.over:
            with contextlib.suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError, Refused):
                stream = await trio.open_tcp_stream(*self.soak.address)
                async with stream:
                    self.buffer = b""
                    await stream.send_all(wire.connect(self.name, V311, stays=self.stays))
                    self.stream = stream
                    first, _ = await self.packet()
                    if first == 0x20:
                        self.soak.counted["connections"] += 1
                        await self.connected(stream)
            self.stream = None
            await trio.sleep(random.uniform(0.05, 0.5))

    stays = False

    async def connected(self, stream: trio.SocketStream) -> None:
        due = trio.current_time() + random.uniform(0, KEEP_ALIVE)
        while True:
            with trio.move_on_at(due):
                await self.packet()
                continue
            await stream.send_all(wire.PINGREQ)
            due += KEEP_ALIVE

    async def packet(self) -> tuple[int, bytes]:
        """
        Raises:
            Refused: the connection has ended.
        """
        assert self.stream is not None
        while (found := self._cut()) is None:
            if self.stalled > trio.current_time():
                await trio.sleep_until(self.stalled)
            data = await self.stream.receive_some(65_536)
            if not data:
                raise Refused("closed")
            self.buffer += data
        return found

    def _cut(self) -> tuple[int, bytes] | None:
        """The packets here have less than 128 bytes."""
        buffer = self.buffer
        if len(buffer) < 2 or len(buffer) < buffer[1] + 2:
            return None
        self.buffer = buffer[buffer[1] + 2 :]
        return buffer[0], buffer[2 : buffer[1] + 2]

    async def trouble(self) -> None:
        stream = self.stream
        kind = random.choice(("killed", "cut", "stalled"))
        self.soak.counted[kind] += 1
        if kind == "stalled":
            self.stalled = trio.current_time() + STALL
        elif stream is not None:
            if kind == "killed":
                with contextlib.suppress(OSError):  # it has just ended
                    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await trio.aclose_forcefully(stream)


class Publisher(Client):
    """One message at a time, sent again on a new connection until it is acknowledged."""

    stays = True

    def __init__(self, soak: "Soak", number: int, qos: int) -> None:
        super().__init__(soak, f"p-{number}")
        self.topic, self.qos = f"soak/{number}", qos
        self.sent = 0  # all of them are acknowledged, but for the last
        self.acknowledged = 0
        self.received = False  # the PUBREC for the last has come

    async def connected(self, stream: trio.SocketStream) -> None:
        again = self.sent > self.acknowledged
        while True:
            if self.sent == self.acknowledged:
                if self.soak.stopped.is_set():
                    self.soak.idle.add(self)
                    await self.packet()  # until the connection ends
                    continue
                self.sent += 1
                self.received = False
            await self._send(stream, again)
            again = False
            self.acknowledged = self.sent
            with trio.move_on_after(INTERVAL):
                await self.soak.stopped.wait()

    async def _send(self, stream: trio.SocketStream, again: bool) -> None:
        packet_id = struct.pack("!H", self.sent % 65_535 + 1)
        if not self.received:
            frame = wire.publish(self.topic, b"%d" % self.sent, self.qos, V311, self.sent % 65_535 + 1)
            await stream.send_all(bytes([frame[0] | 8 * again]) + frame[1:])
            await self._answer(PUBACK if self.qos == 1 else PUBREC, packet_id)
            if self.qos == 1:
                return
            self.received = True
        await stream.send_all(bytes([PUBREL, 2]) + packet_id)
        await self._answer(PUBCOMP, packet_id)

    async def _answer(self, kind: int, packet_id: bytes) -> None:
        while await self.packet() != (kind, packet_id):
            pass


class Subscriber(Client):
    stays = True

    def __init__(self, soak: "Soak", number: int, qos: int) -> None:
        super().__init__(soak, f"s-{number}")
        self.topic, self.qos = f"soak/{number}", qos
        self.subscribed = trio.Event()
        self.got = 0  # all numbers up to this
        self.beyond: set[int] = set()  # others that have come
        self.twice = 0
        self.open: set[bytes] = set()  # packet ids of QoS 2 whose PUBREL has not come

    async def connected(self, stream: trio.SocketStream) -> None:
        await stream.send_all(wire.subscribe(self.topic, self.qos, V311))
        while True:
            first, body = await self.packet()
            if first & 0xF0 == 0x30:
                place = 2 + int.from_bytes(body[:2], "big")
                packet_id, number = body[place : place + 2], int(body[place + 2 :])
                if self.qos == 1 or packet_id not in self.open:
                    self._note(number)
                if self.qos == 2:
                    self.open.add(packet_id)
                await stream.send_all(bytes([PUBACK if self.qos == 1 else PUBREC, 2]) + packet_id)
            elif first == 0x90:
                self.subscribed.set()
            elif first == PUBREL:
                self.open.discard(body)
                await stream.send_all(bytes([PUBCOMP, 2]) + body)

    def _note(self, number: int) -> None:
        if number <= self.got or number in self.beyond:
            self.twice += 1
            return
        self.beyond.add(number)
        while self.got + 1 in self.beyond:
            self.got += 1
            self.beyond.discard(self.got)


@dataclass
class Outcome:
    sent: int
    lost: int
    twice: int  # of QoS 2
    memory: tuple[int, int]  # the most, in the second quarter and in the last
    files: tuple[int, int]  # that the broker has open, at the start and at the end
    counted: dict[str, int]

    @property
    def problems(self) -> list[str]:
        early, late = self.memory
        found = {
            f"{self.lost:,} messages lost": self.lost,
            f"{self.twice:,} messages of QoS 2 came twice": self.twice,
            f"memory grew from {early / 1e6:,.0f} to {late / 1e6:,.0f} MB": late > GROWTH * early + SLACK,
            f"{self.files[1] - self.files[0]} files stay open": self.files[1] > self.files[0],
        }
        return [text for text, is_so in found.items() if is_so]


class Soak:
    def __init__(self, broker: Running, connections: int, seconds: float) -> None:
        self.broker, self.address, self.seconds = broker, broker.address, seconds
        pairs = max(2, connections // 5)
        self.publishers = [Publisher(self, number, 1 + number % 2) for number in range(pairs)]
        self.subscribers = [Subscriber(self, number, 1 + number % 2) for number in range(pairs)]
        idle = [Client(self, f"i-{number}") for number in range(max(0, connections - 2 * pairs))]
        self.clients: list[Client] = [*self.subscribers, *self.publishers, *idle]
        self.counted: Counter[str] = Counter()
        #: No new messages from now on, and no trouble; publishers with nothing left to send.
        self.stopped = trio.Event()
        self.idle: set[Publisher] = set()
        self.over = False
        self.memory: list[int] = []

    def files(self) -> int:
        return len(os.listdir(f"/proc/{self.broker.process.pid}/fd"))

    async def run(self) -> Outcome:
        before = self.files()
        async with trio.open_nursery() as nursery:
            for subscriber in self.subscribers:
                nursery.start_soon(subscriber.run)
            for subscriber in self.subscribers:
                await subscriber.subscribed.wait()
            for client in self.clients[len(self.subscribers) :]:
                nursery.start_soon(client.run)
            await self.until(lambda: all(client.stream for client in self.clients))
            began, last = time.monotonic(), -1.0
            while (now := time.monotonic() - began) < self.seconds:
                self.memory.append(self.broker.memory())
                if now - last >= 10:
                    last = now
                    print(f"{now:>6.0f} s {self.memory[-1] / 1e6:>8.0f} MB {dict(self.counted)}", file=sys.stderr)
                for client in random.sample(self.clients, max(1, int(TROUBLE * len(self.clients)))):
                    await client.trouble()
                await trio.sleep(1)
            self.stopped.set()
            await self.until(lambda: len(self.idle) == len(self.publishers))
            await self.until(lambda: not self.lost())
            self.over = True
            nursery.cancel_scope.cancel()
        await self.until(lambda: self.files() <= before)
        quarter = max(1, len(self.memory) // 4)
        return Outcome(
            sum(publisher.sent for publisher in self.publishers),
            self.lost(),
            sum(each.twice for each in self.subscribers if each.qos == 2),
            (max(self.memory[quarter : 2 * quarter] or self.memory), max(self.memory[-quarter:])),
            (before, self.files()),
            dict(self.counted),
        )

    def lost(self) -> int:
        return sum(
            publisher.sent - subscriber.got - len(subscriber.beyond)
            for publisher, subscriber in zip(self.publishers, self.subscribers, strict=True)
        )

    async def until(self, condition: Callable[[], bool]) -> None:
        """Until then, or until patience ends."""
        with trio.move_on_after(PATIENCE):
            while not condition():  # noqa: ASYNC110 - the broker is another process
                await trio.sleep(0.1)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # the broker inherits it
    with running(PEERS["trunkline"], None) as broker:
        run: Callable[[], Awaitable[Outcome]] = Soak(broker, given.connections, given.minutes * 60).run
        outcome = trio.run(run)
    early, late = outcome.memory
    print(f"{given.connections:,} connections, {given.minutes:g} minutes: {outcome.sent:,} messages")
    print(f"{outcome.lost:,} lost, {outcome.twice:,} of QoS 2 twice")
    print(f"memory: {early / 1e6:,.0f} MB in the second quarter, {late / 1e6:,.0f} MB in the last")
    print(f"open files: {outcome.files[0]} before, {outcome.files[1]} afterwards")
    print(", ".join(f"{number:,} {name}" for name, number in outcome.counted.items()))
    for problem in outcome.problems:
        print(f"MISSED: {problem}")
    write_results(given, outcome.__dict__)
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    sys.exit(main())
