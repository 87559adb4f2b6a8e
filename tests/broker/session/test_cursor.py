"""Sessions that are behind: what comes while the client is away, or reads slowly."""

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.lowlevel

from tests.broker.disk import Disk, Life
from tests.conformance import raw
from tests.wire import Wire
from trunkline.broker.backlogs.backlog import Membership
from trunkline.broker.backlogs.rows import ENTRIES, FILTERS, Entry
from trunkline.broker.routes import Subscriber
from trunkline.broker.session.cursor import BacklogCursor, Piece
from trunkline.broker.stored_publications import MESSAGES
from trunkline.hooks import Hooks
from trunkline.mqtt.message import Message
from trunkline.mqtt.weight import HEAVY
from trunkline.router import Options, Target


async def leave(life: Life, client_id: str, *subscriptions: tuple[str, int]) -> None:
    wire, _ = await life.stay(client_id)
    await wire.subscribe(*subscriptions)
    await wire.abort()
    await settled(life)


async def settled(life: Life) -> None:
    """The sessions have seen that their clients have gone."""
    await until(lambda: not any(each.channel for each in life.node.sessions if each.session.subscriptions))
    await life.node.scheduler.drained()


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(60):
        while not condition():  # noqa: ASYNC110 - nothing tells
            await trio.sleep(0.01)


async def publish(life: Life, topic: str, *payloads: bytes, qos: int = 1) -> None:
    publisher, _ = await life.stay("publisher", expiry=0)
    for payload in payloads:
        await publisher.publish(topic, payload, qos=qos)
    await publisher.abort()


async def messages(wire: Wire, count: int) -> list[bytes]:
    """The next messages, which are acknowledged."""
    got: list[bytes] = []
    while len(got) < count:
        packet = await wire.receive()
        if packet.type == raw.PUBLISH:
            got.append(packet.payload)
            if packet.qos == 1:
                await wire.send(raw.ack(raw.PUBACK, packet.packet_id))
            elif packet.qos == 2:
                await wire.send(raw.ack(raw.PUBREC, packet.packet_id))
        elif packet.type == raw.PUBREL & 0xF0:
            await wire.send(raw.ack(raw.PUBCOMP, packet.packet_id))
    return got


async def nothing_more(wire: Wire) -> None:
    """But for the ends of exchanges."""
    await wire.send(raw.PINGREQ)
    while (packet := await wire.receive()).type != raw.PINGRESP[0]:
        assert packet.type == raw.PUBREL & 0xF0, packet


async def test_a_message_for_many_is_stored_once() -> None:
    disk = Disk()
    async with disk.broker() as life:
        for number in range(20):
            await leave(life, f"away {number}", ("t/#", 1))
        await publish(life, "t/1", b"a", b"b")
        assert (disk.engine.count(MESSAGES), disk.engine.count(ENTRIES), disk.engine.count(FILTERS)) == (2, 2, 1)
        for number in range(20):
            session = life.node.sessions.get(f"away {number}")
            assert session is not None
            assert session.session.cursor is not None
            assert (session.session.queue.length, session.session.cursor.waiting) == (0, 2)


async def test_it_goes_on_live_without_a_gap_or_a_duplicate() -> None:
    disk = Disk()
    async with disk.broker(session={"max_queue_length": 0}) as life:
        await leave(life, "away", ("t", 1), ("other", 1))
        publisher, _ = await life.stay("publisher")
        count = 400
        got: list[bytes] = []

        async def feed() -> None:
            for number in range(count):
                await publisher.publish("t", b"%04d" % number, qos=1)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(feed)
            for _ in range(4):
                wire, _ = await life.stay("away")
                got += await messages(wire, 50)
                await wire.abort()
            wire, _ = await life.stay("away")
            while not got or got[-1] != b"%04d" % (count - 1):
                got += await messages(wire, 1)
        # only what was not acknowledged before a disconnection may come again
        assert list(dict.fromkeys(got)) == [b"%04d" % number for number in range(count)]
        session = life.node.sessions.get("away")
        assert session is not None
        await publisher.publish("t", b"live", qos=1)
        assert await messages(wire, 1) == [b"live"]
        assert session.session.cursor is not None
        assert not session.session.cursor.waits
        await nothing_more(wire)


async def test_what_nobody_needs_any_more_is_deleted() -> None:
    disk = Disk()
    async with disk.broker() as life:
        for name in ("one", "two"):
            await leave(life, name, ("t/#", 1), ("+/x", 1))
        await publish(life, "t/x", *[b"%d" % number for number in range(50)])
        assert disk.engine.count(ENTRIES) == 100
        one, _ = await life.stay("one")
        assert len(await messages(one, 50)) == 50
        await one.ping()
        assert disk.engine.count(MESSAGES) >= 50  # the other one needs them
        two = await life.wire()
        await two.connect("two", clean=True)
        await until(lambda: not any(map(disk.engine.count, (ENTRIES, MESSAGES, FILTERS))))


