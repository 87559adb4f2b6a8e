"""Load at a given rate, and how long its messages take: the parts of the measurements of what isn't a rate.

The load is open: publishers send slices of messages at fixed times, whatever the broker does meanwhile. The payload
begins with the time at which its slice was *due*, on a clock that all processes share. A broker that holds a publisher
up is charged for the wait (a generator that only starts its watch when it gets to send would flatter it).
"""

import gc
import heapq
import multiprocessing
import os
import select
import socket
import struct
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Final

from bench import wire
from bench.load import collect
from bench.loop import BrokenRun, Link, Loop
from bench.peers import Running
from bench.wire import Refused

PAYLOAD: Final = 64
SLICE: Final = 0.001  # s between the slices of a publisher, more where that is less than a message
PATIENCE = 15.0  # s without any progress after which what is missing counts as lost

TIME: Final = struct.Struct("<q")  # at the beginning of the payload

clock: Final = time.perf_counter_ns


class Latencies:
    """How often each microsecond was seen: small, and easily added up over processes."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()

    def add(self, nanoseconds: int, number: int = 1) -> None:
        self.counts[nanoseconds // 1000] += number

    def __len__(self) -> int:
        return self.counts.total()

    def quantile(self, share: float) -> float | None:
        """Milliseconds that this share of all did not exceed; None of nothing."""
        rank, seen = share * len(self), 0
        for microseconds in sorted(self.counts):
            seen += self.counts[microseconds]
            if seen >= rank:
                return microseconds / 1000
        return None


@dataclass(frozen=True, slots=True)
class Spread:
    """Milliseconds; None where nothing came."""

    count: int
    p50: float | None
    p99: float | None
    max: float | None

    @classmethod
    def of(cls, seen: Latencies) -> "Spread":
        return cls(len(seen), seen.quantile(0.5), seen.quantile(0.99), seen.quantile(1.0))


@dataclass(slots=True)
class Account:
    """What clients of one kind sent and had, by phase: a message belongs to the phase in which it was due, an arrival
    to the one in which it came; the last of each is what is after the end. A message counts once for each
    subscriber."""

    edges: list[int]
    sent: list[int] = field(default_factory=list)
    arrived: list[int] = field(default_factory=list)
    latencies: list[Latencies] = field(default_factory=list)
    #: How late the generator itself was.
    late: Latencies = field(default_factory=Latencies)
    #: Share of a core that the generator took, of the busiest process.
    busy: float = 0.0

    def begin(self) -> None:
        phases = len(self.edges) - 1
        self.sent, self.arrived = [0] * (phases + 1), [0] * (phases + 1)
        self.latencies = [Latencies() for _ in range(phases)]

    def phase(self, moment: int) -> int:
        return bisect_right(self.edges, moment) - 1

    def record(self, now: int, due: int, number: int = 1) -> None:
        self.arrived[self.phase(now)] += number
        self.latencies[self.phase(due)].add(now - due, number)

    @property
    def lost(self) -> int:
        return sum(self.sent) - sum(self.arrived)

    def merge(self, other: "Account") -> None:
        self.sent = [a + b for a, b in zip(self.sent, other.sent, strict=True)]
        self.arrived = [a + b for a, b in zip(self.arrived, other.arrived, strict=True)]
        for mine, theirs in zip([*self.latencies, self.late], [*other.latencies, other.late], strict=True):
            mine.counts.update(theirs.counts)
        self.busy = max(self.busy, other.busy)


class PacedPublisher(Link):
    """Sends its slices when they are due. What the socket or the window does not take leaves as soon as they do."""

    RING: Final = 60_000  # packet ids
    HIGH: Final = bytes(number >> 8 for number in range(1, RING + 1)) * 2
    LOW: Final = bytes(number & 0xFF for number in range(1, RING + 1)) * 2

    def __init__(
        self, loop: Loop, sock: socket.socket, topic: str, qos: int, rate: float, account: Account, window: int = RING
    ) -> None:
        super().__init__(loop, sock)
        frame = wire.publish(topic, bytes(PAYLOAD), qos, wire.V311)
        self.head, self.tail = frame[:-PAYLOAD], bytes(PAYLOAD - 8)
        self.qos, self.frame, self.account, self.window = qos, len(frame), account, window
        self.size = min(max(1, round(rate * SLICE)), window)
        self.interval = self.size / rate * 1e9
        self.sent = self.acknowledged = self.slices = 0
        self.first = self.due = self.end = 0

    def begin(self, first: int, end: int) -> None:
        self.first = self.due = first
        self.end = end

    def send_due(self, now: int) -> int:
        """Called in time; returns when to be called again."""
        if self.due <= now and self.due < self.end and not self.pending and self.room():
            self.account.late.add(now - self.due)
        self.push(now)
        return self.due if self.due > now else now + int(self.interval)

    def room(self) -> bool:
        return not self.qos or self.sent + self.size - self.acknowledged <= self.window

    def push(self, now: int) -> None:
        while self.due <= now and self.due < self.end and not self.pending and self.room():
            self.write(self.slice())
            self.account.sent[self.account.phase(self.due)] += self.size
            self.sent += self.size
            self.slices += 1
            self.due = self.first + int(self.slices * self.interval)

    def slice(self) -> bytearray:
        data = bytearray((self.head + TIME.pack(self.due) + self.tail) * self.size)
        if self.qos:
            place, at = self.sent % self.RING, len(self.head) - 2
            data[at :: self.frame] = self.HIGH[place : place + self.size]
            data[at + 1 :: self.frame] = self.LOW[place : place + self.size]
        return data

    def drained(self) -> None:
        self.push(clock())

    def read(self, data: bytes) -> None:
        whole = len(data) & ~3
        self.rest = data[whole:]
        if not self.qos or data[0:whole:4].count(0x40) != whole >> 2:
            raise BrokenRun(f"a publisher got {data[:16].hex()}")
        self.acknowledged += whole >> 2
        self.push(clock())


class StampedSubscriber(Link):
    """Reads the times out of whole chunks. Every PUBLISH has its time at the same place, and slices have one time."""

    def __init__(self, loop: Loop, sock: socket.socket, topic: str, qos: int, account: Account) -> None:
        super().__init__(loop, sock)
        self.frame = len(wire.publish(topic, bytes(PAYLOAD), qos, wire.V311))
        self.at = self.frame - PAYLOAD
        self.first = 0x30 | qos << 1
        self.qos, self.account = qos, account
        self.messages = self.last = 0

    def read(self, data: bytes) -> None:
        now = clock()
        frame, at = self.frame, self.at
        number = len(data) // frame
        whole = number * frame
        self.rest = data[whole:]
        if not number:
            return
        if data[0:whole:frame].count(self.first) != number:
            raise BrokenRun("a subscriber got something else than the expected PUBLISH")
        for due, together in self.slices(data, number):
            self.account.record(now, due, together)
        self.messages += number
        if self.qos:
            acks = bytearray(b"\x40\x02\0\0") * number
            acks[2::4] = data[at - 2 : whole : frame]
            acks[3::4] = data[at - 1 : whole : frame]
            self.write(acks)

    def slices(self, data: bytes, number: int) -> Iterator[tuple[int, int]]:
        """Times, and how many messages have each. Its end is looked for by halves: times never go back."""
        frame, at = self.frame, self.at
        lowest = data[at : number * frame : frame]
        start = 0
        while start < number:
            due: int
            (due,) = TIME.unpack_from(data, at + start * frame)
            end = bisect_right(
                range(number), due, start + 1, key=lambda place: TIME.unpack_from(data, at + place * frame)[0]
            )
            if due < self.last or lowest.count(lowest[start], start, end) != end - start:
                raise BrokenRun("messages came out of order")
            self.last = due
            yield due, end - start
            start = end


class Station:
    """What one process drives. Its clients connect when it is made; `run` sends and reads until all is there."""

    patience: float | None = None  # `PATIENCE`, unless losses are expected

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.loop = Loop()
        self.edges: list[int] = []
        self.accounts: dict[str, Account] = {}
        self.paced: list[tuple[PacedPublisher, float]] = []
        self._agenda: list[tuple[int, int, Callable[[int], int | None]]] = []

    def open(self, name: str, filters: Iterable[str] = (), qos: int = 0) -> socket.socket:
        return wire.open_connection(self.address, name, wire.V311, list(filters), qos)

    def account(self, name: str) -> Account:
        return self.accounts.setdefault(name, Account(self.edges))

    def pair(self, name: str, qos: int, rate: float, account: Account, offset: float = 0.0) -> None:
        """`offset` is the share of its interval by which the publisher begins later."""
        topic = f"bench/{name}/t"
        StampedSubscriber(self.loop, self.open(f"s-{name}", [topic], qos), topic, qos, account)
        self.paced.append((PacedPublisher(self.loop, self.open(f"p-{name}"), topic, qos, rate, account), offset))

    def at(self, moment: int, action: Callable[[int], int | None]) -> None:
        """The action returns when it wants to be called again."""
        heapq.heappush(self._agenda, (moment, len(self._agenda), action))

    def begin(self) -> None:
        for account in self.accounts.values():
            account.begin()
        for publisher, offset in self.paced:
            first = self.edges[0] + int(offset * publisher.interval)
            publisher.begin(first, self.edges[-1])
            self.at(first, publisher.send_due)

    def run(self, edges: Sequence[int]) -> None:
        self.edges += edges
        self.begin()
        used = time.process_time_ns()
        agenda, epoll, turn = self._agenda, self.loop.epoll.fileno(), self.loop.turn
        while (now := clock()) < edges[-1]:
            while agenda and agenda[0][0] <= now:
                _, number, action = agenda[0]
                again = action(now)
                if again is None:
                    heapq.heappop(agenda)
                else:
                    heapq.heapreplace(agenda, (again, number, action))
            until = min(agenda[0][0] if agenda else edges[-1], edges[-1])
            # epoll itself counts in milliseconds
            if select.select([epoll], [], [], max(0, until - clock()) / 1e9)[0]:
                turn(0)
        for account in self.accounts.values():
            account.busy = (time.process_time_ns() - used) / (edges[-1] - edges[0])
        self.end()
        self._drain()

    def end(self) -> None:
        """Whoever sends without a plan stops here."""

    def complete(self) -> bool:
        return all(account.lost == 0 for account in self.accounts.values())

    def progress(self) -> int:
        return sum(sum(account.arrived) for account in self.accounts.values())

    def _drain(self) -> None:
        last, moved, patience = -1, time.monotonic(), self.patience or PATIENCE
        while time.monotonic() - moved < patience and not self.complete():
            for publisher, _ in self.paced:
                publisher.push(clock())
            self.loop.turn(0.02)
            if self.progress() != last:
                last, moved = self.progress(), time.monotonic()


def conduct(
    builds: Sequence[Callable[[], Station]],
    lengths: Sequence[float],
    cores: Sequence[int] = (),
    watch: Callable[[int], None] | None = None,
) -> tuple[list[int], dict[str, Account]]:
    """Runs a process for each station through phases of so many seconds; what they counted, added up by name.

    `watch` is called ten times a second, with the time.
    """
    context = multiprocessing.get_context("fork")
    children: list[multiprocessing.process.BaseProcess] = []
    pipes: list[Connection] = []
    try:
        for number, build in enumerate(builds):
            ours, theirs = context.Pipe()
            core = cores[number % len(cores)] if cores else None
            child = context.Process(target=_work, args=(theirs, build, core), daemon=True)
            child.start()
            theirs.close()
            children.append(child)
            pipes.append(ours)
        collect(pipes, 60)
        edges = [clock() + 50_000_000]
        for length in lengths:
            edges.append(edges[-1] + int(length * 1e9))
        for pipe in pipes:
            pipe.send(edges)
        while (now := clock()) < edges[-1]:
            if watch is not None:
                watch(now)
            if wait(pipes, min(0.1, (edges[-1] - now) / 1e9)):
                break  # it is done, or says why not
        total: dict[str, Account] = {}
        for accounts in collect(pipes, 120):
            for name, account in accounts.items():
                if name in total:
                    total[name].merge(account)
                else:
                    total[name] = account
    finally:
        for child in children:
            child.join(1)
            if child.is_alive():
                child.kill()
                child.join()
    return edges, total


def _work(pipe: Connection, build: Callable[[], Station], core: int | None) -> None:
    if core is not None:
        os.sched_setaffinity(0, {core})
    gc.disable()
    try:
        station = build()
        pipe.send({})
        station.run(pipe.recv())
        pipe.send(station.accounts)
    except (BrokenRun, Refused, OSError) as error:  # anything else is a mistake here: let it be seen
        pipe.send(f"{type(error).__name__}: {error}")


@dataclass(slots=True)
class Usage:
    """The broker's processor time and resident memory over a run."""

    broker: Running
    samples: list[tuple[int, float, int]] = field(default_factory=list)

    def __call__(self, now: int) -> None:
        self.samples.append((now, self.broker.cpu_seconds(), self.broker.memory()))

    def between(self, start: int, end: int) -> list[tuple[int, float, int]]:
        return [sample for sample in self.samples if start <= sample[0] < end]

    def cpu(self, start: int, end: int) -> float:
        """Share of a core."""
        samples = self.between(start, end)
        if len(samples) < 2:
            return 0.0
        return (samples[-1][1] - samples[0][1]) / (samples[-1][0] - samples[0][0]) * 1e9
