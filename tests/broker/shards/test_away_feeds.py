"""What a subscription to a stream gets does not depend on where its session is."""

from collections.abc import Collection, Iterable
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.broker.inside import inside
from tests.broker.shards.fed import (
    EARLIEST,
    FILTER,
    ORDERS,
    Shard,
    away,
    consumers,
    numbers,
    payloads,
    publish,
    publishers,
    stay,
    store,
    subscribe,
    unstored,
)
from tests.conformance import raw
from tests.testing.three import at, three
from tests.wire import Wire
from trunkline import testing
from trunkline.broker.session.feeds import FEEDS_AT_ONCE
from trunkline.broker.shards.away_feeds import MAX_BYTES, MAX_MESSAGES
from trunkline.broker.shards.away_streams import AwayStreams
from trunkline.broker.shards.feed_words import (
    CloseFeed,
    FeedEnded,
    FeedMessage,
    FeedOpened,
    FeedRoom,
    FeedWord,
    OpenFeed,
)
from trunkline.mqtt.message import Message
from trunkline.testing.broker import Broker

STORED = pytest.mark.parametrize("stored", [False, True], ids=["memory", "stored"])


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_history_then_live_messages_at_each_shard(qos: int) -> None:
    async with testing.broker(workers=3) as b, three(b) as wires, publishers(b) as others:
        await b.streams.create(ORDERS)
        for shard, other in enumerate(others):
            await publish(other, 40 * shard, 40 * (shard + 1), max(qos, 1))  # at QoS 0 nothing orders them
        for wire in wires:
            assert await wire.subscribe((FILTER, qos), properties=EARLIEST) == [qos]
        for wire in wires:
            assert await payloads(wire, 120) == numbers(0, 120)
        for shard, other in enumerate(others):
            first = 120 + 300 * shard
            async with trio.open_nursery() as nursery:
                nursery.start_soon(publish, other, first, first + 300, qos)
                for wire in wires:
                    assert await payloads(wire, 300) == numbers(first, first + 300)
        for wire in wires:
            await wire.expect_nothing()


@STORED
@pytest.mark.parametrize("qos", [1, 2])
async def test_who_comes_back_goes_on_where_it_was(tmp_path: Path, qos: int, stored: bool) -> None:
    async with testing.broker(workers=3, **store(tmp_path, stored=stored)) as b, publishers(b) as others:
        await b.streams.create(ORDERS)
        async with stay(b, 1) as wire:
            await wire.subscribe((FILTER, qos), properties=EARLIEST)
            await publish(others[2], 0, 50)
            assert await payloads(wire, 50) == numbers(0, 50)
            await wire.disconnect()
        await publish(others[0], 50, 400)
        async with stay(b, 1) as wire:
            assert await payloads(wire, 350) == numbers(50, 400)
            await wire.expect_nothing()
            assert consumers(b) == [at(b, 1)]
            await wire.send(raw.unsubscribe(1, FILTER))
            assert (await wire.expect_type(raw.UNSUBACK)).reasons == [0]
            await b.wait_until(lambda: not consumers(b))


async def test_what_is_on_its_way_when_the_link_breaks_comes_once(autojump_clock: MockClock) -> None:
    async with testing.broker(workers=3) as b, three(b) as wires, publishers(b) as others:
        await b.streams.create(ORDERS)
        await publish(others[0], 0, 300)
        for wire in wires:
            await wire.subscribe((FILTER, 2), properties=EARLIEST)
        for wire in wires:
            assert await payloads(wire, 100) == numbers(0, 100)
        fault = b.faults.cut_link(0, 1)
        await publish(others[0], 300, 320)
        assert await payloads(wires[2], 220) == numbers(100, 320)
        fault.remove()
        assert await payloads(wires[1], 220) == numbers(100, 320)
        with b.faults.cut_link(0, 1):
            pass
        await publish(others[1], 320, 330)
        for wire in wires[1:]:
            assert await payloads(wire, 10) == numbers(320, 330)
            await wire.expect_nothing()


