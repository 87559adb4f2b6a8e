"""Sessions that outlive their connection: publishers whose messages a subscriber has at once, or will have later."""

import time
from typing import Final

from bench import wire
from bench.loop import BrokenRun, Loop, Totals
from bench.parts import RING, Part
from bench.streaming import AcknowledgedPublisher, SubscriberQos1, SubscriberQos2
from bench.wire import ring

#: Seconds without an answer after which a publisher gives up.
PATIENCE: Final = 60.0


class CountingPublisher(AcknowledgedPublisher):
    """Counts what is acknowledged, where nobody receives anything."""

    totals: Totals

    def read(self, data: bytes) -> None:
        before = self.acknowledged
        super().read(data)
        self.totals.shared[self.totals.slot] += self.acknowledged - before


class Staying(Part, kind="online"):
    """Pairs of which both sessions stay."""

    publisher: type[AcknowledgedPublisher] = AcknowledgedPublisher

    def connect(self) -> None:
        load = self.workload
        for flow in self.mine(load.flows):
            frames = load.frames(flow, self.version)
            self.subscribe(flow, frames[0])
            sock = wire.open_connection(self.address, f"p-{flow}", self.version, stays=True)
            publisher = self.publisher(self.loop, sock, ring(frames, RING), len(frames[0]), load.window, load.qos)
            if isinstance(publisher, CountingPublisher):
                publisher.totals = self.totals
            self.publishers.append(publisher)

    def subscribe(self, flow: int, frame: bytes) -> None:
        self.receive(flow, 0, frame, [self.workload.topic_filter(flow)])

    def receive(self, flow: int, member: int, frame: bytes, filters: list[str] | None = None) -> None:
        qos = self.workload.qos
        kind = SubscriberQos1 if qos == 1 else SubscriberQos2
        sock = wire.open_connection(self.address, f"s-{flow}-{member}", self.version, filters, qos, stays=True)
        self.receivers.append(kind(self.loop, sock, len(frame), self.totals, self.packet_id_at(frame)))


class Offline(Staying, kind="offline"):
    """The subscribers come when everything is sent: nothing of it may be missing. Of many, some come."""

    publisher = CountingPublisher

    def subscribe(self, flow: int, frame: bytes) -> None:
        for member in range(self.workload.members):
            filters = [self.workload.topic_filter(flow)]
            sock = wire.open_connection(
                self.address, f"s-{flow}-{member}", self.version, filters, self.workload.qos, stays=True
            )
            sock.sendall(wire.DISCONNECT)
            sock.close()

    def finish(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while not all(publisher.idle() for publisher in self.publishers):
            self.loop.turn(0.02)
            if time.monotonic() > deadline:
                raise BrokenRun("messages are not acknowledged")
        for flow in self.mine(self.workload.flows):
            for member in range(self.workload.copies):
                self.receive(flow, member, self.workload.frames(flow, self.version)[0])

    def complete(self) -> bool:
        account = self.account()
        return account["received"] >= account["sent"] * self.workload.copies + account["duplicates"]


class BoundedPublisher(AcknowledgedPublisher):
    """Sends so many messages and no more."""

    bound = 0

    def push(self) -> None:
        self.window = max(0, min(self.window, self.bound - self.acknowledged))
        super().push()


def drive(loop: Loop, publishers: list[BoundedPublisher], number: int, seconds: float) -> None:
    """Publish so many messages in all.

    Raises:
        BrokenRun: that takes longer.
    """
    deadline = time.monotonic() + seconds
    for index, publisher in enumerate(publishers):
        publisher.bound = number // len(publishers) + (index < number % len(publishers))
        publisher.start()
    while not all(publisher.acknowledged == publisher.bound for publisher in publishers):
        loop.turn(0.02)
        if time.monotonic() > deadline:
            done = sum(publisher.acknowledged for publisher in publishers)
            raise BrokenRun(f"{done:,} of {number:,} messages in {seconds:.0f} s")
