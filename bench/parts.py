"""Which part of a workload each generator process drives."""

import socket
import sys
from functools import partial
from typing import ClassVar

from bench import wire
from bench.loop import BrokenRun, Flow, Loop, Totals
from bench.slots import Slots
from bench.stored import Newcomer, Subscribing, await_retained, retain, subscribe_held
from bench.streaming import AcknowledgedPublisher, Publisher, Subscriber, SubscriberQos1, SubscriberQos2
from bench.transport import FRAMED, IN, framed
from bench.turns import Caller, EchoQos0, EchoQos1
from bench.wire import ring
from bench.workloads import Kind, Workload

RING = 1 << 18  # bytes of encoded packets a publisher repeats


class Part:
    """What one process of a workload drives: connected when it is made, prepared and run when the parent says so."""

    kinds: ClassVar[dict[Kind, type["Part"]]] = {}
    timeout = 0.02

    def __init_subclass__(cls, kind: Kind) -> None:
        cls.kinds[kind] = cls

    def __init__(self, workload: Workload, address: tuple[str, int], version: int, worker: int, slots: Slots) -> None:
        self.workload, self.address, self.version = workload, address, version
        self.worker, self.slots = worker, slots
        self.loop = Loop()
        self.totals = Totals(slots.values, slots.index(worker, Slots.DELIVERED))
        self.flows: list[Flow] = []
        self.publishers: list[Publisher | AcknowledgedPublisher] = []
        self.receivers: list[Subscriber | SubscriberQos1 | SubscriberQos2] = []
        self.callers: list[EchoQos0 | EchoQos1 | Caller | Newcomer | Subscribing] = []
        self.connect()
        self.flows += self.publishers
        self.flows += self.callers

    def connect(self) -> None:
        raise NotImplementedError

    def prepare(self) -> None:
        """Prepare, before anything is measured."""

    def check(self) -> None:
        """That it is there; not at once, as the memory that it takes is read before."""

    def finish(self) -> None:
        """When nothing more is sent, before what came is counted."""

    def mine(self, number: int) -> range:
        return range(self.worker, number, self.slots.workers)

    def open(self, name: str, filters: list[str] | None = None) -> socket.socket:
        load = self.workload
        return wire.open_connection(self.address, name, self.version, filters, load.qos, transport=load.transport)

    def ring(self, frames: list[bytes]) -> tuple[bytes, int]:
        """What a publisher repeats, each packet in its own frame if there are frames; and the size of one."""
        sent = list(map(framed, frames)) if self.workload.transport in FRAMED else frames
        return ring(sent, RING), len(sent[0])

    def packet_id_at(self, frame: bytes) -> int:
        """Where a PUBLISH has its packet id: behind the topic, and all topics have one length."""
        return wire.header_size(frame) + 2 + len(self.workload.topic(0))

    def complete(self) -> bool:
        """Nothing is missing that this process waits for."""
        if not all(flow.idle() for flow in self.flows):
            return False
        account = self.account()
        return account["received"] >= account["sent"] + account["duplicates"]

    def account(self) -> dict[str, int]:
        """Messages sent and had, by publisher times its subscribers; the parent adds the parts up."""
        return {
            "sent": sum(flow.messages for flow in self.publishers) + sum(flow.sent for flow in self.callers),
            "received": sum(flow.messages for flow in [*self.receivers, *self.callers]),
            "duplicates": sum(getattr(flow, "duplicates", 0) for flow in self.receivers),
        }


class Pairs(Part, kind="pairs"):
    def connect(self) -> None:
        load = self.workload
        for flow in self.mine(load.flows):
            frames = load.frames(flow, self.version)
            size = len(frames[0])
            sock = self.open(f"s-{flow}", [load.topic_filter(flow)])
            buffer, sent = self.ring(frames)
            publisher = self.open(f"p-{flow}")
            if load.qos == 0:
                receiver = Subscriber(self.loop, sock, size, self.totals)
                self.receivers.append(receiver)
                low = partial(received_by, receiver)
                self.publishers.append(Publisher(self.loop, publisher, buffer, sent, load.window, low, size))
                continue
            kind = SubscriberQos1 if load.qos == 1 else SubscriberQos2
            self.receivers.append(kind(self.loop, sock, size, self.totals, self.packet_id_at(frames[0])))
            self.publishers.append(AcknowledgedPublisher(self.loop, publisher, buffer, sent, load.window, load.qos))


def received_by(receiver: Subscriber) -> int:
    return receiver.received


class Fanout(Part, kind="fanout"):
    """The publisher is in the first process, and minds the slowest subscriber of all."""

    def connect(self) -> None:
        load, slots = self.workload, self.slots
        frames = load.frames(0, self.version)
        size = len(frames[0])
        mine = [
            Subscriber(self.loop, self.open(f"s-0-{number}", [load.topic(0)]), size, self.totals)
            for number in self.mine(load.flows)
        ]
        self.receivers += mine
        self.flows.append(LowMark(mine, slots, self.worker))
        if self.worker == 0:
            low = partial(lowest, slots, slots.all(Slots.LOW))
            buffer, sent = self.ring(frames)
            self.publishers.append(Publisher(self.loop, self.open("p-0"), buffer, sent, load.window, low, size))
            self.timeout = 0.001  # the marks of the other processes wake nobody

    def complete(self) -> bool:
        """The publisher's process says how much it is."""
        if not all(flow.idle() for flow in self.flows):
            return False
        values, sent = self.slots.values, self.slots.index(0, Slots.SENT)
        if self.worker == 0:
            values[sent] = self.publishers[0].messages
        return values[sent] > 0 and all(receiver.messages >= values[sent] for receiver in self.receivers)


