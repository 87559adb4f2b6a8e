"""A shard without streams asks, and says, what becomes of its sessions' subscriptions."""

from collections.abc import Callable
from dataclasses import replace
from logging import WARNING
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.broker.inside import inside
from tests.broker.shards.fed import (
    EARLIEST,
    FILTER,
    ORDERS,
    away,
    consumers,
    numbers,
    payloads,
    publish,
    publishers,
    stay,
    store,
    subscribe,
)
from tests.conformance import raw
from tests.testing.three import at, three
from tests.wire import Wire
from trunkline import testing
from trunkline.broker.links.frames import Said
from trunkline.broker.node.parts import Node
from trunkline.broker.session.feeds import FEEDS_AT_ONCE
from trunkline.broker.shards import peer
from trunkline.broker.shards.away_streams import MAX_ASKED, MAX_WAIT, AwayStreams, asked_at_once
from trunkline.broker.shards.feed_words import (
    FEEDS,
    MAY_FEED,
    CloseFeed,
    FeedEnded,
    FeedOpened,
    FeedRoom,
    KnownFeed,
    KnownFeeds,
    OpenFeed,
    feed_to_plain,
)
from trunkline.hooks import ClientInfo, Hooks
from trunkline.mqtt.packets import SubscriptionRequest
from trunkline.mqtt.properties import Properties
from trunkline.streams import ConsumerConfig, Discard, Retention, StreamConfig
from trunkline.streams.errors import StreamsNotOffered
from trunkline.testing.broker import Broker

REFUSED = 0x8F


async def test_what_cannot_be_subscribed_to(autojump_clock: MockClock) -> None:
    async with testing.broker(workers=3) as b, three(b) as wires:
        for wire in wires:
            assert await wire.subscribe(FILTER) == [REFUSED]
        await b.streams.create(StreamConfig(name="orders", filters=("orders/#",), retention=Retention.WORK_QUEUE))
        for wire in wires:
            assert await wire.subscribe(FILTER) == [REFUSED]
            assert await wire.subscribe("$stream/orders/x", properties=raw.user_property("from", "x")) == [REFUSED]
            assert await wire.subscribe("$stream/orders") == [REFUSED]
        with b.faults.cut_link(0, 1):
            await wires[1].send(raw.subscribe(1, (FILTER, 1)))
            suback = await wires[1].expect_type(raw.SUBACK)
            assert suback.reasons == [0x83]
            assert suback.get(raw.REASON_STRING) == "worker 0, which has the streams, does not answer"


async def test_the_filters_of_a_subscribe_are_asked_for_together(autojump_clock: MockClock) -> None:
    async with testing.broker(workers=2) as b, Wire(b.connect()) as wire:
        await b.streams.create(ORDERS)
        await wire.connect(at(b, 1))
        valid = [f"$stream/orders/orders/{number}" for number in range(2 * FEEDS_AT_ONCE)]
        filters = ["plain/0", "$stream/none/a", *valid, "$stream/orders", "plain/1"]
        with b.faults.delay_link(0, 1, 1.0):
            began = trio.current_time()
            await wire.send(raw.subscribe(1, *[(filter, 1) for filter in filters]))
            reasons = (await wire.expect_type(raw.SUBACK)).reasons
            assert reasons == [1, REFUSED, *[1] * len(valid), REFUSED, 1]
            questions, routes, beginnings = 3 * 2.0, 1.0, 2.0
            assert trio.current_time() - began == pytest.approx(questions + routes + beginnings)
        assert len(consumers(b)) == len(valid)


async def test_who_does_not_answer_is_waited_for_once(autojump_clock: MockClock) -> None:
    async with testing.broker(workers=2) as b, Wire(b.connect()) as wire:
        await b.streams.create(ORDERS)
        await wire.connect(at(b, 1))
        filters = [f"$stream/orders/orders/{number}" for number in range(4 * FEEDS_AT_ONCE)]
        with b.faults.stall_link(0, 1):
            began = trio.current_time()
            await wire.send(raw.subscribe(1, *[(filter, 1) for filter in filters]))
            suback = await wire.expect_type(raw.SUBACK)
            assert set(suback.reasons) == {0x83}
            assert trio.current_time() - began == pytest.approx(MAX_WAIT)
        assert await wire.subscribe((filters[0], 1)) == [1]


