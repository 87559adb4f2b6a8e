"""What waits in the sources of a session leaves in order, in slices, when nothing pauses the session."""

from collections import Counter
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from tests.broker.room import Room, room
from tests.conformance import raw
from trunkline.broker.metrics import DropReason
from trunkline.broker.session import mail
from trunkline.broker.session.feeds import FeedHost
from trunkline.broker.session.outbound import Outbound
from trunkline.streams import StreamConfig


def congest(here: Room, client_id: str, on: bool = True) -> None:
    session = here.session(client_id)
    assert session.channel is not None
    session.ref.cast(mail.Congested(session.channel) if on else mail.Writable(session.channel))


async def test_order_is_kept_across_a_congested_socket() -> None:
    async with room() as here:
        client = await here.client("a")
        await client.subscribe(("t", 1))
        congest(here, "a")
        for number in range(5):
            here.broker.publish("t", b"%d" % number, qos=number % 2)
        await trio.testing.wait_all_tasks_blocked()
        assert here.session("a").session.queue.length == 5
        congest(here, "a", on=False)
        for number in range(5):
            await client.take_publish("t", b"%d" % number, qos=number % 2)


async def test_a_long_queue_leaves_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.broker.session.outbound.MAX_SLICE", 1000)
    async with room() as here:
        client = await here.stay("a")
        await client.subscribe(("t", 0))
        await client.disconnect()
        for number in range(100):
            here.broker.publish("t", b"%03d" % number)
        client = await here.stay("a")
        for number in range(100):
            await client.expect_publish("t", b"%03d" % number)


async def deaf(here: Room, *, expiry: int = 1000) -> trio.abc.Stream:
    """A client that takes up its session and reads nothing unless it is told to."""
    theirs, ours = trio.testing.lockstep_stream_pair()
    here.node.listeners.inside.accept_stream(theirs)
    await ours.send_all(raw.connect("a", clean=False, properties=raw.session_expiry(expiry)))
    await trio.testing.wait_all_tasks_blocked()
    return ours


@pytest.mark.parametrize("what", ["unacknowledged", "queued", "retained"])
async def test_a_client_that_does_not_read_is_handed_no_more_than_a_slice(what: str) -> None:
    async with room(session={"max_inflight_bytes": 0, "max_inflight": 100 if what == "unacknowledged" else 1}) as here:
        client, publisher = await here.stay("a"), await here.client("p")
        if what != "retained":
            await client.subscribe(("t/#", 1))
        size = 100_000
        for number in range(100):
            await publisher.publish(f"t/{number}", b"%03d" % number + bytes(size), qos=1, retain=what == "retained")
            if what == "unacknowledged":
                await client.receive()
        await client.abort()
        cut = 0
        for _ in range(5):
            before = here.node.metrics.bytes_sent
            stream = await deaf(here)
            if what == "retained":
                await stream.send_all(raw.subscribe(1, ("t/#", 0)))
                await trio.testing.wait_all_tasks_blocked()
            # a second one may be on its way before the connection has said that its socket is full
            assert size < here.node.metrics.bytes_sent - before < 2 * (262_144 + size)
            await stream.aclose()
            if what == "retained":
                await trio.testing.wait_all_tasks_blocked()
                cut += 1
            assert here.node.metrics.messages_retained_cut == cut
        # one that reads gets all of it, in order
        client = await here.stay("a")
        if what == "retained":
            await client.subscribe(("t/#", 0))
        for number in range(100):
            packet = await client.expect_type(raw.PUBLISH)
            assert packet.payload[:3] == b"%03d" % number
            await client.acknowledge(packet)
            assert packet.dup == (what == "unacknowledged" or (what == "queued" and number == 0))
        await client.ping()
        assert here.node.metrics.snapshot()["delivery.dropped"] == 0


async def test_what_is_sent_again_in_slices_is_not_overtaken() -> None:
    async with room(session={"max_inflight": 200}) as here:
        client, publisher = await here.stay("a"), await here.client("p")
        await client.subscribe(("t", 1))
        for number in range(100):
            await publisher.publish("t", b"%03d" % number + bytes(10_000), qos=1)
        await client.abort()
        await publisher.publish("t", b"100", qos=1)
        stream = await deaf(here)  # a slice is on its way
        await publisher.publish("t", b"101", qos=1)
        await publisher.publish("t", b"102", qos=0)
        await stream.aclose()
        client = await here.stay("a")
        numbers = []
        while len(numbers) < 103:
            numbers.append((await client.expect_type(raw.PUBLISH)).payload[:3])
        assert numbers == [b"%03d" % number for number in range(103)]