@pytest.mark.parametrize("power_cut", [False, True])
@pytest.mark.parametrize("shard", range(3))
async def test_all_shards_begin_anew(tmp_path: Path, shard: int, power_cut: bool) -> None:
    async with testing.broker(workers=3, **store(tmp_path, stored=True)) as b:
        await b.streams.create(ORDERS)
        async with publishers(b) as others:
            await publish(others[1], 0, 200, 2)
        got: list[bytes] = []
        taken: set[int] = set()
        async with stay(b, shard) as wire:
            await wire.send(raw.subscribe(1, (FILTER, 2), properties=EARLIEST))
            while len(got) < 60:
                packet = await wire.receive()
                if packet.type == raw.PUBLISH:
                    got.append(packet.payload)
                    taken.add(packet.packet_id)
                    await wire.send(raw.ack(raw.PUBREC, packet.packet_id))
        await b.restart(power_cut=power_cut)
        async with stay(b, shard) as wire, publishers(b) as others:
            await publish(others[0], 200, 210, 2)
            got += await payloads(wire, 210 - len(got), taken)
            assert got == numbers(0, 210)
            await wire.expect_nothing()


def subscriptions(b: Broker, shard: int) -> Collection[str]:
    """Of the client that stays there, also those that were not granted yet."""
    node = inside(b._running.whole.shards[shard])  # pyright: ignore[reportPrivateUsage]
    found = node.sessions.get(at(b, shard))
    return () if found is None else found.session.subscriptions


@pytest.mark.parametrize(("shard", "other"), [(0, 2), (1, 2)], ids=["here", "there"])
async def test_who_comes_back_before_its_suback_asks_again_and_begins_where_it_wants(shard: int, other: int) -> None:
    async with testing.broker(workers=3) as b, publishers(b) as others:
        await b.streams.create(ORDERS)
        await publish(others[0], 0, 10)
        fault = b.faults.stall_link(shard, other)
        async with stay(b, shard) as wire:
            await wire.send(raw.subscribe(1, (FILTER, 1), properties=EARLIEST))
            await b.wait_until(lambda: FILTER in subscriptions(b, shard))
        async with stay(b, shard) as wire:
            fault.remove()
            await publish(others[0], 10, 12)
            assert await wire.subscribe((FILTER, 1), properties=EARLIEST) == [1]
            assert await payloads(wire, 12) == numbers(0, 12)
            await wire.expect_nothing()


async def test_what_was_on_its_way_in_a_former_opening_is_of_nobody() -> None:
    async with testing.broker(workers=2) as b:
        await b.streams.create(ORDERS)
        async with stay(b, 1) as wire:
            await wire.subscribe((FILTER, 1), properties=EARLIEST)
            away = inside(b._running.whole.shards[1]).services.feeds  # pyright: ignore[reportPrivateUsage]
            assert isinstance(away, AwayStreams)
            (feed,) = away._feeds.values()  # pyright: ignore[reportPrivateUsage]
            for opening, payload in ((feed.opening - 1, b"former"), (feed.opening, b"0")):
                about = FeedMessage(feed.name, opening, 1, 1, 100)
                with inside(b._running.whole.shards[1]).scheduler.turn:  # pyright: ignore[reportPrivateUsage]
                    away.came(about, Message("orders/0", payload))
            assert await payloads(wire, 1) == [b"0"]
            await wire.expect_nothing()


@pytest.mark.parametrize("shard", range(2))
async def test_who_subscribes_again_to_a_new_stream_gets_what_it_has(shard: int) -> None:
    """Its window, and what there is room for beside, is full of what the former stream had."""
    async with testing.broker(workers=2) as b, Wire(b.connect()) as wire:
        await b.streams.create(ORDERS)
        for number in range(300):
            await b.streams.publish("orders/0", b"%d" % number)
        await wire.connect(at(b, shard), properties=raw.receive_maximum(1))
        await wire.subscribe((FILTER, 1), properties=EARLIEST)
        former = await wire.expect_type(raw.PUBLISH)
        await wait_all_tasks_blocked()
        await b.streams.delete("orders")
        await b.streams.create(ORDERS)
        await b.streams.publish("orders/0", b"new")
        await wait_all_tasks_blocked()
        await wire.subscribe((FILTER, 1), properties=EARLIEST)
        await wire.acknowledge(former)
        assert await payloads(wire, 1) == [b"new"]


