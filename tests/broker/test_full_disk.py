"""While the disk is full: what one client that goes on publishing takes, whatever it publishes, and that all of it is
stored when there is room again."""

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.broker.disk import Disk, Life
from tests.broker.test_durability_by_client import by_user
from tests.conformance import raw
from tests.wire import Wire
from trunkline.broker.committer import MAX_RETRY, Committer
from trunkline.broker.metrics import LimitKind
from trunkline.store.sqlite import SqliteEngine
from trunkline.streams import StreamConfig

#: Bytes of one message, and of those that may wait.
LARGE = 100_000
LIMIT = 4 * LARGE
#: Messages that the client sends without waiting for an answer.
COUNT = 40


async def subscribed(life: Life) -> None:
    wire, _ = await life.stay("subscriber")
    await wire.subscribe("t/#")
    await wire.abort()


async def streamed(life: Life) -> None:
    await life.node.streams.create(StreamConfig(name="s", filters=("t/#",)))


async def delayed(life: Life) -> None:
    await life.node.plugins.enable("delayed-publish")


async def nothing(life: Life) -> None:
    del life


class Publisher:
    """It goes on publishing, whatever is acknowledged."""

    def __init__(self, wire: Wire, qos: int) -> None:
        self._wire = wire
        self._qos = qos
        self._sending = trio.Lock()
        #: The packet ids that were acknowledged to the end.
        self.done = set[int]()

    async def send(self, topic: str, *, retain: bool) -> None:
        for number in range(1, COUNT + 1):
            packet = raw.publish(
                f"{topic}/{number}", b"x" * LARGE, qos=self._qos, packet_id=number, retain=retain, version=5
            )
            async with self._sending:
                await self._wire.send(packet)

    async def receive(self) -> None:
        while len(self.done) < COUNT:
            packet = await self._wire.receive()
            if packet.type == raw.PUBREC:
                async with self._sending:
                    await self._wire.send(raw.ack(raw.PUBREL, packet.packet_id))
            else:
                assert packet.type == (raw.PUBACK if self._qos == 1 else raw.PUBCOMP)
                self.done.add(packet.packet_id)


@pytest.mark.parametrize("expiry", [0, 1000], ids=["clean", "durable"])
@pytest.mark.parametrize(
    ("prepare", "topic", "qos", "retain"),
    [
        (subscribed, "t", 1, False),
        (subscribed, "t", 2, False),
        (nothing, "t", 1, True),
        (nothing, "t", 2, True),
        (streamed, "t", 1, False),
        (streamed, "t", 2, False),
        (delayed, "$delayed/3600/t", 1, False),
        (delayed, "$delayed/3600/t", 2, False),
    ],
)
async def test_a_client_is_not_read_from_that_is_owed_too_many_bytes(
    mock_clock: MockClock,
    prepare: Callable[[Life], Awaitable[None]],
    topic: str,
    qos: int,
    retain: bool,
    expiry: int,
) -> None:
    disk = Disk()
    async with disk.broker(mqtt={"max_unacknowledged_bytes": LIMIT}) as life:
        await prepare(life)
        wire, _ = await life.stay("publisher", expiry=expiry)
        wire.patience = 1e9  # the clock jumps
        await life.node.plugin_stores.committed()
        life.fill()
        publisher = Publisher(wire, qos)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(publisher.send, topic, retain=retain))
            nursery.start_soon(publisher.receive)
            for _ in range(10):
                await wait_all_tasks_blocked()
            assert [each.is_paused for each in life.node.listeners.connections] == [True]
            assert life.node.metrics.messages_in[qos] * LARGE < 3 * LIMIT
            assert not publisher.done
            life.free()
            while len(publisher.done) < COUNT:
                mock_clock.jump(MAX_RETRY)
                await wait_all_tasks_blocked()
        assert publisher.done == set(range(1, COUNT + 1))
        assert life.node.metrics.messages_in[qos] == COUNT


#: Bytes that may wait of all clients together, and what one read of a client may bring besides.
TOTAL = 4 << 20
READ = 512 << 10
LONG = "x" * 60_000


