"""Sessions that are behind: what comes while the client is away, or reads slowly."""

from collections import Counter
from collections.abc import Callable

import pytest
import trio
import trio.lowlevel
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.broker.disk import Disk, Life
from tests.conformance import raw
from tests.wire import Wire
from trunkline.broker.backlogs.rows import ENTRIES, FILTERS
from trunkline.broker.committer import MESSAGES
from trunkline.broker.metrics import DropReason
from trunkline.broker.views import client_rows
from trunkline.hooks import Hooks
from trunkline.mqtt.message import Message


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
            assert session.session.behind is not None
            assert (session.session.queue.length, session.session.behind.waiting) == (0, 2)


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("restart", [False, True])
async def test_overlapping_filters_give_each_message_once_and_in_order(restart: bool, qos: int) -> None:
    disk = Disk()
    topics = ["a", "a/b", "a/b/c", "b", "a/b"]
    payloads = [b"%02d" % number for number in range(30)]
    async with disk.broker() as life:
        await leave(life, "away", ("a/#", qos), ("+/b", qos), ("a/b/c", qos), ("b", 0))
        for number, payload in enumerate(payloads):
            await publish(life, topics[number % len(topics)], payload, qos=qos)
        if not restart:
            wire, _ = await life.stay("away")
            got = await messages(wire, 30)
            assert got == payloads
            assert sorted(got) == payloads
            await nothing_more(wire)
            return
    async with disk.broker() as life:
        wire, _ = await life.stay("away")
        assert await messages(wire, 24) == [payload for payload in payloads if int(payload) % 5 != 3]
        await nothing_more(wire)


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
        assert not session.session.behind
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


async def test_the_limit_is_kept_when_the_client_is_back() -> None:
    disk = Disk()
    async with disk.broker(session={"max_queue_length": 10}) as life:
        await leave(life, "away", ("t/#", 1), ("+/x", 1))
        await leave(life, "simple", ("t/#", 1))
        await publish(life, "t/x", *[b"%03d" % number for number in range(100)])
        for name in ("away", "simple"):
            wire, _ = await life.stay(name)
            assert await messages(wire, 10) == [b"%03d" % number for number in range(90, 100)]
            await nothing_more(wire)
        assert life.node.metrics.dropped[DropReason.QUEUE_FULL] == 180


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("limit", ["max_queue_length", "max_queue_bytes"])
@given(qos=st.lists(st.integers(0, 2), max_size=24), filters=st.sampled_from([("t",), ("t", "+", "#")]))
@settings(max_examples=12)
@example(qos=[1, 1, 1, 1, 0, 0, 0, 0], filters=("t",))
@example(qos=[0, 0, 0, 0, 1, 1, 1, 1], filters=("t", "+", "#"))
@example(qos=[0] * 5 + [2] * 13 + [0], filters=("t",))
def test_one_limit_holds_for_what_waits_in_the_memory_and_in_the_store(
    stored: bool, limit: str, qos: list[int], filters: tuple[str, ...]
) -> None:
    waiting: list[tuple[int, bytes]] = []
    dropped: list[bytes] = []
    for number, each in enumerate(qos):
        waiting.append((each, b"%02d" % number))
        if len(waiting) > 5:
            oldest = next((place for place, (other, _) in enumerate(waiting) if not other), 0)
            dropped.append(waiting.pop(oldest)[1])

    async def run() -> None:
        heard: list[bytes] = []
        hooks = Hooks()
        hooks.add("message.dropped", lambda client, message, reason: heard.append(message.payload))
        bound = 5 if limit == "max_queue_length" else 5 * Message("t", b"00").weight
        store = {} if stored else {"durability": "memory"}
        async with Disk().broker(hooks=hooks, session={limit: bound}, store=store) as life:
            await leave(life, "away", *[(filter, 2) for filter in filters])
            publisher, _ = await life.stay("publisher", expiry=0)
            for number, each in enumerate(qos):
                await publisher.publish("t", b"%02d" % number, qos=each)
            await publisher.ping()
            wire, _ = await life.stay("away")
            assert await messages(wire, len(waiting)) == [payload for _, payload in waiting]
            await nothing_more(wire)
            assert sorted(heard) == sorted(dropped)
            assert life.node.metrics.dropped[DropReason.QUEUE_FULL] == len(dropped)

    trio.run(run)