# The shard with the streams is the test, see `away`


async def reopened(b: Broker, here: Shard) -> OpenFeed:
    """The link was cut."""
    with b.faults.cut_link(0, 1):
        await wait_all_tasks_blocked()
    here.take_heard()
    return await here.asked()


def places(words: Iterable[FeedWord]) -> list[tuple[int, int, int]]:
    """How far the session has come, and how much may have come, of words that say it."""
    return [(word.sequence, word.messages, word.byte_size) for word in words if isinstance(word, FeedRoom)]


async def test_it_asks_for_what_was_subscribed_to_and_makes_room_behind_its_suback() -> None:
    async with away() as (b, here), stay(b, 1) as wire:
        await wire.send(raw.subscribe(1, (FILTER, 1), properties=EARLIEST))
        asked = await here.asked()
        assert asked[2:3] + asked[4:] == ("orders", 0, 0, True)
        wanted = {"name": asked.name, "filters": ["orders/#"], "deliver_policy": "all", "ack_policy": "all"}
        assert wanted.items() <= asked.config.items()
        assert asked.config["inactive_threshold"] == asked.config["ack_wait"] == 1e9
        assert asked.config["max_ack_pending"] == 0
        await here.say(FeedOpened(asked.name, asked.opening, 1, 7, ""))
        assert (await wire.expect_type(raw.SUBACK)).reasons == [1]
        await wait_all_tasks_blocked()
        assert here.take_heard() == [FeedRoom(asked.name, asked.opening, 7, MAX_MESSAGES, MAX_BYTES)]


async def test_a_durable_session_has_a_durable_consumer(tmp_path: Path) -> None:
    async with away(**store(tmp_path, stored=True)) as (b, here), stay(b, 1) as wire:
        asked = await subscribe(wire, here)
        assert asked.config["durable"]
        assert not asked.config.get("inactive_threshold")


async def test_a_message_makes_room_for_another_one_when_the_window_has_it() -> None:
    async with away() as (b, here), Wire(b.connect()) as wire:
        await wire.connect(at(b, 1), properties=raw.receive_maximum(2))
        asked = await subscribe(wire, here)
        here.take_heard()
        await here.feed(asked, 1, 2, 3, 4, byte_size=1000)
        packets = [await wire.expect_type(raw.PUBLISH) for _ in range(2)]
        assert [packet.payload for packet in packets] == [b"1", b"2"]
        await wire.expect_nothing()
        assert places(here.take_heard()) == [(2, MAX_MESSAGES + 2, MAX_BYTES + 2000)]
        await wire.acknowledge(packets[0])
        assert (await wire.expect_type(raw.PUBLISH)).payload == b"3"
        await wait_all_tasks_blocked()
        assert places(here.take_heard()) == [(3, MAX_MESSAGES + 3, MAX_BYTES + 3000)]


async def test_at_qos_0_the_window_is_not_asked() -> None:
    async with away() as (b, here), Wire(b.connect()) as wire:
        await wire.connect(at(b, 1), properties=raw.receive_maximum(1))
        await here.feed(await subscribe(wire, here, "$stream/orders/full"), 1)
        await wire.expect_type(raw.PUBLISH)
        asked = await subscribe(wire, here, qos=0)
        here.take_heard()
        await here.feed(asked, *range(1, 2 * MAX_MESSAGES + 1))
        got = [await wire.expect_type(raw.PUBLISH) for _ in range(2 * MAX_MESSAGES)]
        assert [(packet.payload, packet.qos) for packet in got] == [(b"%d" % n, 0) for n in range(1, len(got) + 1)]
        await wait_all_tasks_blocked()
        assert places(here.take_heard())[-1] == (len(got), 3 * MAX_MESSAGES, MAX_BYTES + 100 * len(got))


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_message_has_the_qos_that_it_had(qos: int) -> None:
    async with away() as (b, here), stay(b, 1) as wire:
        asked = await subscribe(wire, here, qos=2)
        await here.feed(asked, 1, qos=qos)
        assert (await wire.expect_type(raw.PUBLISH)).qos == qos