async def test_a_hook_may_make_a_filter_one_of_a_stream() -> None:
    def into_stream(client: ClientInfo, request: SubscriptionRequest, properties: Properties) -> SubscriptionRequest:
        return replace(request, filter=f"$stream/{request.filter}")

    hooks = Hooks()
    hooks.add("client.subscribe", into_stream)
    async with testing.broker(workers=3, hooks=hooks) as b, three(b) as wires:
        await b.streams.create(ORDERS)
        for wire in wires:
            assert await wire.subscribe(("orders/orders/#", 1), ("none/a", 1)) == [1, REFUSED]
        assert len(consumers(b)) == 3


async def test_so_it_may_in_one_process() -> None:
    def into_stream(client: ClientInfo, request: SubscriptionRequest, properties: Properties) -> SubscriptionRequest:
        return replace(request, filter=f"$stream/{request.filter}")

    hooks = Hooks()
    hooks.add("client.subscribe", into_stream)
    async with testing.broker(hooks=hooks) as b, Wire(b.connect()) as wire:
        await wire.connect("c")
        await b.streams.create(ORDERS)
        assert await wire.subscribe(("orders/orders/#", 1), ("none/a", 1)) == [1, REFUSED]
        await b.streams.publish("orders/1", b"x")
        assert await payloads(wire, 1) == [b"x"]


@pytest.mark.parametrize(
    ("lengths", "counts"),
    [
        pytest.param([1], [1], id="one"),
        pytest.param([1] * FEEDS_AT_ONCE, [FEEDS_AT_ONCE], id="as many as there may be"),
        pytest.param([1] * (FEEDS_AT_ONCE + 1), [FEEDS_AT_ONCE, 1], id="one more"),
        pytest.param([MAX_ASKED], [1], id="as long as there may be"),
        pytest.param([MAX_ASKED + 1, 1, MAX_ASKED], [1, 1, 1], id="longer ones"),
        pytest.param([MAX_ASKED - 1, 1, MAX_ASKED - 1, 1, 1], [2, 2, 1], id="as long together"),
    ],
)
def test_a_question_is_bounded(lengths: list[int], counts: list[int]) -> None:
    filters = ["f" * length for length in lengths]
    questions = list(asked_at_once(filters))
    assert [filter for question in questions for filter in question] == filters
    assert list(map(len, questions)) == counts


async def test_sessions_that_end_leave_no_consumer(autojump_clock: MockClock) -> None:
    async with testing.broker(workers=3) as b:
        await b.streams.create(ORDERS)
        for expiry in (0, 10):
            for shard in range(3):
                async with stay(b, shard, session_expiry=expiry) as wire:
                    await wire.subscribe((FILTER, 1), properties=EARLIEST)
                    await wire.disconnect()
            await trio.sleep(20)
            assert consumers(b) == []
        async with stay(b, 1) as wire:
            await wire.subscribe((FILTER, 1))
        assert consumers(b) == [at(b, 1)]
        with b.faults.cut_link(0, 1):
            async with stay(b, 1, session_expiry=0) as wire:
                await wire.disconnect()
            assert consumers(b) == [at(b, 1)], "nobody could say it"
        await b.wait_until(lambda: not consumers(b))


async def test_what_a_stream_refuses_is_refused_by_puback_at_every_shard() -> None:
    small = StreamConfig(name="orders", filters=("orders/#",), max_messages=2, discard=Discard.NEW)
    async with testing.broker(workers=3) as b, three(b) as wires, publishers(b) as others:
        await b.streams.create(small)
        for wire in wires:
            await wire.subscribe(("orders/#", 0))
        await publish(others[1], 0, 2)
        for wire in wires:
            assert await payloads(wire, 2) == numbers(0, 2)
        for other in others:
            answer = await other.publish("orders/1", b"no", qos=1)
            assert answer is not None
            assert answer.reason == 0x97
            assert answer.get(raw.REASON_STRING) == "the stream 'orders' is full"
        assert b.streams.info("orders").messages == 2
        assert (await b.metrics())["messages.dropped.stream_full"] == 3
        for wire in wires:
            assert await payloads(wire, 2) == [b"no"] * 2, "but that of the shard with the stream"
            await wire.expect_nothing()