def lowest(slots: Slots, marks: list[int]) -> int:
    values = slots.values
    return min([values[mark] for mark in marks])


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


class Pool(Part, kind="pool"):
    """Many publishers to one subscriber, or to a shared group.

    Nobody parses which message came from whom, so each publisher may be as far as its share of all that came, and its
    window. All of them together are then at most their windows ahead, and none can run away from the others for long.
    """

    def connect(self) -> None:
        load = self.workload
        frames = load.frames(0, self.version)
        size = len(frames[0])
        kind = "g" if load.shared else "s"
        for number in self.mine(load.members):
            sock = self.open(f"{kind}-0-{number}", [load.topic_filter(0)])
            self.receivers.append(Subscriber(self.loop, sock, size, self.totals))
        gate = Gate(self.slots, load.flows, load.window * size)
        for flow in self.mine(load.flows):
            buffer, sent = self.ring(load.frames(flow, self.version))
            sock = self.open(f"m-0-{flow}")
            publisher = GatedPublisher(self.loop, sock, buffer, sent, load.window, gate.low, size)
            self.publishers.append(publisher)
            gate.publishers.append(publisher)
        self.flows.append(gate)
        self.timeout = 0.001  # what other processes receive wakes nobody here

    def complete(self) -> bool:
        """Every process has said how much it sent, and so much has come in all of them."""
        if not all(flow.idle() for flow in self.flows):
            return False
        slots = self.slots
        slots.values[slots.index(self.worker, Slots.SENT)] = 1 + sum(flow.messages for flow in self.publishers)
        sent = [slots.values[index] for index in slots.all(Slots.SENT)]
        return all(sent) and slots.delivered >= (sum(sent) - len(sent)) * self.workload.frame_size(self.version)


class GatedPublisher(Publisher):
    """One that is woken by its gate, rather than after every turn."""

    def after_turn(self) -> None:
        pass


class Gate:
    """Lets the publishers of this process go on when enough has come for it to be worth while."""

    def __init__(self, slots: Slots, flows: int, window: int) -> None:
        self.slots, self.flows = slots, flows
        self.step = flows * window // 8
        self.publishers: list[Publisher] = []
        self.next = 0

    def low(self) -> int:
        return self.slots.delivered // self.flows

    def start(self) -> None:
        pass

    def after_turn(self) -> None:
        delivered = self.slots.delivered
        if delivered >= self.next:
            self.next = delivered + self.step
            for publisher in self.publishers:
                publisher.push()

    def stop(self) -> None:
        pass

    def idle(self) -> bool:
        return True


class Echo(Part, kind="echo"):
    def connect(self) -> None:
        load = self.workload
        for flow in self.mine(load.flows):
            frame = load.frames(flow, self.version)[0]
            sock = self.open(f"e-{flow}", [load.topic(flow)])
            if load.qos == 0:
                self.callers.append(EchoQos0(self.loop, sock, frame, self.totals))
            else:
                self.callers.append(EchoQos1(self.loop, sock, frame, self.totals, self.packet_id_at(frame)))


class Connecting(Part, kind="connect"):
    def connect(self) -> None:
        load, count = self.workload, 16384
        names = [f"c-{self.worker}-{number:05}" for number in range(count)]
        hellos = [wire.connect(name, self.version, stays=load.stays, will=f"will/{name}" * load.will) for name in names]
        for place in self.mine(load.flows):
            start = place * (count // load.flows)
            hellos_of = hellos[start:] + hellos[:start]
            self.callers.append(
                Caller(self.loop, self.address, hellos_of, self.totals, place, load.transport, resumes=load.resumes)
            )


class Idle(Part, kind="idle"):
    """All connections are opened while the parent watches how much memory the broker takes for them."""

    def connect(self) -> None:
        self.held: dict[int, socket.socket] = {}

    def prepare(self) -> None:
        for number in self.mine(self.workload.held):
            sock = self.open(f"i-{number}", [self.workload.topic(number)])
            self.held[self.loop.add(sock, self.ended, IN)] = sock

    def ended(self, mask: int) -> None:
        raise BrokenRun("the broker closed an idle connection, or sent something")


class Retained(Part, kind="retained"):
    """The first process leaves the messages at the broker; then each subscriber asks for all of them, and goes."""

    def connect(self) -> None:
        load = self.workload
        frame = wire.publish(load.topic(0), wire.payload_of(load.payload), 0, self.version, retain=True)
        for place in self.mine(load.flows):
            self.callers.append(
                Newcomer(self.loop, self.address, self.version, len(frame), load, self.totals, f"{place}")
            )

    def prepare(self) -> None:
        if self.worker == 0:
            self.held = self.open("x-retain")  # and stays: amqtt forgets what it has from those who go
            retain(self.held, self.workload, self.version)

    def check(self) -> None:
        if self.worker == 0:
            await_retained(self.address, self.workload, self.version)


class Subscriptions(Part, kind="subscribe"):
    """Other clients hold most subscriptions, so that what is measured is the broker's table and not a client's list."""

    def connect(self) -> None:
        load = self.workload
        self.holders = [self.open(f"x-h-{number}") for number in self.mine(-(-load.held // load.batch))]
        for flow in self.mine(load.flows):
            self.callers.append(
                Subscribing(self.loop, self.open(f"x-{flow}"), flow, load.window, self.version, self.totals)
            )

    def prepare(self) -> None:
        for number, sock in zip(self.mine(-(-self.workload.held // self.workload.batch)), self.holders, strict=True):
            subscribe_held(sock, number, self.workload, self.version)