async def test_what_came_before_is_known() -> None:
    async with away() as (b, here), stay(b, 1) as wire:
        asked = await subscribe(wire, here, sequence=2)
        await here.feed(asked, 1, 2, 3, 3, 5, 4, 6)
        assert await payloads(wire, 3) == [b"3", b"5", b"6"]
        await here.feed(asked._replace(name="unknown"), 7)
        await wire.expect_nothing()


async def test_subscriptions_take_turns() -> None:
    filters = "$stream/orders/a", "$stream/orders/b"
    async with away() as (b, here), Wire(b.connect()) as wire:
        await wire.connect(at(b, 1), properties=raw.receive_maximum(1))
        first, second = [await subscribe(wire, here, filter) for filter in filters]
        await here.feed(first, 1, 2, 3)
        await here.feed(second, 11, 12, 13)
        assert await payloads(wire, 6) == [b"1", b"2", b"11", b"3", b"12", b"13"]


async def test_after_the_link_was_cut_it_goes_on_where_the_session_is() -> None:
    async with away() as (b, here), Wire(b.connect()) as wire:
        await wire.connect(at(b, 1), properties=raw.receive_maximum(1))
        asked = await subscribe(wire, here)
        await here.feed(asked, 1, 2, 3)
        held = await wire.expect_type(raw.PUBLISH)
        again = await reopened(b, here)
        assert again.opening > asked.opening
        assert (again.number, again.sequence, again.is_new) == (1, 1, False)
        await wire.acknowledge(held)
        await wire.expect_nothing()
        assert here.take_heard() == [], "it is not open"
        await here.feed(again, 2)
        await here.say(FeedOpened(asked.name, asked.opening, 1, 0, ""))
        await here.feed(again, 2)
        await wire.expect_nothing()
        await here.say(FeedOpened(again.name, again.opening, 1, 0, ""))
        assert places(here.take_heard()) == [(1, MAX_MESSAGES, MAX_BYTES)], "what it has it does not forget"
        await here.feed(asked, 2)
        await here.feed(again, 1, 2)
        packet = await wire.expect_type(raw.PUBLISH)
        assert packet.payload == b"2"
        await wait_all_tasks_blocked()
        assert places(here.take_heard()) == [(2, MAX_MESSAGES + 1, MAX_BYTES + 100)]


async def test_where_it_has_begun_is_known_before_anything_comes() -> None:
    async with away() as (b, here), stay(b, 1) as wire:
        await subscribe(wire, here, sequence=7)
        again = await reopened(b, here)
        assert (again.number, again.sequence) == (1, 7)
        await here.say(FeedOpened(again.name, again.opening, 2, 3, ""))
        last = await reopened(b, here)
        assert (last.number, last.sequence) == (2, 3)


async def test_an_answer_that_comes_twice_moves_nothing() -> None:
    async with away() as (b, here), stay(b, 1) as wire:
        asked = await subscribe(wire, here)
        await here.feed(asked, 1, 2)
        assert await payloads(wire, 2) == numbers(1, 3)
        here.take_heard()
        await here.say(FeedOpened(asked.name, asked.opening, 1, 0, ""))
        assert here.take_heard() == []
        await here.feed(asked, 1, 2)
        await wire.expect_nothing()


async def cut(b: Broker, here: Shard) -> None:
    """And joined again."""
    with b.faults.cut_link(0, 1):
        await wait_all_tasks_blocked()
    await b.wait_until(lambda: here.peer.is_up)
    await wait_all_tasks_blocked()