async def test_of_a_burst_each_message_is_refused_or_not() -> None:
    small = StreamConfig(name="orders", filters=("orders/#",), max_messages=3, discard=Discard.NEW)
    async with testing.broker(workers=3) as b, three(b) as wires, publishers(b) as others:
        await b.streams.create(small)
        for wire in wires:
            await wire.subscribe(("orders/#", 0), ("other", 0))
        await publish(others[1], 0, 1)
        await others[1].publish("other", b"0", qos=1)  # whether it may is known from now on
        some = [raw.publish("orders/0", b"%d" % number, qos=1, packet_id=number) for number in range(1, 6)]
        await others[1].send(*some, raw.publish("other", b"6", qos=1, packet_id=6))
        answers = [await others[1].expect_type(raw.PUBACK) for _ in range(6)]
        assert [(answer.packet_id, answer.reason) for answer in answers] == [
            (1, 0),
            (2, 0),
            *[(number, 0x97) for number in range(3, 6)],
            (6, 0),
        ]
        assert b.streams.info("orders").messages == 3
        for wire in wires:
            assert sorted(await payloads(wire, 8)) == sorted([b"0", *numbers(0, 7)])
            await wire.expect_nothing()


@pytest.mark.parametrize(("version", "explains"), [(5, 1), (5, 0), (4, 1)])
async def test_a_late_refusal_says_why_to_whom_it_may(version: int, explains: int) -> None:
    small = StreamConfig(name="orders", filters=("orders/#",), max_messages=1, discard=Discard.NEW)
    async with testing.broker(workers=2) as b, Wire(b.connect(), version=version) as wire:
        await b.streams.create(small)
        properties = raw.request_problem_information(explains) if version == 5 else b""
        await wire.connect(at(b, 1), properties=properties)
        await publish(wire, 0, 1)
        await wire.send(raw.publish("orders/1", b"no", qos=1, packet_id=7, version=version))
        if version == 4:
            await wire.expect(raw.ack(raw.PUBACK, 7))
        else:
            answer = await wire.expect_type(raw.PUBACK)
            assert answer.reason == 0x97
            assert answer.get(raw.REASON_STRING) == ("the stream 'orders' is full" if explains else None)


async def test_who_has_gone_before_it_was_known_is_not_answered() -> None:
    async with testing.broker(workers=2) as b:
        await b.streams.create(ORDERS)
        async with stay(b, 1) as wire:
            await publish(wire, 0, 1)
            with b.faults.stall_link(0, 1):
                await wire.send(raw.publish("orders/1", b"1", qos=1, packet_id=7))
                await wire.ping()
                async with stay(b, 1) as again:
                    await again.ping()
                    b.faults.clear()
                    await b.wait_until(lambda: b.streams.info("orders").messages == 2)
                    await publish(again, 2, 3)
                    await again.expect_nothing()
                    assert (await b.metrics())["packets.puback.sent"] == 2


async def test_what_waits_for_another_shard_counts_as_unacknowledged(tmp_path: Path) -> None:
    settings = store(tmp_path, stored=True)
    limits = {"max_unacknowledged_bytes": 1000}
    async with testing.broker(workers=2, mqtt=limits, **settings) as b, Wire(b.connect()) as wire:
        await b.streams.create(ORDERS)
        await wire.connect(at(b, 1), properties=raw.session_expiry(1000))
        await publish(wire, 0, 1)
        before = (await b.metrics())["messages.received"]
        with b.faults.stall_link(0, 1):
            for number in range(1, 4):
                await wire.send(raw.publish("orders/1", bytes(1000), qos=1, packet_id=number))
                await wait_all_tasks_blocked()
            assert (await b.metrics())["messages.received"] - before == 1, "it is not read from"
        for _ in range(3):
            await wire.expect_type(raw.PUBACK)


async def test_no_message_comes_before_the_suback() -> None:
    async with testing.broker(workers=2) as b, Wire(b.connect()) as wire:
        await b.streams.create(ORDERS)
        await wire.connect(at(b, 1))
        await publish(wire, 0, 3)
        filters = [(f"$stream/orders/orders/{number}", 1) for number in range(2 * FEEDS_AT_ONCE)]
        assert await wire.subscribe(*filters, properties=EARLIEST) == [1] * len(filters)
        assert sorted(await payloads(wire, 3)) == numbers(0, 3)


