"""A publisher's messages on one topic reach a session in the order in which they were published, whatever their QoS and
whatever happens to the subscriber meanwhile.  # [MQTT-4.6.0-5] [MQTT-4.6.0-6]"""

from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Literal

import pytest
import trio
import trio.testing
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.broker.disk import Disk, Life
from tests.broker.session.test_cursor import until
from tests.conformance import raw
from tests.wire import Wire
from trunkline.broker.connection.connection import Connection
from trunkline.broker.metrics import DropReason
from trunkline.broker.session.actor import SessionActor
from trunkline.broker.session.outbound import MAX_SLICE
from trunkline.mqtt.message import Message
from trunkline.mqtt.session.window import MAX_PACKET_ID

TOPICS = ("t/a", "t/b")
#: By their identifiers. Messages come once by all filters that are not shared, and once more by the shared one.
FILTERS = {1: ("t/#", 2), 2: ("t/a", 1), 3: ("+/b", 0), 4: ("$share/g/t/#", 2)}
SHARED = 4

#: A publisher's messages in one piece: who, the topic, the QoS of each.
Burst = tuple[Literal["publish"], str, str, tuple[int, ...]]
#: What the subscriber does.
Act = tuple[Literal["go", "come", "read", "take", "restart"]]


class Publisher:
    def __init__(self, name: str, wire: Wire) -> None:
        self.name = name
        self._wire = wire

    async def publish(self, topic: str, messages: list[tuple[int, bytes]]) -> None:
        """Without waiting, but for what a message of QoS 2 is only routed after."""
        pieces: list[bytes] = []
        for packet_id, (qos, payload) in enumerate(messages, 1):
            pieces.append(raw.publish(topic, payload, qos=qos, packet_id=packet_id if qos else None))
            if qos == 2:
                pieces.append(raw.ack(raw.PUBREL, packet_id))
        await self._wire.send(*pieces)
        # what acknowledges all of them has come when this has
        open_exchanges = {packet_id for packet_id, (qos, _) in enumerate(messages, 1) if qos}
        while open_exchanges:
            packet = await self._wire.receive()
            if packet.type in (raw.PUBACK, raw.PUBCOMP):
                open_exchanges.discard(packet.packet_id)


class Tale:
    """What a subscriber went through, and what it got."""

    def __init__(self, *, stored: bool) -> None:
        self.disk = Disk()
        self.settings = {
            "session": {"max_inflight": 3, "backpressure": 0},
            "store": {} if stored else {"durability": "memory"},
        }
        self.life: Life
        self.publishers: dict[str, Publisher] = {}
        self.subscriber: Wire | None = None
        self.number = 0
        #: The numbers of what was published with QoS 1 or 2.
        self.kept: set[int] = set()
        #: By publisher, topic and whether it came by the shared filter: the numbers of what came, in order.
        self.came: dict[tuple[str, str, bool], list[int]] = defaultdict(list)
        self._unanswered: list[raw.Received] = []

    @asynccontextmanager
    async def lives(self) -> AsyncIterator[None]:
        """A broker after the other."""
        async with AsyncExitStack() as self._stack:
            await self._begin()
            yield

    async def _begin(self) -> None:
        self.life = await self._stack.enter_async_context(self.disk.broker(**self.settings))
        for name in ("p", "q"):
            wire, _ = await self.life.stay(name, expiry=0)
            self.publishers[name] = Publisher(name, wire)

    async def tell(self, step: Burst | Act) -> None:
        if step[0] == "publish":
            _, name, topic, each = step
            messages = []
            for qos in each:
                self.number += 1
                messages.append((qos, b"%s %s %d" % (name.encode(), topic.encode(), self.number)))
                if qos:
                    self.kept.add(self.number)
            await self.publishers[name].publish(topic, messages)
        else:
            await getattr(self, step[0])()

    async def come(self) -> None:
        if self.subscriber is None:
            self.subscriber, present = await self.life.stay("subscriber")
            if not present:
                for identifier, filter in FILTERS.items():
                    properties = raw.subscription_identifier(identifier)
                    await self.subscriber.subscribe(filter, properties=properties)

    async def go(self) -> None:
        if self.subscriber is not None:
            await self.subscriber.abort()
            self.subscriber = None
            self._unanswered.clear()
            await trio.testing.wait_all_tasks_blocked(0.01)

    async def restart(self) -> None:
        if not self.settings["store"]:
            await self.go()
            await self._stack.aclose()
            await self._begin()

    async def read(self) -> bool:
        """What has come, without an answer. Returns whether anything has."""
        if self.subscriber is None:
            return False
        await self.subscriber.send(raw.PINGREQ)
        got = False
        while (packet := await self.subscriber.receive()).type != raw.PINGRESP[0]:
            got = True
            if packet.type == raw.PUBLISH:
                self._note(packet)
            if packet.type != raw.PUBLISH or packet.qos:
                self._unanswered.append(packet)
        return got

    def _note(self, packet: raw.Received) -> None:
        name, topic, number = packet.payload.decode().split()
        came = self.came[name, topic, packet.all(raw.SUBSCRIPTION_IDENTIFIER) == [SHARED]]
        if int(number) not in came:
            came.append(int(number))
        else:
            assert packet.dup

    async def take(self) -> None:
        """What has come, with all answers."""
        await self.read()
        unanswered, self._unanswered = self._unanswered, []
        for packet in unanswered:
            assert self.subscriber is not None
            if packet.type == raw.PUBLISH:
                await self.subscriber.send(raw.ack(raw.PUBACK if packet.qos == 1 else raw.PUBREC, packet.packet_id))
            else:
                await self.subscriber.send(raw.ack(raw.PUBCOMP, packet.packet_id))

    def check(self) -> None:
        """What comes is sent at once if and only if nothing waits and nothing pauses the session."""
        for actor in self.life.node.sessions:
            outbound = actor._outbound  # pyright: ignore[reportPrivateUsage]
            direct = outbound.direct
            outbound._review()  # pyright: ignore[reportPrivateUsage]
            assert outbound.direct is direct

    async def end(self) -> None:
        """All that was kept has come, and all in order."""
        await self.come()
        with trio.fail_after(60):
            while self._unanswered or any(self.kept - self._numbers(shared=shared) for shared in (False, True)):
                await self.take()
                await trio.lowlevel.checkpoint()
        for numbers in self.came.values():
            assert numbers == sorted(numbers)

    def _numbers(self, *, shared: bool) -> set[int]:
        return {number for key, numbers in self.came.items() if key[2] is shared for number in numbers}