async def test_what_the_session_gets_is_told_when_it_is_stored(tmp_path: Path) -> None:
    async with away(**store(tmp_path, stored=True)) as (b, here), stay(b, 1) as wire:
        asked = await subscribe(wire, here)
        await wait_all_tasks_blocked()
        here.take_heard()
        with unstored(b, 1):
            await here.feed(asked, 1)
            assert here.take_heard() == []
            for _ in range(2):
                await cut(b, here)
                assert here.take_heard() == [], "nor where it goes on"
        assert await payloads(wire, 1) == numbers(1, 2)
        again = await here.asked()
        assert (again.opening, again.sequence) == (asked.opening + 2, 1)


async def test_what_has_ended_before_it_was_stored_is_not_asked_for(tmp_path: Path) -> None:
    async with away(**store(tmp_path, stored=True)) as (b, here), stay(b, 1) as wire:
        asked = await subscribe(wire, here)
        with unstored(b, 1):
            await cut(b, here)
            here.take_heard()
            await wire.send(raw.unsubscribe(1, FILTER))
            await here.hear()
        await wire.expect_type(raw.UNSUBACK)
        await wait_all_tasks_blocked()
        assert here.take_heard() == [CloseFeed(asked.name, "orders", has_ended=True)]


async def test_another_stream_of_the_name_begins_where_it_says() -> None:
    async with away() as (b, here), stay(b, 1) as wire:
        asked = await subscribe(wire, here)
        await here.feed(asked, 1, 2, 3)
        assert await payloads(wire, 3) == numbers(1, 4)
        again = await reopened(b, here)
        assert (again.number, again.sequence) == (1, 3)
        await here.say(FeedOpened(again.name, again.opening, 2, 1, ""))
        assert places(here.take_heard())[0][0] == 1
        await here.feed(again, 1, 2)
        assert await payloads(wire, 1) == [b"2"]
        last = await reopened(b, here)
        assert (last.number, last.sequence) == (2, 2)


async def test_a_subscription_that_is_refused_late_is_granted_and_gets_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with away() as (b, here), stay(b, 1) as wire:
        await wire.send(raw.subscribe(1, (FILTER, 1)))
        asked = await here.asked()
        await here.say(FeedOpened(asked.name, asked.opening, 0, 0, "there is no stream 'orders'"))
        assert (await wire.expect_type(raw.SUBACK)).reasons == [1]
        assert f"{FILTER}: there is no stream 'orders'" in caplog.text
        await here.feed(asked, 1)
        await wire.expect_nothing()
        assert here.take_heard() == []


async def test_a_feed_that_has_ended_begins_anew_when_it_is_subscribed_to_again() -> None:
    async with away() as (b, here), stay(b, 1) as wire:
        asked = await subscribe(wire, here)
        await here.say(FeedEnded(asked.name, asked.opening - 1))
        await here.feed(asked, 1)
        assert await payloads(wire, 1) == numbers(1, 2)
        await here.say(FeedEnded(asked.name, asked.opening), FeedEnded("unknown", 1))
        await here.feed(asked, 2)
        await wire.expect_nothing()
        again = await subscribe(wire, here)
        assert again.opening > asked.opening
        assert (again.number, again.sequence, again.is_new) == (1, 1, False), "there may be its consumer"
        await here.feed(again, 1, 2)
        assert await payloads(wire, 1) == [b"2"]


async def test_who_subscribes_again_goes_on_and_has_the_qos_it_asks_for() -> None:
    async with away() as (b, here), stay(b, 1) as wire:
        asked = await subscribe(wire, here)
        here.take_heard()
        assert await wire.subscribe((FILTER, 0), properties=EARLIEST) == [0]
        assert here.take_heard() == []
        await here.feed(asked, 1)
        assert (await wire.expect_type(raw.PUBLISH)).qos == 0
        here.take_heard()
        await wire.disconnect()
        await here.hear()
        assert here.take_heard() == [CloseFeed(asked.name, "orders", has_ended=False)]