@pytest.mark.parametrize("stored", [False, True], ids=["memory", "stored"])
async def test_a_place_is_kept_as_long_as_its_session(tmp_path: Path, stored: bool, mock_clock: MockClock) -> None:
    kept = StreamConfig(name="orders", filters=("orders/#",), retention=Retention.INTEREST)
    async with testing.broker(workers=3, **store(tmp_path, stored=stored)) as b, publishers(b) as others:
        await b.streams.create(kept)
        for shard in range(3):
            async with Wire(b.connect()) as wire:
                some = raw.session_expiry(1000) + raw.receive_maximum(1)
                await wire.connect(at(b, shard), clean=False, properties=some)
                await wire.subscribe((FILTER, 1))
                await publish(others[1], 10 * shard, 10 * shard + 3)
                assert (await wire.expect_type(raw.PUBLISH)).payload == b"%d" % (10 * shard)
                await wire.disconnect()  # two are on their way
        mock_clock.jump(500)
        await wait_all_tasks_blocked()
        with b.faults.cut_link(0, 1):
            mock_clock.jump(50)
            await wait_all_tasks_blocked()
        await publish(others[1], 30, 33)
        for shard in range(3):
            expected = [number for first in range(10 * shard, 40, 10) for number in range(first, first + 3)]
            async with stay(b, shard) as wire:
                assert await payloads(wire, len(expected)) == [b"%d" % number for number in expected]
                await wire.expect_nothing()


async def test_where_no_stream_is_any_more_nobody_waits_for_it() -> None:
    async with testing.broker(workers=3) as b, three(b) as wires, publishers(b) as others:
        await b.streams.create(ORDERS)
        await wires[1].subscribe(("orders/#", 0))
        await publish(others[1], 0, 1)
        await b.streams.delete("orders")
        await publish(others[0], 1, 2)
        with b.faults.stall_link(0, 1):
            await publish(others[1], 2, 3)


async def test_code_at_another_shard_is_told_where_the_streams_are() -> None:
    async with testing.broker(workers=2) as b:
        await b.streams.create(ORDERS)
        there = b._running.whole.shards[1].streams  # pyright: ignore[reportPrivateUsage]
        config = ConsumerConfig(name="c")
        for asked in (
            lambda: there.create(ORDERS),
            lambda: there.publish("orders/1", b"x"),
            lambda: there.create_consumer("orders", config),
            lambda: there.fetch("orders", "c"),
        ):
            with pytest.raises(StreamsNotOffered, match="the streams of this node are at worker 0"):
                await asked()
        assert there.list() == []


async def test_each_worker_says_who_else_has_it() -> None:
    async with testing.broker(workers=3) as b, three(b) as wires:
        await b.streams.create(ORDERS)
        await wires[1].subscribe(("orders/1", 0), ("t", 0))
        await wires[0].subscribe(("$share/g/shared", 0))
        shards = b._running.whole.shards  # pyright: ignore[reportPrivateUsage]
        for shard in shards:
            shard.trace.start()
        topics = ("orders/1", "orders/2", "t", "shared", "nobody")
        for topic in topics:
            await wires[2].publish(topic, b"x", qos=1)
        rows = [{row.topic: (row.state, row.receivers, row.others) for row in s.trace.messages()[0]} for s in shards]
        in_stream = ("routed", 0, ("stream orders",))
        assert (rows[0]["orders/1"], rows[0]["orders/2"]) == (in_stream, in_stream)
        assert rows[1] == {"orders/1": ("routed", 1, ()), "t": ("routed", 1, ())}
        away = {"orders/1": ("worker 0", "worker 1"), "orders/2": ("worker 0",), "t": ("worker 1",)}
        assert {topic: rows[2][topic] for topic in away} == {topic: ("routed", 0, each) for topic, each in away.items()}
        assert rows[2]["shared"] == ("routed", 0, ("worker 0",))
        assert rows[2]["nobody"] == ("dropped", 0, ())