bursts = st.tuples(
    st.just("publish"),
    st.sampled_from(("p", "p", "q")),
    st.sampled_from(TOPICS),
    st.lists(st.integers(0, 2), min_size=1, max_size=6).map(tuple),
)
acts = st.sampled_from(("go", "come", "come", "read", "take", "take", "restart")).map(lambda word: (word,))


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session soon falls behind, and reads what waits in many pages."""
    monkeypatch.setattr("trunkline.broker.session.slow_consumer.MAX_HIGH", 2)
    monkeypatch.setattr("trunkline.broker.backlogs.backlogs.MAX_PAGE", 2)
    monkeypatch.setattr("trunkline.broker.session.backlog_reader.MAX_PAGE", 2)
    monkeypatch.setattr("trunkline.broker.backlogs.backlog.MAX_RECENT", 2)
    monkeypatch.setattr("trunkline.broker.backlogs.merge.AT_ONCE", 3)


MIXED = ("publish", "p", "t/a", (2, 1, 0, 2, 0, 1))


@pytest.mark.parametrize("stored", [False, True])
@given(steps=st.lists(bursts | acts, max_size=20))
@settings(max_examples=25)
@example(steps=[MIXED])
@example(steps=[("go",), MIXED, MIXED, ("come",), MIXED])
@example(steps=[("go",), MIXED, ("restart",), MIXED, ("come",), MIXED])
@example(steps=[MIXED, MIXED, MIXED, ("take",), MIXED, ("take",), ("go",), MIXED])
def test_whatever_happens_to_a_subscriber(stored: bool, steps: list[Burst | Act]) -> None:
    async def run() -> None:
        tale = Tale(stored=stored)
        async with tale.lives():
            await tale.come()
            for step in steps:
                await tale.tell(step)
                tale.check()
            await tale.end()

    trio.run(run)


async def test_what_waits_behind_a_message_that_cannot_be_stored_is_bounded() -> None:
    async with Disk().broker(session={"max_queue_length": 50, "backpressure": 0}) as life:
        subscriber, _ = await life.stay("subscriber")
        await subscriber.subscribe(("t", 2))
        publisher, _ = await life.stay("publisher", expiry=0)
        await publisher.send(raw.publish("t", b"first", qos=2, packet_id=1))
        await publisher.expect_type(raw.PUBREC)
        life.fill()
        await publisher.send(raw.ack(raw.PUBREL, 1))
        for number in range(200):
            await publisher.publish("t", b"%03d" % number + bytes(10_000))
            await publisher.ping()
        await subscriber.ping()
        assert session_of(life).session.queue.length == 50
        life.free()
        await subscriber.expect_publish("t", b"first", qos=2)
        await subscriber.send(raw.PINGREQ)
        numbers: list[int] = []
        while (packet := await subscriber.receive()).type == raw.PUBLISH:
            numbers.append(int(packet.payload[:3]))
        dropped = life.node.metrics.dropped[DropReason.SLOW_CONSUMER]
        written = 200 - dropped - 50
        assert written * 10_000 <= MAX_SLICE + 10_100
        assert numbers == [*range(written), *range(150, 200)]


async def test_qos_0_waits_until_all_is_sent_again() -> None:
    async with Disk().broker() as life:
        subscriber, _ = await life.stay("subscriber")
        await subscriber.subscribe(("t", 1))
        publisher, _ = await life.stay("publisher", expiry=0)
        for number in range(3):
            await publisher.publish("t", b"%d" % number, qos=1)
        await subscriber.abort()
        wire = await life.wire()
        await wire.connect("subscriber", clean=False, properties=raw.session_expiry(1000) + raw.receive_maximum(1))
        await publisher.publish("t", b"3")
        for number in range(3):
            await wire.take_publish("t", b"%d" % number, qos=1)
        await wire.take_publish("t", b"3")


async def test_what_is_still_in_the_mailbox_is_not_overtaken() -> None:
    """Messages for the backlog are seen at once, those for the queue in the session's turn."""
    async with Disk().broker(session={"max_inflight": 3}) as life:
        subscriber, _ = await life.stay("subscriber")
        await subscriber.subscribe(("t", 1))
        await subscriber.abort()
        await until(lambda: session_of(life).channel is None)
        await life.node.scheduler.drained()
        publisher, _ = await life.stay("publisher", expiry=0)
        for number in range(4):
            await publisher.publish("t", b"%d" % number, qos=1)
        subscriber, _ = await life.stay("subscriber")
        packets = [await subscriber.expect_publish("t", b"%d" % number, qos=1) for number in range(3)]
        await publisher.publish("t", b"4", qos=1)
        services, now = life.node.services, life.node.scheduler.now
        for payload, qos in ((b"5", 0), (b"6", 1)):
            services.pubsub.publish(services.stamp(Message("t", payload, qos), now), now)
        # before the session has its turn
        acknowledgements = b"".join(raw.ack(raw.PUBACK, packet.packet_id) for packet in packets)
        for connection in life.node.listeners.connections:
            if isinstance(connection, Connection) and connection._channel is session_of(life).channel:  # pyright: ignore[reportPrivateUsage]
                connection.receive(acknowledgements)
        for number, qos in ((3, 1), (4, 1), (5, 0), (6, 1)):
            await subscriber.take_publish("t", b"%d" % number, qos=qos)


