"""Sessions that outlive the broker: the power fails at each of its commits, before it and after it."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.broker.disk import Disk, Life
from tests.conformance import raw
from tests.story import Story, check, finish, told
from tests.wire import Wire
from trunkline.broker.metrics import DropReason
from trunkline.broker.node.opening import open_node
from trunkline.config.reader import from_mapping
from trunkline.hooks import ClientInfo, Hooks
from trunkline.mqtt.message import Message
from trunkline.store import Engine, WriteBatch
from trunkline.store.engine import rows
from trunkline.store.memory import MemoryEngine
from trunkline.store.sqlite import SqliteEngine

#: More than any of the stories below takes.
MAX_COMMITS = 300


async def away(story: Story) -> None:
    """The subscriber is away."""
    leaves = await story.connect(story.subscriber)
    await story.subscriber.subscribe("t/#")
    leaves.cancel()
    await story.connect(story.publisher)
    await story.publish(1, 1, 2, 2, 1)
    await story.publisher.answered()


async def there(story: Story) -> None:
    """The subscriber is there and quick."""
    await story.connect(story.subscriber)
    await story.subscriber.subscribe("t/#")
    await story.connect(story.publisher)
    for _ in range(3):
        await story.publish(1, 2)
        await story.publisher.answered()
        await story.subscriber.received(story.number)
        await story.subscriber.released()


async def slow(story: Story) -> None:
    """The subscriber gets messages and does not acknowledge them."""
    story.subscriber.mute = True
    await story.connect(story.subscriber)
    await story.subscriber.subscribe("t/#")
    await story.connect(story.publisher)
    await story.publish(1, 2, 1, 2)
    await story.publisher.answered()


async def in_bursts(story: Story) -> None:
    leaves = await story.connect(story.subscriber)
    await story.subscriber.subscribe("t/#")
    await story.connect(story.publisher)
    for qos in (1, 2):
        await story.burst(qos, 20)
        await story.publisher.answered(10)
    leaves.cancel()
    for qos in (1, 2):
        await story.burst(qos, 20)
        await story.publisher.answered()


async def coming_and_going(story: Story) -> None:
    for _ in range(3):
        leaves = await story.connect(story.subscriber)
        await story.subscriber.subscribe("t/#")
        goes = await story.connect(story.publisher)
        await story.publish(2, 1)
        await story.publisher.answered(1)
        leaves.cancel()
        await story.publish(2, 1)
        await story.publisher.answered(1)
        goes.cancel()


STORIES = (away, there, slow, in_bursts, coming_and_going)


@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("tell", STORIES)
async def test_the_power_fails_at_each_commit(tell: Callable[[Story], Awaitable[None]], applied: bool) -> None:
    for cut_at in range(MAX_COMMITS):
        disk, story = Disk(), Story()
        async with disk.broker(cut_at, applied=applied) as life:
            whole = await told(story, tell, life)
        async with disk.broker() as life:
            with trio.fail_after(60):
                assert await told(story, finish, life)
        check(story)
        if whole:
            return
    pytest.fail("more commits than expected")


async def test_nothing_is_acknowledged_twice_before_it_is_stored_once() -> None:
    disk = Disk()
    async with disk.broker() as life:
        subscriber, _ = await life.stay("subscriber")
        await subscriber.subscribe("t")
        await subscriber.abort()
        publisher, _ = await life.stay("publisher")
        await publisher.send(raw.publish("t", b"stored", qos=2, packet_id=1))
        await publisher.expect_type(raw.PUBREC)
        life.fill()
        await publisher.send(raw.publish("t", b"not stored", qos=2, packet_id=2), raw.ack(raw.PUBREL, 1))
        await publisher.expect_nothing()
        await publisher.abort()
        again, present = await life.stay("publisher")
        assert present
        await again.send(raw.publish("t", b"not stored", qos=2, packet_id=2, dup=True), raw.ack(raw.PUBREL, 1))
        await again.expect_nothing()
        life.free()
        answers = {(packet.type, packet.packet_id) for packet in [await again.receive() for _ in range(2)]}
        assert answers == {(raw.PUBREC, 2), (raw.PUBCOMP, 1)}


async def queued(life: Life, client: str = "subscriber", maximum: int = 100) -> list[tuple[str, bytes]]:
    """What a client gets that does not acknowledge."""
    wire = await life.wire()
    properties = raw.session_expiry(1000) + raw.receive_maximum(maximum)
    await wire.connect(client, clean=False, properties=properties)
    await wire.send(raw.PINGREQ)
    got: list[tuple[str, bytes]] = []
    with trio.move_on_after(0.2):  # a broker that sends more than it should has this time for it
        while True:
            packet = await wire.receive()
            if packet.type == 0x30:
                got.append((packet.topic, packet.payload))
    return got


async def test_priorities_that_have_changed_lose_nothing() -> None:
    disk = Disk()
    async with disk.broker() as life:
        wire, _ = await life.stay("subscriber")
        await wire.subscribe(("#", 1))
        await wire.abort()
        publisher, _ = await life.stay("publisher")
        await publisher.send(
            *[raw.publish("ab"[number % 2], b"%02d" % number, qos=1, packet_id=number + 1) for number in range(20)]
        )
        for _ in range(20):
            await publisher.expect_type(raw.PUBACK)
    for _ in range(2):
        async with disk.broker(session={"priorities": {"a": 9}}) as life:
            # what waited before keeps its order
            assert [payload for _, payload in await queued(life)] == [b"%02d" % number for number in range(20)]


async def test_limits_that_were_lowered_take_nothing_that_was_taken_over() -> None:
    disk = Disk()
    async with disk.broker() as life:
        publisher, _ = await life.stay("publisher")
        for number in range(1, 6):
            await publisher.send(raw.publish("t", b"", qos=2, packet_id=number))
            await publisher.expect_type(raw.PUBREC)
    async with disk.broker(session={"max_awaiting_rel": 2}) as life:
        session = life.node.sessions.get("publisher")
        assert session is not None
        assert len(session.session.awaiting_rel) == 5


async def test_what_a_hook_makes_of_a_message_is_stored_before_it_is_acknowledged() -> None:
    disk = Disk()
    async with disk.broker() as life:

        def change(client: ClientInfo, message: Message) -> Message:
            return replace(message, payload=b"changed")

        life.node.hooks.add("message.deliver", change)
        subscriber, _ = await life.stay("subscriber")
        await subscriber.subscribe(("t", 1))
        publisher, _ = await life.stay("publisher")
        life.fill()
        await publisher.send(raw.publish("t", b"", qos=1, packet_id=1))
        assert (await subscriber.receive()).payload == b"changed"
        await publisher.expect_nothing()
        life.free()
        await publisher.expect_type(raw.PUBACK)
    async with disk.broker() as life:
        assert await queued(life) == [("t", b"changed")]


async def test_members_of_a_group_whose_qos_is_raised() -> None:
    disk = Disk()
    async with disk.broker(session={"upgrade_qos": True}) as life:
        for name in "abc":
            wire, _ = await life.stay(name)
            await wire.subscribe(("$share/g/t", 1))
        publisher, _ = await life.stay("publisher")
        life.node.sessions.get("publisher")
        await publisher.send(b"".join(raw.publish("t", b"%02d" % number) for number in range(30)))
        await publisher.subscribe("done")  # a commit
    async with disk.broker(session={"upgrade_qos": True}) as life:
        got = [payload for name in "abc" for _, payload in await queued(life, name)]
        assert sorted(got) == [b"%02d" % number for number in range(30)]


async def test_what_a_lowered_limit_and_the_time_drop_at_a_restart_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk()
    async with disk.broker() as life:
        wire, _ = await life.stay("subscriber", expiry=5000)
        await wire.subscribe(("t", 1))
        await wire.abort()
        publisher, _ = await life.stay("publisher")
        for number in range(1, 7):
            properties = raw.message_expiry(1000) if number == 6 else b""
            await publisher.publish("t", b"%d" % number, qos=1, properties=properties)
    later = time.time() + 2000
    monkeypatch.setattr(time, "time", lambda: later)
    gone: list[tuple[bytes, str]] = []
    hooks = Hooks()

    def note(client: ClientInfo, message: Message, reason: str) -> None:
        gone.append((message.payload, reason))

    hooks.add("message.dropped", note)
    async with disk.broker(hooks=hooks, session={"max_queue_length": 3}) as life:
        assert await queued(life) == [("t", b"4"), ("t", b"5")]
        assert gone == [(b"1", "queue_full"), (b"2", "queue_full"), (b"3", "queue_full"), (b"6", "expired")]
        dropped = life.node.metrics.dropped
        assert (dropped[DropReason.QUEUE_FULL], dropped[DropReason.EXPIRED]) == (3, 1)


async def test_attributes_that_a_plugin_sets_later_are_there_after_a_restart() -> None:
    disk = Disk()
    async with disk.broker() as life:
        wire, _ = await life.stay("a")
        session = life.node.sessions.get("a")
        assert session is not None
        session.client.attributes["tenant"] = "x"
        await wire.subscribe(("t", 1))
    async with disk.broker() as life:
        session = life.node.sessions.get("a")
        assert session is not None
        assert session.client.attributes == {"tenant": "x"}


async def test_a_client_that_is_owed_many_answers_is_not_read_from() -> None:
    """Of version 3.1.1: no receive maximum ends it."""
    disk = Disk()
    async with disk.broker(mqtt={"receive_maximum": 10}) as life:
        subscriber, _ = await life.stay("subscriber")
        await subscriber.subscribe("t")
        await subscriber.abort()
        other = await life.wire()
        await other.connect("other")
        received = life.node.metrics.messages_in

        async def publish() -> Wire:
            before = received[1]
            publisher = await life.wire(version=4)
            await publisher.connect("publisher", clean=False)
            for number in range(1, 31):
                await publisher.send(raw.publish("t", b"", qos=1, packet_id=number, version=4))
                await other.ping()
            assert received[1] - before == 11
            return publisher

        await (await life.wire(version=4)).connect("publisher", clean=False)
        life.fill()
        await publish()
        publisher = await publish()  # nothing is owed to this connection for the other one
        life.free()
        for number in range(1, 31):
            assert (await publisher.expect_type(raw.PUBACK)).packet_id == number
        assert received[1] == 11 + 30


async def test_a_message_of_qos_2_is_not_repeated_before_its_packet_id_is_stored(mock_clock: MockClock) -> None:
    disk = Disk()
    async with disk.broker(session={"retry_interval": 5}) as life:
        subscriber = await life.wire(version=4)
        await subscriber.connect("subscriber", clean=False)
        await subscriber.subscribe(("t", 2))
        life.fill()
        life.node.messages.publish("t", b"", qos=2)
        for _ in range(3):
            mock_clock.jump(6)
            await subscriber.expect_nothing()
        again = await life.wire(version=4)
        await again.connect("subscriber", clean=False)
        await again.expect_nothing()
        await life.make_room(mock_clock)
        packet = await again.receive()
        assert (packet.type, packet.packet_id) == (raw.PUBLISH, 1)


async def test_messages_of_qos_1_are_repeated_to_a_new_connection_whatever_the_store_does() -> None:
    disk = Disk()
    async with disk.broker() as life:
        subscriber, _ = await life.stay("subscriber")
        await subscriber.subscribe(("t", 1))
        life.fill()
        life.node.messages.publish("t", b"", qos=1)
        assert not (await subscriber.receive()).dup
        again, _ = await life.stay("subscriber")
        assert (await again.receive()).dup


async def test_a_start_that_is_cancelled_at_any_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.broker.node.storing.RESTORED_AT_ONCE", 1)
    disk = Disk()
    async with disk.broker() as life:
        for number in range(4):
            wire, _ = await life.stay(f"client {number}")
            await wire.subscribe(("t", 1))
            await wire.publish(f"kept/{number}", b"x", qos=1, retain=True)
    has_started = False
    opened = closed = 0

    class Counted(MemoryEngine):
        def close(self) -> None:
            nonlocal closed
            closed += 1

    def open_engine() -> Engine:
        nonlocal opened
        opened += 1
        return engine

    engine = Counted()
    for space in disk.engine.spaces():
        for key, value in rows(disk.engine, space):
            batch = WriteBatch()
            batch.put(space, key, value)
            engine.commit(batch)
    config = from_mapping({"listeners": [], "sys": {"interval": 0}})
    for checkpoints in range(1000):
        scope = trio.CancelScope()

        async def run(scope: trio.CancelScope = scope) -> None:
            nonlocal has_started
            with scope:
                async with open_node(config, grace=0, open_store=open_engine):
                    has_started = True

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            for _ in range(checkpoints):
                await trio.lowlevel.checkpoint()
            scope.cancel()
        if has_started:
            break
    assert has_started
    assert opened == closed > 10


async def test_clients_that_take_their_messages_make_room_in_a_full_store(tmp_path: Path) -> None:
    disk = Disk(lambda: SqliteEngine(tmp_path / "a.db", durability="os", max_size=1 << 20))
    async with disk.broker() as life:
        subscriber, _ = await life.stay("subscriber")
        await subscriber.subscribe(("t", 1))
        await subscriber.abort()
        other = await life.wire()
        await other.connect("other")
        publisher = await life.wire()
        await publisher.connect("publisher")
        number = 0
        while not life.node.alarms.active:
            number += 1
            await publisher.send(raw.publish("t", bytes(20_000), qos=1, packet_id=number))
            await other.ping()
        assert number > 20
        subscriber, _ = await life.stay("subscriber")
        for _ in range(number):
            packet = await subscriber.receive()
            await subscriber.send(raw.ack(raw.PUBACK, packet.packet_id))
        for packet_id in range(1, number + 1):
            assert (await publisher.expect_type(raw.PUBACK)).packet_id == packet_id
        with trio.fail_after(60):
            while life.node.alarms.active:
                await trio.lowlevel.checkpoint()
    disk.engine.close()