async def test_a_queue_of_expired_messages_is_thrown_away_in_slices(autojump_clock: MockClock) -> None:
    async with room(session={"max_queue_length": 5000}) as here:
        client, publisher = await here.stay("a"), await here.client("p")
        await client.subscribe(("t", 1))
        await client.abort()
        expiring = raw.publish("t", b"", properties=raw.message_expiry(5))
        await publisher.send(*[expiring] * 3000)
        await publisher.ping()
        await trio.sleep(10)
        turns: Counter[int] = Counter()
        turn = 0

        def count(*_: object) -> None:
            turns[turn] += 1

        fill = Outbound.fill

        def in_turn(self: Outbound) -> None:
            nonlocal turn
            turn += 1
            fill(self)

        here.node.hooks.add("message.dropped", count)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Outbound, "fill", in_turn)
            client = await here.stay("a")
            await client.ping()
            await trio.testing.wait_all_tasks_blocked()
        assert turns.total() == here.node.metrics.dropped[DropReason.EXPIRED] == 3000
        assert max(turns.values()) <= 500


async def test_acknowledgements_that_were_read_in_a_turn_make_room_for_what_is_delivered_in_it() -> None:
    async with room(session={"max_inflight": 1, "max_queue_length": 1}) as here:
        queued: list[bytes] = []
        here.node.hooks.add("message.queued", lambda _client, message: queued.append(message.payload))
        reader, writer = await here.client("reader"), await here.client("writer")
        await reader.subscribe(("t", 1))
        await writer.publish("t", b"1", qos=1)
        first = await reader.expect_type(raw.PUBLISH)
        with here.node.scheduler.turn:  # as the poller does
            here.read("writer", raw.publish("t", b"2", qos=1, packet_id=7))
            here.read("reader", raw.ack(raw.PUBACK, first.packet_id))
        assert (await reader.expect_type(raw.PUBLISH)).payload == b"2"
        assert not queued


async def test_it_is_empty_when_nothing_waits_and_nothing_is_unacknowledged() -> None:
    async with room() as here:
        client = await here.stay("a")
        outbound = here.session("a")._outbound  # pyright: ignore[reportPrivateUsage]
        await client.subscribe(("t", 1))
        assert outbound.empty
        here.broker.publish("t", b"1", qos=1)
        packet = await client.expect_publish("t", b"1", qos=1)
        assert not outbound.empty
        await client.acknowledge(packet)
        await client.ping()
        assert outbound.empty
        await client.disconnect()
        here.broker.publish("t", b"2", qos=1)
        await here.admin.ending.quiet()
        assert not outbound.empty


async def test_streams_are_made_only_for_a_session_that_subscribes_to_one() -> None:
    async with room() as here:
        asked: list[FeedHost[Any]] = []
        services = here.node.services
        find_feeds = services.find_feeds

        def made() -> FeedHost[Any]:
            asked.append(find_feeds())
            return asked[-1]

        services.find_feeds = made
        for _ in range(2):
            client = await here.stay("a")
            await client.subscribe(("t", 1))
            await client.disconnect()
        assert not asked
        await here.node.streams.create(StreamConfig(name="s", filters=("u",)))
        properties = raw.session_expiry(1000) + raw.receive_maximum(1)
        client = await here.client("a", clean=False, properties=properties)
        await client.subscribe(("$stream/s/u", 1))
        for number in range(2):
            here.broker.publish("u", b"%d" % number, qos=1)
        await client.expect_publish("u", b"0", qos=1)
        await client.abort()
        client = await here.stay("a")
        for number in range(2):
            assert (await client.expect_type(raw.PUBLISH)).payload == b"%d" % number
        assert asked


async def test_no_hook_is_asked_about_the_delivery_of_what_has_expired(autojump_clock: MockClock) -> None:
    async with room() as here:
        client, publisher = await here.stay("a"), await here.client("p")
        await client.subscribe(("t", 1))
        await client.disconnect()
        await publisher.publish("t", b"expired", qos=1, properties=raw.message_expiry(5))
        await publisher.publish("t", b"kept", qos=1)
        await trio.sleep(10)
        asked: list[bytes] = []
        here.node.hooks.add("message.deliver", lambda client, message: asked.append(message.payload))
        client = await here.stay("a")
        await client.take_publish("t", b"kept", qos=1)
        assert asked == [b"kept"]


async def test_what_a_3x_client_is_sent_again_is_not_overtaken() -> None:
    async with room(session={"retry_interval": 0, "max_inflight": 10}) as here:
        client = await here.client("a", version=4)
        await client.subscribe(("t", 1))
        here.broker.publish("t", b"1", qos=1)
        await client.expect_publish("t", b"1", qos=1)
        outbound = here.session("a")._outbound  # pyright: ignore[reportPrivateUsage]
        congest(here, "a")
        await trio.testing.wait_all_tasks_blocked()
        outbound.repeat(-1.0)
        here.broker.publish("t", b"2")
        congest(here, "a", on=False)
        assert (await client.expect_type(raw.PUBLISH)).payload == b"1"
        await client.expect_publish("t", b"2")