async def test_who_comes_back_before_its_feed_is_open_has_it_when_it_is() -> None:
    async with away() as (b, here):
        async with stay(b, 1) as wire:
            await wire.send(raw.subscribe(1, (FILTER, 1), properties=EARLIEST))
            asked = await here.asked()
        async with stay(b, 1) as wire:
            await wire.send(raw.subscribe(7, (FILTER, 1), properties=EARLIEST))
            await wait_all_tasks_blocked()
            assert here.take_heard() == []
            await here.say(FeedOpened(asked.name, asked.opening, 1, 0, ""))
            assert places(here.take_heard()) == [(0, MAX_MESSAGES, MAX_BYTES)]
            assert (await wire.expect_type(raw.SUBACK)).packet_id == 7
            await here.feed(asked, 1)
            assert await payloads(wire, 1) == [b"1"]


async def test_who_goes_is_closed_and_its_subscription_stays() -> None:
    async with away() as (b, here):
        async with stay(b, 1) as wire:
            asked = await subscribe(wire, here)
            await here.feed(asked, 1)
            assert await payloads(wire, 1) == numbers(1, 2)
            here.take_heard()
            await wire.disconnect()
        await wait_all_tasks_blocked()
        assert here.take_heard() == [CloseFeed(asked.name, "orders", has_ended=False)]
        await here.feed(asked, 2)
        async with stay(b, 1) as wire:
            again = await here.asked()
            assert again[4:] == (1, 1, False)
            await here.say(FeedOpened(again.name, again.opening, 1, 1, ""))
            assert places(here.take_heard()) == [(1, MAX_MESSAGES, MAX_BYTES)]
            await here.feed(again, 2)
            assert await payloads(wire, 1) == [b"2"]


async def test_who_comes_back_before_its_routes_are_known_begins_where_it_wants() -> None:
    async with away(workers=3) as (b, here), stay(b, 1) as wire:
        fault = b.faults.stall_link(1, 2)
        await wire.send(raw.subscribe(1, (FILTER, 1), properties=EARLIEST))
        await b.wait_until(lambda: FILTER in subscriptions(b, 1))
        async with stay(b, 1) as again:
            asked = await here.asked()
            assert (asked.number, asked.is_new) == (0, False), "it goes on, if it has begun"
            fault.remove()
            anew = await here.asked()
            assert (anew.number, anew.is_new, anew.config["deliver_policy"]) == (0, True, "all")
            refused = FeedOpened(asked.name, asked.opening, 0, 0, "there is none")
            await here.say(refused, FeedOpened(anew.name, anew.opening, 1, 0, ""))
            await here.feed(anew, 1)
            assert await payloads(again, 1) == [b"1"]


async def test_who_subscribes_while_it_is_opened_again_is_answered_then() -> None:
    async with away() as (b, here):
        async with stay(b, 1) as wire:
            await subscribe(wire, here)
            await wire.disconnect()
        await wait_all_tasks_blocked()
        here.take_heard()
        async with stay(b, 1) as wire:
            asked = await here.asked()
            await wire.send(raw.subscribe(7, (FILTER, 1)))
            await wait_all_tasks_blocked()
            assert here.take_heard() == []
            await here.say(FeedOpened(asked.name, asked.opening, 1, 0, ""))
            assert (await wire.expect_type(raw.SUBACK)).packet_id == 7


async def test_who_goes_before_its_feed_is_open_is_closed_then() -> None:
    async with away() as (b, here), stay(b, 1) as wire:
        await wire.send(raw.subscribe(1, (FILTER, 1), properties=EARLIEST))
        asked = await here.asked()
        b.kick(at(b, 1))
        await wait_all_tasks_blocked()
        assert here.take_heard() == [], "it begins all the same"
        await here.say(FeedOpened(asked.name, asked.opening, 1, 0, ""))
        assert here.take_heard() == [CloseFeed(asked.name, "orders", has_ended=False)]
        await here.say(FeedOpened(asked.name, asked.opening, 1, 0, ""))
        assert here.take_heard() == []