async def test_a_burst_for_which_the_packet_ids_are_not_consecutive_is_not_overtaken() -> None:
    async with Disk().broker() as life:
        subscriber, _ = await life.stay("subscriber")
        await subscriber.subscribe(("t", 1))
        await subscriber.abort()
        await until(lambda: session_of(life).channel is None)
        await life.node.scheduler.drained()
        publisher, _ = await life.stay("publisher", expiry=0)
        await publisher.send(*[raw.publish("t", b"%d" % number, qos=1, packet_id=1 + number) for number in range(6)])
        for _ in range(6):
            await publisher.expect_type(raw.PUBACK)
        await publisher.publish("t", b"6")
        await publisher.ping()
        session_of(life).session.inflight.last_id = MAX_PACKET_ID - 3
        subscriber, _ = await life.stay("subscriber")
        for number in range(7):
            await subscriber.take_publish("t", b"%d" % number, qos=int(number < 6))


@pytest.mark.parametrize("restarted", [False, True])
async def test_what_is_released_in_another_order_than_it_was_sent_comes_in_that(restarted: bool) -> None:
    """Clients that lost their connection release first what they have sent first, and may have sent that last."""
    disk = Disk()
    async with disk.broker(session={"max_inflight": 1}) as life:
        subscriber, _ = await life.stay("subscriber")
        await subscriber.subscribe("t")
        publisher, _ = await life.stay("publisher")
        await publisher.publish("t", b"unacknowledged", qos=1)
        for packet_id, payload in ((1, b"b"), (2, b"a")):
            await publisher.send(raw.publish("t", payload, qos=2, packet_id=packet_id))
            await publisher.expect_type(raw.PUBREC)
        await publisher.send(raw.ack(raw.PUBREL, 2))
        await publisher.expect_type(raw.PUBCOMP)
        await subscriber.abort()
        await until(lambda: session_of(life).channel is None)
        await life.node.scheduler.drained()
        await publisher.send(raw.ack(raw.PUBREL, 1))
        await publisher.expect_type(raw.PUBCOMP)
        if not restarted:
            await comes(life, b"unacknowledged", b"a", b"b")
    if restarted:
        async with disk.broker(session={"max_inflight": 1}) as life:
            await comes(life, b"unacknowledged", b"a", b"b")


async def comes(life: Life, *payloads: bytes) -> None:
    subscriber, _ = await life.stay("subscriber")
    for payload in payloads:
        packet = await subscriber.expect_type(raw.PUBLISH)
        assert packet.payload == payload
        await subscriber.acknowledge(packet)


def session_of(life: Life) -> SessionActor:
    found = life.node.sessions.get("subscriber")
    assert found is not None
    return found