class Waits(NamedTuple):
    """Something that a client does, by itself or with each new connection, and that waits for the store."""

    #: The CONNECT of its connection with this number.
    connect: Callable[[int], bytes]
    #: Packets that follow CONNACK.
    packets: Callable[[int], Iterable[bytes]]


def clean(number: int) -> bytes:
    return raw.connect(f"clean{number % 2}")


def large(number: int, *, qos: int = 1, retain: bool = False) -> Iterable[bytes]:
    for packet_id in range(1, 4):
        topic = f"t/{number}/{packet_id}"
        yield raw.publish(topic, b"x" * LARGE, qos=qos, packet_id=packet_id * (qos > 0), retain=retain, version=5)


def removed(number: int) -> Iterable[bytes]:
    """Retained messages that are gone again leave their topics to be deleted."""
    for each in range(8):
        for payload in (b"x", b""):
            yield raw.publish(f"unheard/{number}/{each}/{LONG}", payload, retain=True, version=5)


def nothing_more(number: int) -> Iterable[bytes]:
    del number
    return ()


def with_will(number: int) -> bytes:
    return raw.connect(f"will{number}", will=raw.Will("gone", LONG.encode()))


WAITS = {
    "publications": Waits(clean, large),
    "retained": Waits(clean, partial(large, qos=0, retain=True)),
    "removed": Waits(clean, removed),
    "wills": Waits(with_will, nothing_more),
}


@pytest.mark.parametrize("kind", WAITS)
async def test_no_new_client_is_accepted_while_too_much_of_earlier_ones_waits(mock_clock: MockClock, kind: str) -> None:
    waits = WAITS[kind]
    async with Disk().broker(store={"max_uncommitted_bytes": TOTAL}) as life:
        await subscribed(life)
        committer = committer_of(life)
        refused = life.node.metrics.limited
        async with life.full(mock_clock):
            for number in range(1000):
                wire = await life.wire()
                await wire.send(waits.connect(number), *waits.packets(number))
                await settled()
                await wire.abort()
                await settled()
                assert committer.uncommitted < TOTAL + READ
                if refused[LimitKind.UNCOMMITTED]:
                    break
            assert committer.uncommitted > TOTAL
            assert refused[LimitKind.UNCOMMITTED] == 1
        await life.node.plugin_stores.committed()
        assert committer.uncommitted < TOTAL / 2
        await (await life.wire()).connect("another")


async def subscribe_and_unsubscribe(wire: Wire) -> None:
    for number in range(100):
        filter = f"u/{number}/{LONG}"
        await wire.send(raw.subscribe(1, (filter, 1)), raw.unsubscribe(2, filter))


async def publish(wire: Wire, qos: int = 1) -> None:
    for number in range(1, 41):
        await wire.send(raw.publish("t/1", b"x" * LARGE, qos=qos, packet_id=number * (qos > 0), version=5))
        if qos == 2:
            await wire.send(raw.ack(raw.PUBREL, number))


async def remove(wire: Wire) -> None:
    for number in range(100):
        await wire.send(*removed(number))


@pytest.mark.parametrize("username", ["stored", "memory"])
@pytest.mark.parametrize(
    "send",
    [partial(publish, qos=0), publish, partial(publish, qos=2), remove, subscribe_and_unsubscribe],
    ids=["upgraded", "qos1", "qos2", "remove", "subscribe_and_unsubscribe"],
)
async def test_clients_whose_packets_wait_are_not_read_from_while_too_much_waits_of_all(
    mock_clock: MockClock, send: Callable[[Wire], Awaitable[None]], username: str
) -> None:
    """Those as well that have no answer to wait for."""
    clients = 4
    broker = partial(Disk().broker, hooks=by_user(), session={"upgrade_qos": True})
    async with broker(store={"max_uncommitted_bytes": TOTAL}) as life:
        await subscribed(life)
        for number in range(clients):
            await (await life.stay(f"client{number}"))[0].abort()
        wires = [(await life.stay(f"client{number}", username=username))[0] for number in range(clients)]
        await life.node.plugin_stores.committed()
        committer = committer_of(life)
        async with life.full(mock_clock):
            for wire in wires:
                await send(wire)
                await settled()
            assert [each.is_paused for each in life.node.listeners.connections] == [True] * clients
            assert TOTAL / 2 < committer.uncommitted < TOTAL / 2 + clients * READ
            assert life.node.metrics.limited[LimitKind.UNCOMMITTED_PUBLISHERS] == clients
        mock_clock.jump(MAX_RETRY)
        while any(each.is_paused for each in life.node.listeners.connections):
            mock_clock.jump(MAX_RETRY)
            await settled()