async def test_who_has_gone_before_its_routes_are_known_has_no_open_feed() -> None:
    async with away(workers=3) as (b, here), stay(b, 1) as wire:
        with b.faults.stall_link(1, 2):
            await wire.send(raw.subscribe(1, (FILTER, 1), properties=EARLIEST))
            await b.wait_until(lambda: FILTER in subscriptions(b, 1))
            b.kick(at(b, 1))
            await wait_all_tasks_blocked()
        asked = await here.asked()
        await here.say(FeedOpened(asked.name, asked.opening, 1, 0, ""))
        assert here.take_heard() == [CloseFeed(asked.name, "orders", has_ended=False)]


async def test_what_is_unsubscribed_from_ends() -> None:
    async with away() as (b, here), Wire(b.connect()) as wire:
        await wire.connect(at(b, 1), properties=raw.receive_maximum(1))
        asked = await subscribe(wire, here)
        await here.feed(asked, 1, 2)
        held = await wire.expect_type(raw.PUBLISH)
        here.take_heard()
        await wire.send(raw.unsubscribe(1, FILTER))
        await wire.expect_type(raw.UNSUBACK)
        await wait_all_tasks_blocked()
        assert here.take_heard() == [CloseFeed(asked.name, "orders", has_ended=True)]
        await wire.acknowledge(held)
        await here.feed(asked, 3)
        await wire.expect_nothing()
        again = await subscribe(wire, here)
        assert (again.number, again.sequence, again.is_new) == (0, 0, True)


async def test_what_an_operator_ends_before_it_is_open_is_answered_all_the_same() -> None:
    async with away() as (b, here), stay(b, 1) as wire:
        await wire.send(raw.subscribe(1, (FILTER, 1)))
        asked = await here.asked()
        assert inside(b._running.whole.shards[1]).clients.unsubscribe(at(b, 1), [FILTER])  # pyright: ignore[reportPrivateUsage]
        await wire.expect_type(raw.SUBACK)
        await wait_all_tasks_blocked()
        assert here.take_heard() == [CloseFeed(asked.name, "orders", has_ended=True)]


async def test_a_session_that_ends_before_its_feed_is_open_has_none(caplog: pytest.LogCaptureFixture) -> None:
    async with away() as (b, here), stay(b, 1, session_expiry=0) as wire:
        await wire.send(raw.subscribe(1, (FILTER, 1), properties=EARLIEST))
        asked = await here.asked()
        b.kick(at(b, 1))
        await here.hear()
        assert here.take_heard() == [CloseFeed(asked.name, "orders", has_ended=True)]
        await here.say(FeedOpened(asked.name, asked.opening, 1, 0, ""))
        assert here.take_heard() == []
        assert "crashed" not in caplog.text


async def test_the_end_of_a_session_ends_its_subscriptions() -> None:
    async with away() as (b, here):
        async with stay(b, 1, session_expiry=0) as wire:
            asked = await subscribe(wire, here)
            here.take_heard()
            await wire.disconnect()
        await here.hear()
        assert here.take_heard()[-1] == CloseFeed(asked.name, "orders", has_ended=True)


async def test_a_full_burst_of_subscriptions_begins_in_turns_and_is_answered_once() -> None:
    filters = [(f"$stream/orders/orders/{number}", 1) for number in range(2 * FEEDS_AT_ONCE)]
    async with away() as (b, here), stay(b, 1) as wire:
        await wire.send(raw.subscribe(1, *filters))
        await wait_all_tasks_blocked()
        asked = [word for word in here.take_heard() if isinstance(word, OpenFeed)]
        assert len(asked) == len(filters)
        await here.say(*[FeedOpened(each.name, each.opening, 1, 0, "") for each in asked[:-1]])
        assert here.take_heard() == []
        await here.say(FeedOpened(asked[-1].name, asked[-1].opening, 1, 0, ""))
        assert (await wire.expect_type(raw.SUBACK)).reasons == [1] * len(filters)
        await wire.expect_nothing()
