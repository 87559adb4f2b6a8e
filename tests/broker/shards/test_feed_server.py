"""The shard with the streams sends no more than there is room for."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.broker.inside import inside
from tests.broker.shards.fed import (
    EARLIEST,
    FILTER,
    ORDERS,
    Shard,
    numbers,
    payloads,
    publish,
    publishers,
    stay,
    store,
    unstored,
)
from tests.conformance import raw
from tests.testing.three import at, three
from tests.wire import Wire
from trunkline import nats, testing
from trunkline.broker.links.frames import Said
from trunkline.broker.links.link import CREDIT
from trunkline.broker.session import stream_start
from trunkline.broker.session.feeds import FEEDS_AT_ONCE
from trunkline.broker.session.stream_feed import MAX_TAKEN, PAUSE
from trunkline.broker.shards.away_feeds import MAX_BYTES, MAX_MESSAGES
from trunkline.broker.shards.feed_server import KNOWN_AT_ONCE
from trunkline.broker.shards.feed_words import (
    FEEDS,
    MAY_FEED,
    CloseFeed,
    FeedEnded,
    FeedMessage,
    FeedOpened,
    FeedRoom,
    KnownFeed,
    KnownFeeds,
    OpenFeed,
    feed_to_plain,
)
from trunkline.nats.jetstream import configs
from trunkline.store import StoreError
from trunkline.streams import AckPolicy, ConsumerConfig, DeliverPolicy, Retention, StreamConfig
from trunkline.streams.info import ConsumerInfo
from trunkline.streams.log import StreamLog
from trunkline.testing.broker import Broker


async def test_large_messages_are_bounded_by_their_bytes() -> None:
    large = StreamConfig(name="orders", filters=("orders/#",))
    async with testing.broker(workers=3) as b, publishers(b) as others:
        await b.streams.create(large)
        for number in range(30):
            await others[0].publish("orders/1", b"%d" % number + bytes(50_000), qos=1)
        async with Wire(b.connect()) as wire:
            await wire.connect(at(b, 1), properties=raw.receive_maximum(1))
            await wire.subscribe((FILTER, 1), properties=EARLIEST)
            first = await wire.receive()
            await wire.ping()
            (info,) = b.streams.consumers("orders")
            assert info.pending >= 30 - 1 - MAX_BYTES // 50_000 - 1
            await wire.acknowledge(first)
            assert [payload.rstrip(b"\0") for payload in await payloads(wire, 29)] == [b"%d" % n for n in range(1, 30)]


async def test_a_client_that_does_not_acknowledge_costs_its_window_and_a_little_at_its_shard() -> None:
    async with testing.broker(workers=3) as b, publishers(b) as others:
        await b.streams.create(ORDERS)
        await publish(others[0], 0, 500)
        async with Wire(b.connect()) as wire:
            await wire.connect(at(b, 1), properties=raw.receive_maximum(5))
            await wire.subscribe((FILTER, 1), properties=EARLIEST)
            held = [await wire.receive() for _ in range(5)]
            await wire.ping()
            (info,) = b.streams.consumers("orders")
            assert info.pending >= 500 - MAX_MESSAGES - 5
            for packet in held:
                await wire.acknowledge(packet)
            assert await payloads(wire, 495) == numbers(5, 500)
            await b.wait_until(lambda: not b.streams.consumers("orders")[0].ack_pending)


async def test_nothing_is_sent_to_whom_has_gone_while_the_link_was_cut(tmp_path: Path) -> None:
    async with testing.broker(workers=3, **store(tmp_path, stored=True)) as b, publishers(b) as others:
        await b.streams.create(ORDERS)
        async with stay(b, 1) as wire:
            await wire.subscribe((FILTER, 1))
            await publish(others[0], 0, 1)
            assert await payloads(wire, 1) == numbers(0, 1)
            with b.faults.cut_link(0, 1):
                await wire.disconnect()
        await wait_all_tasks_blocked()
        await publish(others[0], 1, 4)
        await wait_all_tasks_blocked()
        (info,) = b.streams.consumers("orders")
        assert info.pending == 3


async def test_a_stream_that_is_deleted_ends_its_subscriptions() -> None:
    async with testing.broker(workers=3) as b, three(b) as wires, publishers(b) as others:
        await b.streams.create(ORDERS)
        for wire in wires:
            await wire.subscribe((FILTER, 1), properties=EARLIEST)
        await publish(others[0], 0, 3)
        for wire in wires:
            assert await payloads(wire, 3) == numbers(0, 3)
        await b.streams.delete("orders")
        await b.streams.create(ORDERS)
        for wire in wires:
            assert await wire.subscribe((FILTER, 1), properties=EARLIEST) == [1]
        await publish(others[1], 3, 6)
        for wire in wires:
            assert await payloads(wire, 3) == numbers(3, 6)
            await wire.expect_nothing()


async def test_what_a_consumer_of_nats_pushes_reaches_clients_of_mqtt_anywhere() -> None:
    async with testing.broker(listeners=["nats://127.0.0.1:0"], workers=3) as b, three(b) as wires:
        await b.streams.create(ORDERS)
        async with nats.connect(b.url) as service, publishers(b) as others:
            jetstream = service.jetstream()
            config = configs.ConsumerConfig(
                durable="c", deliver_subject="pushed.here", ack_policy=configs.AckPolicy.NONE
            )
            await jetstream.create_consumer("orders", config)
            await publish(others[2], 0, 2)
            await wires[1].subscribe(("pushed/here", 0))
            assert [(await wires[1].expect_type(raw.PUBLISH)).payload for _ in range(2)] == numbers(0, 2)
            assert (await jetstream.consumer("orders", "c")).push_bound


# The other shard is the test


class Served(NamedTuple):
    b: Broker
    there: Shard

    @property
    def number(self) -> int:
        """Of the stream."""
        return inside(self.b._running.whole.shards[0]).stream_keeper.registry.get("orders").log.number  # pyright: ignore[reportPrivateUsage]

    def consumer(self) -> ConsumerInfo:
        """There is one."""
        (info,) = self.b.streams.consumers("orders")
        return info


@asynccontextmanager
async def served(messages: int = 0, *, stream: StreamConfig = ORDERS, **settings: Any) -> AsyncIterator[Served]:
    """So many messages are in a stream, with their sequences as payloads."""
    async with testing.broker(workers=2, **settings) as b:
        await b.streams.create(stream)
        for number in range(1, messages + 1):
            await b.streams.publish("orders/0", b"%d" % number)
        yield Served(b, Shard(b, 1))


def asking(
    opening: int = 1, number: int = 0, sequence: int = 0, *, name: str = "f", is_new: bool = True, **config: Any
) -> OpenFeed:
    """The session is at this sequence of the stream with this number."""
    wanted: dict[str, Any] = {"deliver_policy": DeliverPolicy.ALL, "ack_policy": AckPolicy.ALL, "ack_wait": 1e9}
    made = ConsumerConfig(name=name, **wanted | config)
    return OpenFeed(name, opening, "orders", made.to_plain(), number, sequence, is_new)


def room(
    messages: int, opening: int = 1, *, name: str = "f", sequence: int = 0, byte_size: int = MAX_BYTES
) -> FeedRoom:
    return FeedRoom(name, opening, sequence, messages, byte_size)


def gone(name: str = "f", *, has_ended: bool = False) -> CloseFeed:
    return CloseFeed(name, "orders", has_ended)


async def test_it_begins_where_it_wants_and_gets_what_there_is_room_for() -> None:
    async with served(10) as here:
        there = here.there
        await there.say(asking(deliver_policy=DeliverPolicy.NEW), asking(name="all"))
        assert there.take_heard() == [
            FeedOpened("f", 1, here.number, 10, ""),
            FeedOpened("all", 1, here.number, 0, ""),
        ]
        assert there.take_fed() == [], "there is no room"
        await there.say(room(3, name="all"))
        assert there.take_fed() == [1, 2, 3]
        await there.say(room(3, name="all", sequence=2))
        assert there.take_fed() == [], "it is room for what has come"
        await there.say(room(5, name="all"), room(5))
        assert there.take_fed() == [4, 5]
        await here.b.streams.publish("orders/0", b"11")
        await wait_all_tasks_blocked()
        assert there.take_fed() == [11]


async def test_there_is_room_for_bytes_and_for_what_goes_over_them() -> None:
    async with served(10) as here:
        there = here.there
        await there.say(asking(), room(1))
        ((about, message),) = there.fed
        assert (about, message.payload, message.qos) == (FeedMessage("f", 1, 1, 1, about.byte_size), b"1", 0)
        there.take_fed()
        await there.say(room(9, byte_size=3 * about.byte_size))
        assert there.take_fed() == [2, 3]
        await there.say(room(9, byte_size=3 * about.byte_size + 1))
        assert there.take_fed() == [4]
        await there.say(room(9, byte_size=MAX_BYTES))
        assert there.take_fed() == [5, 6, 7, 8, 9]


async def test_what_has_come_is_acknowledged() -> None:
    async with served(10) as here:
        await here.there.say(asking(), room(5))
        assert here.consumer().ack_pending == 5
        await here.there.say(room(5, sequence=3))
        assert here.consumer().ack_pending == 2
        assert here.consumer().ack_floor_stream_sequence == 3


async def test_a_former_opening_has_no_room_and_acknowledges_nothing() -> None:
    async with served(10) as here:
        there = here.there
        await there.say(asking(), room(2))
        await there.say(asking(2, is_new=False))
        assert there.take_fed() == [1, 2]
        await there.say(room(9, 1, sequence=2))
        assert there.take_fed() == []
        assert here.consumer().ack_pending == 2
        assert there.take_heard()[1:] == [FeedOpened("f", 2, here.number, 0, "")]
        await there.say(room(3, 2))
        assert there.take_fed() == [1, 2, 3], "what was on its way comes again"
        await there.say(room(9, name="unknown"))
        assert there.take_fed() == []


async def test_a_new_subscription_begins_where_it_wants_whatever_a_former_one_has_got() -> None:
    async with served(10) as here:
        there = here.there
        await there.say(asking(), room(5, sequence=4), gone(), asking(2), room(2, 2))
        assert there.take_fed()[-2:] == [1, 2]
        await there.say(gone(), asking(3, is_new=False), room(4, 3))
        assert there.take_fed() == [1, 2, 3, 4], "it is the same one"


async def test_nothing_is_kept_for_a_former_subscription() -> None:
    kept = StreamConfig(name="orders", filters=("orders/#",), retention=Retention.INTEREST)
    async with served(stream=kept) as here:
        await here.there.say(asking())
        for _ in range(3):
            await here.b.streams.publish("orders/0", b"x")
        assert here.b.streams.info("orders").messages == 3
        await here.there.say(asking(2, deliver_policy=DeliverPolicy.NEW))
        assert here.b.streams.info("orders").messages == 0


async def test_who_knows_how_far_it_has_come_goes_on_there() -> None:
    async with served(10) as here:
        there, number = here.there, here.number
        await there.say(asking(), room(4))
        await there.say(asking(2, number, 3, is_new=False), room(2, 2))
        assert there.take_fed() == [1, 2, 3, 4, 4, 5]
        await there.say(asking(3, number, 7, is_new=False), room(1, 3))
        assert there.take_fed() == [8]
        await there.say(asking(4, number + 1, 9, is_new=False), room(1, 4))
        assert there.take_fed() == [8], "that was another stream"
        assert [each.sequence for each in there.take_heard()] == [0, 3, 7, 7]  # type: ignore[union-attr]


async def test_a_consumer_that_was_lost_with_its_shard_begins_behind_what_its_session_has() -> None:
    async with served(10) as here:
        there, number = here.there, here.number
        by_time: dict[str, Any] = {"deliver_policy": DeliverPolicy.BY_START_TIME, "start_time": 0.0}
        await there.say(asking(1, number, 6, is_new=False, **by_time), room(2))
        assert there.take_heard() == [FeedOpened("f", 1, number, 6, "")]
        assert there.take_fed() == [7, 8]
        await there.say(asking(1, number + 1, 6, name="of another stream", is_new=False))
        await there.say(room(2, name="of another stream"))
        assert there.take_fed() == [1, 2]


async def test_nothing_is_said_before_it_is_stored(tmp_path: Path) -> None:
    async with served(1, **store(tmp_path, stored=True)) as here:
        there = here.there
        with unstored(here.b, 0):
            await there.say(asking())
            assert there.take_heard() == []
        await there.hear()
        assert there.take_heard() == [FeedOpened("f", 1, here.number, 0, "")]
        await there.say(room(2))
        await here.b.wait_until(lambda: there.take_fed() == [1])
        with unstored(here.b, 0):
            inside(here.b._running.whole.shards[0]).messages.publish("orders/0", b"2", qos=1)  # pyright: ignore[reportPrivateUsage]
            await wait_all_tasks_blocked()
            assert there.take_fed() == []
        await here.b.wait_until(lambda: there.take_fed() == [2])


async def test_what_there_is_not_is_refused() -> None:
    async with served() as here:
        there = here.there
        nowhere = asking(2)._replace(stream="nowhere")
        await there.say(asking(1, is_new=False), nowhere)
        assert there.take_heard() == [
            FeedOpened("f", 1, 0, 0, "the stream 'orders' has no consumer 'f'"),
            FeedOpened("f", 2, 0, 0, "there is no stream 'nowhere'"),
        ]
        assert here.b.streams.consumers("orders") == []


async def test_one_that_was_there_is_closed_when_it_is_refused() -> None:
    async with served(5) as here:
        there = here.there
        await there.say(asking(), room(1))
        await there.say(asking(2)._replace(stream="nowhere"), room(5))
        assert there.take_fed() == [1]


async def test_who_has_gone_gets_nothing_and_finds_its_place(autojump_clock: MockClock) -> None:
    async with served(5) as here:
        there = here.there
        await there.say(asking(inactive_threshold=10.0), room(2))
        await there.say(gone(), room(5))
        assert there.take_fed() == [1, 2]
        await there.say(asking(2, here.number, 2, is_new=False), room(3, 2))
        assert there.take_fed() == [3, 4, 5]
        await trio.sleep(100)
        assert here.consumer().name == "f", "somebody receives from it"
        await there.say(gone())
        await trio.sleep(5)
        assert here.consumer().name == "f"
        await trio.sleep(10)
        assert here.b.streams.consumers("orders") == []


async def test_who_goes_before_its_turn_gets_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with served(5) as here:
        await here.there.say(asking(), room(2), gone())
        assert here.there.take_fed() == []
        assert "crashed" not in caplog.text


async def test_feeds_take_turns() -> None:
    async with served(3 * MAX_TAKEN) as here:
        await here.there.say(*[asking(name=name) for name in "ab"], *[room(1000, name=name) for name in "ab"])
        names = "".join(about.name for about, _ in here.there.fed)
        assert names == ("a" * MAX_TAKEN + "b" * MAX_TAKEN) * 3


async def test_others_have_their_turns_while_many_are_opened() -> None:
    async with served() as here:
        node, steps = inside(here.b._running.whole.shards[0]), [0]  # pyright: ignore[reportPrivateUsage]
        assert node.words is not None
        with node.scheduler.turn:
            for number in range(8 * FEEDS_AT_ONCE):
                node.words.heard(1, Said(FEEDS, 0, feed_to_plain(asking(name=f"f{number}"))))
        while steps[-1] < 8 * FEEDS_AT_ONCE:
            await trio.lowlevel.checkpoint()
            steps.append(len(here.b.streams.consumers("orders")))
        assert max(after - before for before, after in pairwise(steps)) <= 2 * FEEDS_AT_ONCE  # two may come in a row


async def test_a_subscription_that_ends_takes_its_consumer_with_it() -> None:
    async with served(5) as here:
        there = here.there
        await there.say(asking(), asking(name="other"), asking(name="third"), gone("third"))
        there.take_heard()
        ended = [gone(name, has_ended=True) for name in ("f", "third", "unknown")]
        await there.say(*ended, CloseFeed("other", "nowhere", has_ended=True), asking(name="last"))
        assert there.take_heard() == [FeedOpened("last", 1, here.number, 0, "")]
        assert [each.name for each in here.b.streams.consumers("orders")] == ["last", "other"]
        await there.say(room(5), room(5, name="other"))
        assert (there.take_fed(), there.take_heard()) == ([], []), "it has ended, or is closed"


async def test_a_consumer_that_is_deleted_ends_the_feed_once() -> None:
    async with served(5) as here:
        there = here.there
        await there.say(asking(7), room(2, 7), asking(1, name="other"))
        await here.b.streams.delete_consumer("orders", "f")
        await wait_all_tasks_blocked()
        assert there.take_heard()[2:] == [FeedEnded("f", 7)]
        await there.say(room(5, 7), room(3, name="other"))
        assert there.take_heard() == []
        assert there.take_fed() == [1, 2, 1, 2, 3]


async def test_nothing_leaves_of_a_stream_that_is_no_more() -> None:
    async with served(5) as here:
        await here.there.say(asking())
        here.there.take_heard()
        node = inside(here.b._running.whole.shards[0])  # pyright: ignore[reportPrivateUsage]
        assert node.words is not None
        with node.scheduler.turn:
            node.words.heard(1, Said(FEEDS, 0, feed_to_plain(room(5))))
            node.stream_keeper.registry.delete("orders")
        await wait_all_tasks_blocked()
        assert (here.there.take_heard(), here.there.take_fed()) == ([FeedEnded("f", 1)], [])


@pytest.mark.parametrize("count", [KNOWN_AT_ONCE, KNOWN_AT_ONCE + 50])
async def test_a_shard_that_comes_is_told_which_consumers_are_for_its_sessions(count: int) -> None:
    async with served() as here:
        there = here.there
        own, other = at(here.b, 1), at(here.b, 0)
        about = {stream_start.CLIENT: own, stream_start.FILTER: FILTER}
        await there.say(*[asking(name=f"f{number}", metadata=about) for number in range(count - 1)])
        await there.say(asking(name="old", metadata={stream_start.CLIENT: own}))
        await there.say(
            asking(name="elsewhere", metadata=about | {stream_start.CLIENT: other}), asking(name="nobody's")
        )
        there.take_heard()
        with here.b.faults.cut_link(0, 1):
            await wait_all_tasks_blocked()
        await there.hear()
        heard = [each.feeds for each in there.take_heard() if isinstance(each, KnownFeeds)]
        assert [len(each) for each in heard] == [KNOWN_AT_ONCE, 50][: len(heard)]
        expected = [KnownFeed(f"f{number}", "orders", own, FILTER) for number in range(count - 1)]
        assert [each for some in heard for each in some] == [*expected, KnownFeed("old", "orders", own, "")]
        await there.say(asking(2, name="one more"))
        assert [type(each) for each in there.take_heard()] == [FeedOpened], "once"


async def test_what_was_open_before_the_link_was_cut_is_closed() -> None:
    async with served(5) as here:
        there = here.there
        await there.say(asking(), room(2))
        assert there.take_fed() == [1, 2]
        with here.b.faults.cut_link(0, 1):
            await wait_all_tasks_blocked()
        await here.b.wait_until(lambda: there.peer.is_up)
        await there.say(room(5))
        assert there.take_fed() == []
        await there.say(asking(2, is_new=False), room(3, 2))
        assert there.take_fed() == [1, 2, 3]


async def test_what_was_said_before_the_link_was_cut_and_not_done_is_forgotten() -> None:
    async with served() as here:
        node = inside(here.b._running.whole.shards[0])  # pyright: ignore[reportPrivateUsage]
        words = node.words
        assert words is not None
        with node.scheduler.turn:
            words.heard(1, Said(FEEDS, 0, feed_to_plain(asking())))
            words.has_come(1)
        await wait_all_tasks_blocked()
        assert here.there.take_heard() == []
        assert here.b.streams.consumers("orders") == []


async def test_whether_there_may_be_such_consumers() -> None:
    one = StreamConfig(name="orders", filters=("orders/#",), max_consumers=1)
    async with served(stream=one) as here:
        there = here.there
        f, other = asking().config, asking(name="other").config
        assert await there.ask(MAY_FEED, [("orders", f), ("orders", other)]) == ["", ""]
        await there.say(asking())
        assert await there.ask(MAY_FEED, [("orders", f), ("orders", other), ("nowhere", f)]) == [
            "",  # it is that one
            "the stream 'orders' has 1 consumers, and may have no more",
            "there is no stream 'nowhere'",
        ]


async def test_what_cannot_be_read_is_read_again(
    tmp_path: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(5, **store(tmp_path, stored=True)) as here:
        await here.b.restart()
        there = Shard(here.b, 1)

        async def fail(*about: object) -> None:
            raise StoreError("the disk says no")

        with monkeypatch.context() as patched:
            patched.setattr(StreamLog, "fetch", fail)
            await there.say(asking(), room(5))
            assert "the stream orders cannot be read: the disk says no" in caplog.text
        mock_clock.jump(PAUSE / 2)
        await wait_all_tasks_blocked()
        assert there.take_fed() == []
        mock_clock.jump(PAUSE / 2)
        await here.b.wait_until(lambda: len(there.fed) == 5)


async def test_a_stream_that_cannot_be_read_holds_up_no_other(
    tmp_path: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch, tried = StreamLog.fetch, list[str]()

    async def fail(log: StreamLog, *about: Any) -> None:
        tried.append(log.config.name)
        if log.config.name == "orders":
            raise StoreError("the disk says no")
        await fetch(log, *about)

    async with served(5, **store(tmp_path, stored=True)) as here:
        await here.b.streams.create(StreamConfig(name="others", filters=("others/#",)))
        await here.b.streams.publish("others/0", b"0")
        await here.b.restart()
        there = Shard(here.b, 1)
        monkeypatch.setattr(StreamLog, "fetch", fail)
        await there.say(asking(name="g"), asking(name="h"), room(5, name="g"), room(5, name="h"))
        await there.say(asking()._replace(stream="others"), room(5))
        while not there.fed:
            await wait_all_tasks_blocked(0.01)
        assert [about.name for about, _ in there.fed] == ["f"]
        await there.say(room(6, name="g"))
        assert tried.count("orders") == 1, "it rests, whoever wants to read it"
        mock_clock.jump(PAUSE)
        await wait_all_tasks_blocked()
        assert tried.count("orders") == 2
        monkeypatch.undo()
        mock_clock.jump(PAUSE)
        while len(there.fed) < 11:
            await wait_all_tasks_blocked(0.01)
        assert [sum(about.name == name for about, _ in there.fed) for name in "fgh"] == [1, 5, 5]


async def test_no_more_is_taken_than_the_link_has_room_for() -> None:
    large = 50_000
    async with served() as here:
        there = here.there
        await there.say(asking(), room(1000, byte_size=1 << 30))
        with here.b.faults.stall_link(0, 1):
            for _ in range(4 * CREDIT // large):
                await here.b.streams.publish("orders/0", bytes(large))
            await wait_all_tasks_blocked()
            assert here.consumer().ack_pending < 3 * CREDIT // large
        await here.b.wait_until(lambda: len(there.fed) == 4 * CREDIT // large)


async def test_a_link_that_breaks_while_it_is_full_holds_nobody_up() -> None:
    large = 50_000
    async with served() as here:
        there = here.there
        await there.say(asking(), room(1000, byte_size=1 << 30))
        with here.b.faults.stall_link(0, 1):
            for _ in range(2 * CREDIT // large):
                await here.b.streams.publish("orders/0", bytes(large))
            await wait_all_tasks_blocked()
            with here.b.faults.cut_link(0, 1):
                await wait_all_tasks_blocked()
        await here.b.wait_until(lambda: there.peer.is_up)
        await wait_all_tasks_blocked()
        there.take_fed()
        await there.say(asking(2, is_new=False), room(3, 2, byte_size=1 << 30))
        await here.b.wait_until(lambda: there.take_fed() == [1, 2, 3])


async def test_what_nobody_says_here_costs_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    async with served() as here:
        await here.there.say(FeedEnded("f", 1), asking())
        assert here.there.take_heard() == [FeedOpened("f", 1, here.number, 0, "")]
        assert "worker 1 says FeedEnded where the streams are" in caplog.text