def committer_of(life: Life) -> Committer:
    committer = life.node.services.committer
    assert committer is not None
    return committer


async def settled() -> None:
    for _ in range(10):
        await wait_all_tasks_blocked()


async def test_clients_that_wait_for_nothing_are_read_from_while_too_much_waits(mock_clock: MockClock) -> None:
    async with Disk().broker(store={"max_uncommitted_bytes": TOTAL}) as life:
        await subscribed(life)
        publisher, _ = await life.stay("publisher")
        other, _ = await life.stay("other")
        await other.subscribe("other")
        await life.node.plugin_stores.committed()
        async with life.full(mock_clock):
            await publish(publisher)
            await settled()
            assert committer_of(life).is_crowded
            await other.publish("other", b"1")
            await other.expect_publish("other", b"1")
            await other.ping()


async def test_what_there_is_room_for_is_acknowledged_in_order(mock_clock: MockClock) -> None:
    """The first of what waits, as much as fits, and no less than a third of the room is used."""
    count, room = 30, 20 * LARGE
    async with Disk().broker() as life:
        await subscribed(life)
        publisher, _ = await life.stay("publisher")
        publisher.patience = 1e9  # the clock jumps
        life.fill()
        for number in range(1, count + 1):
            await publisher.send(raw.publish("t/1", b"x" * LARGE, qos=1, packet_id=number, version=5))
            await settled()
        await life.rests()
        life.fill(room)
        acknowledged: list[int] = []
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def receive() -> None:
                while len(acknowledged) < count:
                    packet = await publisher.receive()
                    assert packet.type == raw.PUBACK
                    acknowledged.append(packet.packet_id)

            for _ in range(3):
                mock_clock.jump(MAX_RETRY)
                await settled()
                await life.rests()
            some = len(acknowledged)
            assert room // LARGE // 3 <= some < room // LARGE
            life.free()
            while len(acknowledged) < count:
                mock_clock.jump(MAX_RETRY)
                await settled()
        assert acknowledged == list(range(1, count + 1))


async def test_what_waits_fits_into_a_small_store_once_its_messages_are_delivered(
    mock_clock: MockClock, tmp_path: Path
) -> None:
    size, count = 1 << 20, 60
    disk = Disk(lambda: SqliteEngine(tmp_path / "a.db", max_size=size))
    async with disk.broker(store={"max_size": size}) as life:
        await subscribed(life)
        publisher, _ = await life.stay("publisher")
        publisher.patience = 1e9  # the clock jumps
        for number in range(1, count + 1):
            await publisher.send(raw.publish("t/1", b"x" * 50_000, qos=1, packet_id=number, version=5))
        while not committer_of(life).is_crowded:
            await life.rests()
            mock_clock.jump(MAX_RETRY)
            await settled()
        subscriber, _ = await life.stay("subscriber")
        subscriber.patience = 1e9
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def receive() -> None:
                for _ in range(count):
                    await subscriber.take_publish("t/1", b"x" * 50_000, qos=1)

            @nursery.start_soon
            async def acknowledged() -> None:
                for number in range(1, count + 1):
                    packet = await publisher.receive()
                    assert (packet.type, packet.packet_id) == (raw.PUBACK, number)
                nursery.cancel_scope.cancel()

            for _ in range(100):
                await life.rests()
                mock_clock.jump(MAX_RETRY)
                await settled()
            pytest.fail("something waits for ever")
    disk.engine.close()