async def test_what_waits_in_backlogs_is_counted() -> None:
    disk = Disk()
    async with disk.broker() as life:
        await leave(life, "away", ("t", 1))
        await publish(life, "t", b"12345", b"12345")
        (row,) = life.admin.clients.page()
        assert row.queued == 2
        assert row.queued_bytes >= 10
        figures = await life.node.figures()
        assert figures["queue.count"] == 2
        assert figures["queue.bytes"] == row.queued_bytes


async def test_what_is_left_behind_a_cut_is_counted() -> None:
    disk = Disk()
    async with disk.broker(session={"max_queue_length": 10}) as life:
        await leave(life, "away", ("t", 1))
        await publish(life, "t", *[b"%03d" % number for number in range(300)])
        await until(lambda: disk.engine.count(ENTRIES) <= 30)
        session = life.node.sessions.get("away")
        assert session is not None
        await until(lambda: session.session.waiting[0] <= 20)
        length, byte_size = session.session.waiting
        weight = Message("t", b"000").weight
        assert byte_size in (length * weight, (length + 1) * weight)  # the first one may be dropped already


async def test_what_was_dropped_is_dropped_once_also_over_a_restart() -> None:
    heard: list[bytes] = []
    hooks = Hooks()
    hooks.add("message.dropped", lambda client, message, reason: heard.append(message.payload))
    payloads = [b"%02d" % number for number in range(40)]
    disk = Disk()
    async with disk.broker(hooks=hooks, session={"max_queue_length": 10}, stops=True) as life:
        await leave(life, "away", ("t/#", 1), ("+/x", 1))
        await publish(life, "t/x", *payloads)
        await until(lambda: len(heard) >= 10)
    async with disk.broker(hooks=hooks, session={"max_queue_length": 10}) as life:
        wire, _ = await life.stay("away")
        assert await messages(wire, 10) == payloads[-10:]
        await nothing_more(wire)
    assert heard == payloads[:-10]


async def test_a_retained_message_comes_before_what_waits_behind_it() -> None:
    disk = Disk()
    async with disk.broker() as life:
        publisher, _ = await life.stay("publisher")
        await publisher.publish("u", b"retained", qos=1, retain=True)
        await leave(life, "away", ("t", 1))
        await publish(life, "t", b"1", b"2")
        wire = await life.wire()
        await wire.connect("away", clean=False, properties=raw.session_expiry(1000) + raw.receive_maximum(1))
        first = await wire.receive()
        await wire.send(raw.subscribe(1, ("+", 1), ("u", 1)))
        await wire.expect_type(raw.SUBACK)
        await publish(life, "u", b"live")
        await wire.send(raw.ack(raw.PUBACK, first.packet_id))
        got = await messages(wire, 4)
        assert [payload for payload in got if payload != b"retained"] == [b"2", b"live"]
        assert got.index(b"retained") < got.index(b"live")


@pytest.mark.parametrize(("weight", "together"), [(HEAVY - 1, 3), (HEAVY, 1)])
def test_as_much_leaves_together_as_there_is_room_for_and_what_is_heavy_alone(weight: int, together: int) -> None:
    cursor = BacklogCursor(cast("Any", None), cast("Any", None), lambda: None, lambda: None)
    target = Target(Subscriber("a", lambda message: None), Options(1))
    publication = Parts(range(5), weight)
    cursor.page.append(Piece(7, 0, cast("Any", publication), target, ()))
    assert cursor.take(0, 0.0) == ()
    assert cursor.position == (7, 0)
    ((taken, to, delivery, packet_id),) = cursor.take(3, 0.0)
    assert (list(cast("Parts", taken).numbers), to, delivery, packet_id) == ([*range(together)], target, "waited", 0)
    assert cursor.position == (7, together)
    rest = [cast("Parts", taken) for _ in range(5) for (taken, *_) in cursor.take(9, 0.0)]
    assert [number for part in rest for number in part.numbers] == [*range(together, 5)]
    assert cursor.position == (1, 0)


@dataclass
class Parts:
    """A publication of messages that weigh this."""

    numbers: range
    each: int

    @property
    def count(self) -> int:
        return len(self.numbers)

    @property
    def weight(self) -> int:
        return self.count * self.each

    def part(self, first: int, stop: int) -> "Parts":
        return Parts(self.numbers[first:stop], self.each)


def test_an_entry_of_two_backlogs_that_are_read_one_after_the_other_comes_once() -> None:
    cursor = BacklogCursor(cast("Any", None), cast("Any", None), lambda: None, lambda: None)
    target = Target(Subscriber("a", lambda message: None), Options(1))
    backlog: Any = type("Backlog", (), {"total": 0, "total_weight": 0})()
    members = {number: Membership(backlog, cursor, 0) for number in (1, 2)}
    cursor.members = cast("Any", SimpleNamespace(find=members.get, target=lambda publication, sequence: target))
    entry = Entry(5, 1, 0, 1, 600, 1, 600)
    for number in members:
        cursor.add(Message("t", b"", 1), ((number, entry),))
    assert [piece.sequence for piece in cursor.page] == [5]
    assert [(member.read, member.total) for member in members.values()] == [(5, 1), (5, 1)]
    cursor.rewind()
    assert (cursor.page, cursor.position, members[1].read) == ([], (5, 0), 0)
