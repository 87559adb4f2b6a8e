"""Subscriptions to streams: what there was, then what comes, once each and in order."""

from datetime import UTC, datetime
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from tests.broker.disk import Disk, Life
from tests.broker.room import Room, room
from tests.conformance import raw
from tests.counting import counted
from tests.wire import Wire
from trunkline.broker.session.actor import SessionActor
from trunkline.broker.session.stream_feed import StreamFeeds
from trunkline.hooks import ALLOW, Allow, ClientInfo, Deny
from trunkline.streams import Retention, StreamConfig

ORDERS = StreamConfig(name="orders", filters=("orders/#",))
FILTER = "$stream/orders/orders/#"
EARLIEST = raw.user_property("from", "earliest")
REFUSED = 0x8F


async def publish(here: Room, first: int, last: int, qos: int = 1) -> None:
    for number in range(first, last):
        here.node.messages.route(
            here.node.messages.message(f"orders/{number % 3}", b"%d" % number, qos, False, {}, "press")
        )


async def payloads(wire: Wire, count: int) -> list[bytes]:
    """So many messages, each acknowledged to the end."""
    got: list[bytes] = []
    open_ones = 0
    while len(got) < count or open_ones:
        packet = await wire.receive()
        if packet.type == raw.PUBLISH:
            got.append(packet.payload)
            open_ones += packet.qos == 2
            if packet.qos:
                await wire.send(raw.ack(raw.PUBACK if packet.qos == 1 else raw.PUBREC, packet.packet_id))
        elif packet.type == raw.PUBREL & 0xF0:
            open_ones -= 1
            await wire.send(raw.ack(raw.PUBCOMP, packet.packet_id))
    return got


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_history_then_live_messages(qos: int, version: int) -> None:
    async with room() as here:
        await here.node.streams.create(ORDERS)
        await publish(here, 0, 100, qos)
        client = await here.client("a", version)
        given = EARLIEST if version == 5 else b""
        assert await client.subscribe((FILTER, qos), properties=given) == [qos]
        await publish(here, 100, 150, qos)
        first = 0 if version == 5 else 100
        assert await payloads(client, 150 - first) == numbers(first, 150)
        await publish(here, 150, 160, qos)
        assert await payloads(client, 10) == numbers(150, 160)
        await client.expect_nothing()


async def test_no_gap_and_no_duplicate_while_others_publish(autojump_clock: MockClock) -> None:
    async with room() as here:
        await here.node.streams.create(ORDERS)
        await publish(here, 0, 300)
        client = await here.client("a", properties=raw.receive_maximum(7))
        await client.subscribe((FILTER, 1), properties=EARLIEST)

        async def go_on() -> None:
            for number in range(300, 900, 5):
                await publish(here, number, number + 5)
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(go_on)
            assert await payloads(client, 900) == numbers(0, 900)
        await client.expect_nothing()


async def test_a_client_that_does_not_acknowledge_costs_its_window_only() -> None:
    async with room() as here:
        await here.node.streams.create(ORDERS)
        await publish(here, 0, 500)
        client = await here.client("a", properties=raw.receive_maximum(5))
        await client.subscribe((FILTER, 1), properties=EARLIEST)
        held = [await client.receive() for _ in range(5)]
        await client.ping()
        session = here.session("a").session
        assert (session.queue.length, len(session.inflight)) == (0, 5)
        for packet in held:
            await client.acknowledge(packet)
        assert await payloads(client, 495) == numbers(5, 500)


@pytest.mark.parametrize(
    ("start", "first"),
    [("earliest", 0), ("latest", 20), ("1", 0), ("15", 14), ("21", 20), ("500", 20), (None, 20)],
)
async def test_where_it_begins(start: str | None, first: int) -> None:
    async with room() as here:
        await here.node.streams.create(ORDERS)
        await publish(here, 0, 20)
        client = await here.client("a")
        await client.subscribe((FILTER, 1), properties=b"" if start is None else raw.user_property("from", start))
        await publish(here, 20, 22)
        assert await payloads(client, 22 - first) == numbers(first, 22)
        await client.expect_nothing()


async def test_it_begins_at_a_time(autojump_clock: MockClock) -> None:
    async with room() as here:
        await here.node.streams.create(ORDERS)
        for number in range(10):
            await trio.sleep(10)
            await publish(here, number, number + 1)
        moment = datetime.fromtimestamp(here.node.wall() - 35, UTC).isoformat()
        client = await here.client("a")
        await client.subscribe((FILTER, 1), properties=raw.user_property("from", moment))
        assert await payloads(client, 4) == numbers(6, 10)