async def test_much_more_than_the_limit_is_never_stored() -> None:
    disk = Disk()
    async with disk.broker(session={"max_queue_length": 10}) as life:
        await leave(life, "away", ("t", 1))
        await publish(life, "t", *[b"%03d" % number for number in range(300)])
        await until(lambda: disk.engine.count(ENTRIES) <= 30)


async def test_an_ended_subscription_gives_nothing_more() -> None:
    disk = Disk()
    async with disk.broker() as life:
        await leave(life, "away", ("t", 1), ("u", 1))
        await publish(life, "t", b"t")
        await publish(life, "u", b"u")
        session = life.node.sessions.get("away")
        assert session is not None
        assert life.node.host.unsubscribe_client("away", ["t"])
        await life.node.scheduler.drained()
        await publish(life, "t", b"t")
        wire, _ = await life.stay("away")
        assert await messages(wire, 1) == [b"u"]
        await nothing_more(wire)


async def test_a_slow_client_falls_behind_and_catches_up() -> None:
    disk = Disk()
    settings = {"max_queue_length": 400, "backpressure": 0.01}
    async with disk.broker(session=settings) as life:
        wire = await life.wire()
        await wire.connect("slow", clean=False, properties=raw.session_expiry(1000) + raw.receive_maximum(1))
        await wire.subscribe(("t", 1))
        publisher, _ = await life.stay("publisher")
        for number in range(350):
            await publisher.send(raw.publish("t", b"%03d" % number, qos=1, packet_id=number + 1))
        session = life.node.sessions.get("slow")
        assert session is not None
        got = Counter(await messages(wire, 350))
        assert got == Counter(b"%03d" % number for number in range(350))
        assert session.session.queue.length == 0


async def test_what_waits_in_backlogs_is_counted() -> None:
    disk = Disk()
    async with disk.broker() as life:
        await leave(life, "away", ("t", 1))
        await publish(life, "t", b"12345", b"12345")
        (row,) = client_rows(life.node.sessions)
        assert row.queued == 2
        assert row.queued_bytes >= 10
        figures = await life.node.figures()
        assert figures["queue.count"] == 2
        assert figures["queue.bytes"] == row.queued_bytes


async def test_a_new_subscription_while_messages_wait() -> None:
    """Its route is made after the session knows of it."""
    disk = Disk()
    async with disk.broker() as life:
        await leave(life, "away", ("t", 1))
        await publish(life, "t", b"1")
        wire = await life.wire()
        await wire.connect("away", clean=False, properties=raw.session_expiry(1000) + raw.receive_maximum(1))
        first = await wire.receive()
        await publish(life, "t", b"2")
        await wire.subscribe(("u", 1))
        await publish(life, "u", b"3")
        await wire.send(raw.ack(raw.PUBACK, first.packet_id))
        assert sorted(await messages(wire, 2)) == [b"2", b"3"]
        await nothing_more(wire)


@pytest.mark.parametrize("restart", [False, True])
async def test_a_new_subscription_has_no_part_in_what_came_before_it(restart: bool) -> None:
    """Though its filter has a backlog, in which that stands for another session."""
    disk = Disk()
    async with disk.broker() as life:
        await leave(life, "other", ("#", 1))
        wire, _ = await life.stay("away")
        await wire.subscribe(("t", 1), properties=raw.subscription_identifier(1))
        await wire.abort()
        await settled(life)
        await publish(life, "t", b"1", b"2")
        wire = await life.wire()
        await wire.connect("away", clean=False, properties=raw.session_expiry(1000) + raw.receive_maximum(1))
        await wire.expect_type(raw.PUBLISH)
        await wire.subscribe(("#", 1), properties=raw.subscription_identifier(2))
        await wire.abort()
        await settled(life)
        await publish(life, "t", b"3")
        if not restart:
            await expect_identifiers(life)
    if restart:
        async with disk.broker() as life:
            await expect_identifiers(life)


