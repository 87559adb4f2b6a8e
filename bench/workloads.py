"""The kinds of traffic, and which part of one each generator process drives."""

import mmap
import socket
import sys
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal

from bench import wire
from bench.loop import Flow, Loop, Totals
from bench.streaming import AcknowledgedPublisher, Publisher, Subscriber, SubscriberQos1, SubscriberQos2
from bench.turns import Caller, EchoQos0, EchoQos1
from bench.wire import payload_of, publish_frames, ring

PAYLOAD: Final = 64
RING: Final = 1 << 18  # bytes of encoded packets a publisher repeats


@dataclass(frozen=True, slots=True)
class Workload:
    """`flows` are pairs, subscribers of one publisher, or connections, as the kind has it."""

    name: str
    text: str
    kind: Literal["pairs", "fanout", "echo", "connect", "idle"]
    flows: int
    qos: int = 0
    window: int = 8000
    topics: int = 1

    @property
    def unit(self) -> str:
        return {"connect": "connections/s", "idle": "bytes/connection"}.get(self.kind, "deliveries/s")

    @property
    def counts_bytes(self) -> bool:
        return self.qos == 0 and self.kind in ("pairs", "fanout")

    def scaled(self, *, flows: int | None, window: int | None, topics: int | None) -> "Workload":
        """For smoke tests: never more than these."""
        return replace(
            self,
            flows=min(self.flows, flows or self.flows),
            window=min(self.window, window or self.window),
            topics=min(self.topics, topics or self.topics),
        )

    def topic(self, flow: int, topic: int = 0) -> str:
        return f"bench/{flow:03}/{topic:04}/t"

    def topic_filter(self, flow: int) -> str:
        return f"bench/{flow:03}/+/t" if self.topics > 1 else self.topic(flow)

    def frames(self, flow: int, version: int) -> list[bytes]:
        topics = [self.topic(flow, topic) for topic in range(self.topics)]
        number = 10 * self.window if self.qos and self.kind == "pairs" else self.topics
        return publish_frames(topics, payload_of(PAYLOAD), self.qos, version, number)

    def frame_size(self, version: int) -> int:
        return len(self.frames(0, version)[0])


WORKLOADS: Final = {
    workload.name: workload
    for workload in (
        Workload("pair-qos0", "one pair, QoS 0, streaming", "pairs", 1),
        Workload("pairs-qos0", "eight pairs, QoS 0, streaming", "pairs", 8),
        Workload("fanout-qos0", "one publisher to fifty subscribers, QoS 0", "fanout", 50),
        Workload("wildcard-qos0", "eight pairs, QoS 0, 1,000 topics each, one + filter", "pairs", 8, topics=1000),
        Workload("pairs-qos1", "eight pairs, QoS 1, window 100", "pairs", 8, qos=1, window=100),
        Workload("pairs-qos2", "eight pairs, QoS 2, window 100", "pairs", 8, qos=2, window=100),
        Workload("sparse-qos0", "500 connections, one message each on its way, QoS 0", "echo", 500),
        Workload("sparse-qos1", "500 connections, one message each on its way, QoS 1", "echo", 500, qos=1),
        Workload("connect", "connect, CONNACK, DISCONNECT; 150 at a time", "connect", 150),
        Workload("idle", "memory of a connection that does nothing; 3,000 of them", "idle", 3000),
    )
}


class Slots:
    """Counters that the processes share: one writer each, read by the parent at any time."""

    PHASE: Final = 0
    WIDTH: Final = 8
    DELIVERED, LOW, SENT = 0, 1, 2

    def __init__(self, workers: int) -> None:
        self._map = mmap.mmap(-1, 8 * self.WIDTH * (workers + 1))
        self.values = memoryview(self._map).cast("q")
        self.workers = workers

    def index(self, worker: int, slot: int) -> int:
        return self.WIDTH * (worker + 1) + slot

    @property
    def phase(self) -> int:
        return self.values[self.PHASE]

    @phase.setter
    def phase(self, value: int) -> None:
        self.values[self.PHASE] = value

    @property
    def delivered(self) -> int:
        return sum(self.values[self.index(worker, self.DELIVERED)] for worker in range(self.workers))


def received_by(receiver: Subscriber) -> int:
    return receiver.received


def lowest(slots: Slots, marks: list[int]) -> int:
    values = slots.values
    return min([values[mark] for mark in marks])