async def test_a_filter_of_the_stream_and_other_subscriptions_beside_it() -> None:
    async with room() as here:
        await here.node.streams.create(ORDERS)
        await publish(here, 0, 9)
        client = await here.client("a")
        properties = EARLIEST + raw.subscription_identifier(7)
        await client.subscribe(("$stream/orders/orders/1", 1), properties=properties)
        assert await payloads(client, 3) == [b"1", b"4", b"7"]
        await client.subscribe(("other", 1), packet_id=2)
        here.node.messages.publish("other", b"live", qos=1)
        await publish(here, 9, 12)
        assert sorted(await payloads(client, 2)) == [b"10", b"live"]
        await client.expect_nothing()


async def test_messages_say_where_they_are_if_they_are_asked() -> None:
    async with room() as here:
        await here.node.streams.create(ORDERS)
        await publish(here, 0, 1)
        client = await here.client("a")
        await client.subscribe((FILTER, 1), properties=EARLIEST + raw.user_property("metadata", "yes"))
        packet = await client.receive()
        assert packet.topic == "orders/0"
        assert [value for _, value in packet.properties] == [
            ("Nats-Stream", "orders"),
            ("Nats-Sequence", "1"),
            ("Nats-Time-Stamp", _moment(here, 1)),
        ]


def _moment(here: Room, sequence: int) -> str:
    piece = here.node.stream_keeper.registry.get("orders").log.find(sequence)
    assert piece is not None
    return datetime.fromtimestamp(piece.time, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


# What is refused


@pytest.mark.parametrize(
    ("filter", "properties", "text"),
    [
        ("$stream/nothing/#", b"", "there is no stream 'nothing'"),
        ("$stream/orders", b"", "has the form $stream/NAME/FILTER"),
        ("$stream//#", b"", "has the form"),
        ("$stream/work/#", b"", "a consumer of a work queue needs"),
        ("$share/g/$stream/orders/#", b"", "has the form"),
        ("$stream/orders/$stream/orders/#", b"", "no topic matches it"),
        (FILTER, raw.user_property("from", "soon"), "neither earliest, latest, a sequence nor a time"),
        (FILTER, raw.user_property("metadata", "1"), "neither yes nor no"),
    ],
)
async def test_what_cannot_be_subscribed(filter: str, properties: bytes, text: str) -> None:
    async with room() as here:
        await here.node.streams.create(ORDERS)
        work = StreamConfig(name="work", filters=("work",), retention=Retention.WORK_QUEUE)
        await here.node.streams.create(work)
        client = await here.client("a")
        await client.send(raw.subscribe(1, (filter, 1), properties=properties))
        suback = await client.expect_type(raw.SUBACK)
        assert suback.reasons == [REFUSED]
        assert text.encode() in suback.data
        assert not here.node.streams.consumers("orders")


async def test_access_is_that_of_the_inner_filter() -> None:
    async with room() as here:

        def check(client: ClientInfo, action: str, topic: str, *_: object) -> Allow | Deny:
            return ALLOW if action == "publish" or topic == "orders/1" else Deny()

        here.broker.hooks.add("client.check_acl", check)
        await here.node.streams.create(ORDERS)
        await publish(here, 0, 6)
        client = await here.client("a")
        assert await client.subscribe((FILTER, 1), properties=EARLIEST) == [0x87]
        assert await client.subscribe(("$stream/orders/#", 1), properties=EARLIEST, packet_id=2) == [0x87]
        assert await client.subscribe(("$stream/orders/orders/1", 1), properties=EARLIEST, packet_id=3) == [1]
        assert await payloads(client, 2) == [b"1", b"4"]


async def test_nobody_publishes_to_a_stream_by_its_subscription() -> None:
    async with room() as here:
        await here.node.streams.create(ORDERS)
        client = await here.client("a")
        await client.subscribe((FILTER, 1))
        await client.send(raw.publish("$stream/orders/orders/1", b"forged", qos=1, packet_id=1))
        await client.expect_disconnect(0x90)


# Ends


async def test_the_consumer_ends_with_the_subscription_and_with_the_session(autojump_clock: MockClock) -> None:
    async with room() as here:
        await here.node.streams.create(ORDERS)
        client = await here.stay("a", expiry=60)
        await client.subscribe((FILTER, 1), ("$stream/orders/orders/1", 1))
        assert [info.config.description for info in here.node.streams.consumers("orders")]
        assert len(here.node.streams.consumers("orders")) == 2
        await client.send(raw.unsubscribe(2, FILTER))
        await client.expect_type(raw.UNSUBACK)
        (left,) = here.node.streams.consumers("orders")
        assert left.config.description == "subscription $stream/orders/orders/1 of the client a"
        await client.disconnect()
        await trio.sleep(30)
        assert len(here.node.streams.consumers("orders")) == 1
        await trio.sleep(60)
        assert not here.node.streams.consumers("orders")


async def test_a_new_session_of_the_same_client_begins_anew() -> None:
    async with room() as here:
        await here.node.streams.create(ORDERS)
        await publish(here, 0, 3)
        for _ in range(2):
            client = await here.client("a")
            await client.subscribe((FILTER, 1), properties=EARLIEST)
            assert await payloads(client, 3) == numbers(0, 3)
            await client.ping()
        assert len(here.node.streams.consumers("orders")) == 1


async def test_a_subscription_that_is_made_again_goes_on() -> None:
    async with room() as here:
        await here.node.streams.create(ORDERS)
        await publish(here, 0, 3)
        client = await here.client("a")
        await client.subscribe((FILTER, 1), properties=EARLIEST)
        assert await payloads(client, 3) == numbers(0, 3)
        await client.subscribe((FILTER, 0), properties=EARLIEST, packet_id=2)
        await publish(here, 3, 4)
        packet = await client.receive()
        assert (packet.payload, packet.qos) == (b"3", 0)


async def test_the_end_of_a_stream_is_no_error() -> None:
    async with room() as here:
        await here.node.streams.create(ORDERS)
        client = await here.client("a")
        await client.subscribe((FILTER, 1))
        await here.node.streams.delete("orders")
        await publish(here, 0, 3)
        await client.expect_nothing()


def test_where_nothing_is_ready_nobody_has_to_come_back() -> None:
    feeds = StreamFeeds(cast("Any", None), cast("Any", None), lambda: None)
    assert feeds.take(10, 0.0) == ()


# Durable sessions


async def test_a_session_goes_on_where_it_was() -> None:
    async with room() as here:
        await here.node.streams.create(ORDERS)
        await publish(here, 0, 10)
        client = await here.stay("a")
        await client.subscribe((FILTER, 1), properties=EARLIEST)
        assert await payloads(client, 10) == numbers(0, 10)
        await client.disconnect()
        await publish(here, 10, 400)
        assert here.session("a").session.queue.length == 0, "what it has still to get waits in the stream"
        again = await here.stay("a")
        assert await payloads(again, 390) == numbers(10, 400)
        await again.expect_nothing()


class Reader:
    """A client that reads a stream and is killed with its broker. What it has got counts once at QoS 2."""

    def __init__(self, qos: int) -> None:
        self.qos = qos
        self.got: list[bytes] = []

    async def live(self, life: Life, over: trio.Event) -> None:
        wire, _ = await life.stay("a")
        await wire.send(raw.subscribe(1, (FILTER, self.qos), properties=EARLIEST))  # again, it goes on
        while b"29" not in self.got:
            packet = await wire.receive()
            if packet.type == raw.PUBLISH:
                self.got.append(packet.payload)
                await wire.send(raw.ack(raw.PUBACK if self.qos == 1 else raw.PUBREC, packet.packet_id))
            elif packet.type == raw.PUBREL & 0xF0:
                await wire.send(raw.ack(raw.PUBCOMP, packet.packet_id))
        over.set()


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("cut_at", [2, 4, 6])
@pytest.mark.parametrize("qos", [1, 2])
async def test_a_session_goes_on_where_it_was_after_a_power_cut(qos: int, cut_at: int, applied: bool) -> None:
    disk, reader = Disk(), Reader(qos)
    async with disk.broker() as life:
        await life.node.streams.create(ORDERS)
        for number in range(30):
            await life.node.streams.publish("orders/1", b"%d" % number, qos=qos)
    for cut in (cut_at, None):
        async with disk.broker(cut, applied=applied) as life, trio.open_nursery() as nursery:
            over = trio.Event() if cut is None else life.cut_off
            nursery.start_soon(reader.live, life, over)
            with trio.move_on_after(10):
                await over.wait()
            nursery.cancel_scope.cancel()
    assert list(dict.fromkeys(reader.got)) == numbers(0, 30)


def topic_filters(count: int) -> list[tuple[str, int]]:
    return [(f"$stream/orders/orders/{number}", 0) for number in range(count)]


async def test_thousands_of_subscriptions_leave_others_their_turns(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """In one SUBSCRIBE, over many messages that few of them want; and when their client comes back."""
    turns: list[int] = []
    handle = SessionActor.handle_many

    def counting(self: SessionActor, messages: list[Any]) -> None:
        calls.now = 0
        handle(self, messages)
        turns.append(calls.now)

    async with room() as here:
        await here.node.streams.create(ORDERS)
        for number in range(600):
            here.node.messages.route(here.node.messages.message(f"orders/{number % 300}", b"", 0, False, {}, "press"))
        monkeypatch.setattr(SessionActor, "handle_many", counting)
        with counted() as calls:
            client = await here.stay("a")
            assert await client.subscribe(*topic_filters(300), properties=EARLIEST) == [0] * 300
            for _ in range(600):
                await client.expect_type(raw.PUBLISH)
            await client.abort()
            client = await here.stay("a")
            await publish(here, 0, 3)
            for _ in range(3):
                await client.expect_type(raw.PUBLISH)
    assert len(turns) > 100
    assert max(turns) < 80_000