async def expect_identifiers(life: Life) -> None:
    wire, _ = await life.stay("away")
    for payload, identifiers in ((b"1", {1}), (b"2", {1}), (b"3", {1, 2})):
        packet = await wire.expect_publish("t", payload, qos=1)
        assert set(packet.all(0x0B)) == identifiers, payload
        await wire.send(raw.ack(raw.PUBACK, packet.packet_id))


async def test_a_subscription_that_is_lowered_to_qos_0_loses_nothing() -> None:
    disk = Disk()
    async with disk.broker() as life:
        await leave(life, "away", ("t", 1))
        await publish(life, "t", b"1", b"2")
        wire = await life.wire()
        await wire.connect("away", clean=False, properties=raw.session_expiry(1000) + raw.receive_maximum(1))
        first = await wire.receive()
        await wire.subscribe(("t", 0))  # [MQTT-3.8.4-4]
        await wire.send(raw.ack(raw.PUBACK, first.packet_id))
        assert await messages(wire, 1) == [b"2"]
        await nothing_more(wire)


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


@pytest.mark.parametrize("restart", [False, True])
async def test_a_burst_that_is_released_in_parts(restart: bool) -> None:
    disk = Disk()
    async with disk.broker() as life:
        await leave(life, "subscriber", ("t", 2))
        publisher, _ = await life.stay("publisher")
        await publisher.send(*[raw.publish("t", b"%d" % number, qos=2, packet_id=number) for number in (1, 2, 3)])
        for _ in range(3):
            await publisher.expect_type(raw.PUBREC)
        for number in (1, 2, 3):  # each in a commit of its own
            await publisher.send(raw.ack(raw.PUBREL, number))
            await publisher.expect_type(raw.PUBCOMP)
        if not restart:
            subscriber, _ = await life.stay("subscriber")
            assert await messages(subscriber, 3) == [b"1", b"2", b"3"]
            return
    async with disk.broker() as life:
        subscriber, _ = await life.stay("subscriber")
        assert await messages(subscriber, 3) == [b"1", b"2", b"3"]


async def test_what_is_dropped_of_a_burst_is_told_message_by_message() -> None:
    heard: list[bytes] = []
    hooks = Hooks()
    hooks.add("message.dropped", lambda client, message, reason: heard.append(message.payload))
    payloads = [b"%02d" % number for number in range(25)]
    async with Disk().broker(hooks=hooks, session={"max_queue_length": 7}) as life:
        await leave(life, "away", ("t", 1), ("#", 1))
        publisher, _ = await life.stay("publisher", expiry=0)
        await publisher.send(*[raw.publish("t", payload, qos=1, packet_id=1 + int(payload)) for payload in payloads])
        for _ in payloads:
            await publisher.expect_type(raw.PUBACK)
        wire, _ = await life.stay("away")
        assert await messages(wire, 7) == payloads[-7:]
        await nothing_more(wire)
        assert heard == payloads[:-7]


async def test_a_message_comes_with_the_identifiers_of_subscriptions_that_keep_none() -> None:
    disk = Disk()
    async with disk.broker() as life:
        wire, _ = await life.stay("away")
        await wire.subscribe(("t", 1), properties=raw.subscription_identifier(1))
        await wire.subscribe(("+", 0), properties=raw.subscription_identifier(2))
        await wire.subscribe(("other", 0), properties=raw.subscription_identifier(3))
        await wire.abort()
        await settled(life)
        await publish(life, "t", b"x")
        wire, _ = await life.stay("away")
        packet = await wire.expect_publish("t", b"x", qos=1)
        assert set(packet.all(0x0B)) == {1, 2}
