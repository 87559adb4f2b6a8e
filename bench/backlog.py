"""A broker with a million messages that wait: what it takes to queue them, to keep them, to start with them and to
deliver them."""

import select
import socket
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench import wire
from bench.disk import size_of
from bench.loop import BrokenRun, Loop, Totals
from bench.peers import Peer, Running, running
from bench.staying import BoundedPublisher, drive
from bench.streaming import SubscriberQos1
from bench.wire import payload_of, publish_frames, ring
from bench.workloads import PAYLOAD

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Seconds that a broker has for each step.
PATIENCE: Final = 180.0
PUBLISHERS: Final = 8
WINDOW: Final = 100
#: Clients that subscribe side by side.
AT_ONCE: Final = 100
#: Topics of which a publisher's packet ids are enough.
MAX_TOPICS: Final = 50_000
RING: Final = 1 << 18


@dataclass(slots=True)
class Backlog:
    """What came of one run. `None` is what was not come to."""

    sessions: int
    messages: int
    #: Messages a second that the broker took, and microseconds of its processor time for each.
    queued: float
    work: float
    #: Resident bytes for each message of the last nine tenths.
    memory: float
    #: Bytes on the disk for each message, when the broker has ended.
    disk: float | None = None
    #: Seconds from the start to the first CONNACK, and those of its processor time.
    start: float | None = None
    start_work: float | None = None
    #: Resident bytes then.
    started_with: int | None = None
    #: Seconds to the first message of the backlog, and messages a second.
    first: float | None = None
    resumed: float | None = None
    failure: str = ""


def run(peer: Peer, core: int | None, sessions: int, messages: int, *, keeps: bool = True) -> Backlog:
    """Without a second start if the broker keeps nothing.

    Raises:
        BrokenRun: the broker does not even queue the messages.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        with running(peer, core, folder=folder) as broker:
            subscribe(broker.address, sessions)
            result = fill(broker, sessions, messages)
        if not keeps:
            return result
        result.disk = size_of(folder) / messages
        began = time.perf_counter()
        try:
            with running(peer, None, folder=folder) as broker:  # a start may use all cores
                result.start = time.perf_counter() - began
                result.start_work = broker.cpu_seconds()
                result.started_with = broker.memory()
                if sessions == 1:
                    result.first, result.resumed = resume(broker.address, messages)
        except (BrokenRun, wire.Refused, OSError) as error:
            result.failure = str(error)
    return result


def topic(number: int) -> str:
    return f"backlog/{number:06}"


def subscribe(address: tuple[str, int], number: int) -> None:
    """Each of so many clients comes, subscribes to a topic of its own, and goes."""
    poll, waiting = select.epoll(), dict[int, tuple[socket.socket, int]]()
    numbers: Iterator[int] = iter(range(number))
    deadline = time.monotonic() + PATIENCE

    def come() -> None:
        for each in numbers:
            sock = socket.create_connection(address)
            asked = wire.connect(f"b-{each}", wire.V311, stays=True) + wire.subscribe(topic(each), 1, wire.V311)
            sock.sendall(asked)
            waiting[sock.fileno()] = sock, 9  # bytes of CONNACK and SUBACK
            poll.register(sock, select.EPOLLIN)
            if len(waiting) >= AT_ONCE:
                return

    come()
    while waiting:
        if time.monotonic() > deadline:
            raise BrokenRun(f"{number:,} clients do not come and go in {PATIENCE:.0f} s")
        for descriptor, _ in poll.poll(1):
            sock, left = waiting.pop(descriptor)
            data = sock.recv(left)
            if not data:
                raise BrokenRun("the broker closed a new connection")
            if len(data) < left:
                waiting[descriptor] = sock, left - len(data)
                continue
            poll.unregister(descriptor)
            sock.sendall(wire.DISCONNECT)
            sock.close()
        if len(waiting) < AT_ONCE // 2:
            come()
    poll.close()


def fill(broker: Running, sessions: int, messages: int) -> Backlog:
    loop, publishers = Loop(), list[BoundedPublisher]()
    each = max(1, min(sessions // PUBLISHERS, MAX_TOPICS))
    for number in range(PUBLISHERS):
        topics = [topic((number * each + index) % sessions) for index in range(each)]
        frames = publish_frames(topics, payload_of(PAYLOAD), 1, wire.V311, max(each, WINDOW * 10))
        sock = wire.open_connection(broker.address, f"fill-{number}", wire.V311)
        publishers.append(BoundedPublisher(loop, sock, ring(frames, RING), len(frames[0]), WINDOW, 1))
    drive(loop, publishers, messages // 10, PATIENCE)
    memory, work, began = broker.memory(), broker.cpu_seconds(), time.perf_counter()
    for publisher in publishers:
        publisher.window = WINDOW
    drive(loop, publishers, messages, PATIENCE)
    seconds, rest = time.perf_counter() - began, messages - messages // 10
    result = Backlog(
        sessions,
        messages,
        queued=rest / seconds,
        work=(broker.cpu_seconds() - work) / rest * 1e6,
        memory=(broker.memory() - memory) / rest,
    )
    for publisher in publishers:
        publisher.sock.close()
    return result


def resume(address: tuple[str, int], messages: int) -> tuple[float, float]:
    """The one session comes back for everything."""
    loop = Loop()
    frame = wire.publish(topic(0), payload_of(PAYLOAD), 1, wire.V311, 1)
    began = time.perf_counter()
    sock = wire.open_connection(address, "b-0", wire.V311, stays=True)
    totals = Totals(memoryview(bytearray(8)).cast("q"), 0)
    subscriber = SubscriberQos1(loop, sock, len(frame), totals, wire.header_size(frame) + 2 + len(topic(0)))
    first = 0.0
    while subscriber.messages - subscriber.duplicates < messages:
        loop.turn(1)
        now = time.perf_counter() - began
        first = first or (now if subscriber.messages else 0.0)
        if now > PATIENCE:
            raise BrokenRun(f"{subscriber.messages:,} of {messages:,} messages came in {PATIENCE:.0f} s")
    seconds = time.perf_counter() - began
    sock.close()
    return first, messages / seconds