# The shard with the streams is the test, see `away`


def node_of(b: Broker, shard: int) -> Node:
    return inside(b._running.whole.shards[shard])  # pyright: ignore[reportPrivateUsage]


async def test_who_gets_no_answer_is_refused_after_five_seconds(autojump_clock: MockClock) -> None:
    async with away() as (b, here), stay(b, 1) as wire:
        answers = list[Callable[[list[str]], None]]()
        here.words.answer(MAY_FEED, lambda _, asked, answer: answers.append(answer))
        began = trio.current_time()
        await wire.send(raw.subscribe(1, (FILTER, 1)))
        suback = await wire.expect_type(raw.SUBACK)
        assert trio.current_time() - began == pytest.approx(5)
        assert suback.reasons == [0x83]
        with node_of(b, 0).scheduler.turn:
            answers[0]([""])
        await wait_all_tasks_blocked()
        assert here.take_heard() == [], "it is too late"


async def test_what_was_answered_before_nobody_answers_any_more_counts(autojump_clock: MockClock) -> None:
    async with away() as (b, here), stay(b, 1) as wire:
        questions = list[int]()

        def answer_once(_: int, asked: list[object], answer: Callable[[list[str]], None]) -> None:
            questions.append(len(asked))
            if len(questions) == 1:
                answer(["no"] * len(asked))

        here.words.answer(MAY_FEED, answer_once)
        filters = [(f"$stream/orders/{number}", 1) for number in range(2 * FEEDS_AT_ONCE + 5)]
        await wire.send(raw.subscribe(1, *filters))
        suback = await wire.expect_type(raw.SUBACK)
        assert suback.reasons == [REFUSED] * FEEDS_AT_ONCE + [0x83] * (FEEDS_AT_ONCE + 5)
        assert questions == [FEEDS_AT_ONCE] * 2


async def test_where_nothing_begins_nobody_is_asked() -> None:
    async with away() as (b, _), stay(b, 1) as wire:
        with b.faults.cut_link(0, 1):
            await wait_all_tasks_blocked()
            assert await wire.subscribe((FILTER, 1), properties=raw.user_property("from", "x")) == [REFUSED]


async def test_with_each_connection_all_are_opened_anew() -> None:
    filters = [f"$stream/orders/orders/{number}" for number in range(2 * FEEDS_AT_ONCE + 1)]
    async with away() as (b, here), stay(b, 1) as wire:
        await wire.send(raw.subscribe(1, *[(filter, 1) for filter in filters]))
        await here.hear()
        asked = here.take_openings()
        for each in asked:
            await here.say(FeedOpened(each.name, each.opening, 1, 0, ""))
        await wire.expect_type(raw.SUBACK)
        await wait_all_tasks_blocked()
        here.take_heard()
        with b.faults.cut_link(0, 1):
            await wait_all_tasks_blocked()
        await here.hear()
        again = here.take_openings()
        assert [each.name for each in again] == [each.name for each in asked]
        assert len({each.opening for each in asked + again}) == 2 * len(filters)


async def test_another_shard_that_comes_is_not_the_one_with_the_streams() -> None:
    async with away(workers=3) as (b, here), stay(b, 1) as wire:
        await subscribe(wire, here)
        here.take_heard()
        with b.faults.cut_link(1, 2):
            await wait_all_tasks_blocked()
        await b.wait_until(lambda: node_of(b, 1).services.pubsub.peers[2].is_up)  # type: ignore[attr-defined]
        await wait_all_tasks_blocked()
        assert here.take_heard() == []


async def test_what_ends_before_its_turn_is_not_opened_anew() -> None:
    async with away() as (b, here), stay(b, 1) as wire:
        asked = await subscribe(wire, here)
        node = node_of(b, 1)
        assert isinstance(node.feeds, AwayStreams)
        assert node.words is not None
        await wait_all_tasks_blocked()
        here.take_heard()
        with node.scheduler.turn:
            node.words.has_come(0)
            node.feeds.close(asked.name, asked.stream, has_ended=True)
        await wait_all_tasks_blocked()
        assert here.take_heard() == [CloseFeed(asked.name, asked.stream, has_ended=True)]