class Part:
    """What one process of a workload drives."""

    def __init__(self, workload: Workload, address: tuple[str, int], version: int, worker: int, slots: Slots) -> None:
        self.workload, self.address, self.version = workload, address, version
        self.worker, self.slots = worker, slots
        self.loop = Loop()
        self.totals = Totals(slots.values, slots.index(worker, Slots.DELIVERED))
        self.flows: list[Flow] = []
        self.publishers: list[Publisher | AcknowledgedPublisher] = []
        self.receivers: list[Subscriber | SubscriberQos1 | SubscriberQos2] = []
        self.callers: list[EchoQos0 | EchoQos1 | Caller] = []
        self.held: list[socket.socket] = []
        self.timeout = 0.02
        getattr(self, f"_{workload.kind}")()
        self.flows += self.publishers
        self.flows += self.callers

    def _mine(self) -> range:
        return range(self.worker, self.workload.flows, self.slots.workers)

    def _open(self, name: str, filters: list[str] | None = None) -> socket.socket:
        return wire.open_connection(self.address, name, self.version, filters, self.workload.qos)

    def _pairs(self) -> None:
        load = self.workload
        for flow in self._mine():
            frames = load.frames(flow, self.version)
            size = len(frames[0])
            topic_length = len(load.topic(flow))
            sock = self._open(f"s-{flow}", [load.topic_filter(flow)])
            buffer = ring(frames, RING)
            if load.qos == 0:
                receiver = Subscriber(self.loop, sock, size, self.totals)
                self.receivers.append(receiver)
                self.publishers.append(
                    Publisher(
                        self.loop, self._open(f"p-{flow}"), buffer, size, load.window, partial(received_by, receiver)
                    )
                )
                continue
            kind = SubscriberQos1 if load.qos == 1 else SubscriberQos2
            self.receivers.append(kind(self.loop, sock, size, self.totals, topic_length))
            self.publishers.append(
                AcknowledgedPublisher(self.loop, self._open(f"p-{flow}"), buffer, size, load.window, load.qos)
            )

    def _fanout(self) -> None:
        load, slots = self.workload, self.slots
        frames = load.frames(0, self.version)
        size = len(frames[0])
        mine = [
            Subscriber(self.loop, self._open(f"s-0-{number}", [load.topic(0)]), size, self.totals)
            for number in self._mine()
        ]
        self.receivers += mine
        marks = [slots.index(worker, Slots.LOW) for worker in range(min(slots.workers, load.flows))]
        self.flows.append(LowMark(mine, slots, self.worker))
        if self.worker == 0:
            self.publishers.append(
                Publisher(
                    self.loop, self._open("p-0"), ring(frames, RING), size, load.window, partial(lowest, slots, marks)
                )
            )
            self.timeout = 0.001  # the marks of the other processes wake nobody

    def _echo(self) -> None:
        load = self.workload
        for flow in self._mine():
            frame = load.frames(flow, self.version)[0]
            sock = self._open(f"e-{flow}", [load.topic(flow)])
            if load.qos == 0:
                self.callers.append(EchoQos0(self.loop, sock, frame, self.totals))
            else:
                self.callers.append(EchoQos1(self.loop, sock, frame, self.totals, len(load.topic(flow))))

    def _connect(self) -> None:
        hellos = [wire.connect(f"c-{self.worker}-{number:05}", self.version) for number in range(16384)]
        for place in self._mine():
            start = place * 97 % len(hellos)
            self.callers.append(Caller(self.loop, self.address, hellos[start:] + hellos[:start], self.totals, place))

    def _idle(self) -> None:
        """Opened only once the parent has read how much memory the broker takes without them."""

    def open_idle(self) -> None:
        for flow in self._mine():
            self.held.append(self._open(f"i-{flow}", [self.workload.topic(flow)]))
            self.slots.values[self.totals.slot] += 1

    def complete(self) -> bool:
        """Nothing is missing that this process waits for. Of a fan-out the publisher's process says how much that is."""
        if not all(flow.idle() for flow in self.flows):
            return False
        if self.workload.kind != "fanout":
            account = self.account()
            return account["received"] >= account["sent"] + account["duplicates"]
        values, sent = self.slots.values, self.slots.index(0, Slots.SENT)
        if self.worker == 0:
            values[sent] = self.publishers[0].messages
        return values[sent] > 0 and all(receiver.messages >= values[sent] for receiver in self.receivers)

    def account(self) -> dict[str, int]:
        """Messages sent and had, by publisher times its subscribers; the parent adds the parts up."""
        return {
            "sent": sum(flow.messages for flow in self.publishers) + sum(flow.sent for flow in self.callers),
            "received": sum(flow.messages for flow in [*self.receivers, *self.callers]),
            "duplicates": sum(getattr(flow, "duplicates", 0) for flow in self.receivers),
        }


class LowMark:
    """Tells the publisher's process how far the slowest subscriber of this process is."""

    def __init__(self, receivers: list[Subscriber], slots: Slots, worker: int) -> None:
        self.receivers, self.values = receivers, slots.values
        self.slot = slots.index(worker, Slots.LOW)
        self.values[self.slot] = 0 if receivers else sys.maxsize

    def start(self) -> None:
        pass

    def after_turn(self) -> None:
        if self.receivers:
            self.values[self.slot] = min([receiver.received for receiver in self.receivers])

    def stop(self) -> None:
        pass

    def idle(self) -> bool:
        return True