async def test_a_consumer_of_nobody_is_closed() -> None:
    async with away() as (b, here), stay(b, 1) as wire:
        asked = await subscribe(wire, here)
        await wait_all_tasks_blocked()
        here.take_heard()
        known, client = KnownFeed(asked.name, "orders", at(b, 1), FILTER), at(b, 1)
        unknown = [
            KnownFeed("of nobody", "orders", "nobody", FILTER),
            KnownFeed("of another filter", "orders", client, "$stream/orders/x"),
            KnownFeed("of a former session", "orders", client, FILTER),
            *[KnownFeed(f"f{number}", "orders", "nobody", FILTER) for number in range(2 * FEEDS_AT_ONCE)],
        ]
        await here.say(KnownFeeds([known, *unknown[:3]]), KnownFeeds(unknown[3:]))
        assert here.take_heard() == [CloseFeed(each.name, "orders", has_ended=True) for each in unknown]
        await here.feed(asked, 1)
        assert await payloads(wire, 1) == [b"1"]


async def test_a_subscription_that_has_ended_unheard_is_closed_when_it_is_named() -> None:
    async with away() as (b, here), stay(b, 1) as wire:
        asked = await subscribe(wire, here)
        with b.faults.cut_link(0, 1):
            await wire.send(raw.unsubscribe(1, FILTER))
            await wire.expect_type(raw.UNSUBACK)
        await b.wait_until(lambda: here.peer.is_up)
        await wait_all_tasks_blocked()
        here.take_heard()
        await here.say(KnownFeeds([KnownFeed(asked.name, "orders", at(b, 1), FILTER)]))
        assert here.take_heard() == [CloseFeed(asked.name, "orders", has_ended=True)]


async def test_what_was_to_be_looked_at_before_the_link_was_cut_is_forgotten() -> None:
    """The other shard names it again."""
    async with away() as (b, here):
        node = node_of(b, 1)
        assert node.words is not None
        known = KnownFeeds([KnownFeed("f", "orders", "nobody", FILTER)])
        with node.scheduler.turn:
            node.words.heard(0, Said(FEEDS, 0, feed_to_plain(known)))
            node.words.has_come(0)
        await wait_all_tasks_blocked()
        assert here.take_heard() == []


async def test_what_nobody_says_where_no_streams_are_costs_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    async with away() as (b, here), stay(b, 1) as wire:
        asked = await subscribe(wire, here)
        await here.say(FeedRoom("f", 1, 0, 1, 1))
        assert "worker 0 says FeedRoom where no streams are" in caplog.text
        await here.feed(asked, 1)
        assert await payloads(wire, 1) == [b"1"]


async def test_what_cannot_be_kept_for_a_shard_that_is_down_is_answered_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peer, "MAX_WAITING", 0)
    async with testing.broker(workers=2) as b, stay(b, 1) as wire:
        await b.streams.create(ORDERS)
        await publish(wire, 0, 1)
        with b.faults.cut_link(0, 1):
            await wait_all_tasks_blocked()
            await publish(wire, 1, 2)
        assert b.streams.info("orders").messages == 1
        await wire.ping()


async def test_what_comes_for_nobody_is_of_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async with away() as (_, here):
        nobody = OpenFeed("nobody", 1, "orders", {}, 0, 0, is_new=True)
        await here.feed(nobody, 1)
        await here.say(FeedOpened("nobody", 1, 1, 0, ""), FeedEnded("nobody", 1))
        assert here.take_heard() == []
        assert not [record.message for record in caplog.records if record.levelno >= WARNING]


async def test_what_has_ended_there_is_not_opened_anew() -> None:
    async with away() as (b, here), stay(b, 1) as wire:
        asked = await subscribe(wire, here)
        await here.say(FeedEnded(asked.name, asked.opening - 1))
        await here.feed(asked, 1)
        assert await payloads(wire, 1) == [b"1"]
        await here.say(FeedEnded(asked.name, asked.opening))
        await here.feed(asked, 2)
        await wire.expect_nothing()
        here.take_heard()
        with b.faults.cut_link(0, 1):
            await wait_all_tasks_blocked()
        await b.wait_until(lambda: here.peer.is_up)
        await wait_all_tasks_blocked()
        assert here.take_heard() == []
