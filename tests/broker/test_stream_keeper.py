"""Streams in a broker: what clients publish, acknowledgements that wait, and what a power cut leaves."""

import gc
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.broker.disk import Disk, Life
from tests.broker.room import room
from tests.conformance import raw
from tests.store.conftest import MEMORY
from tests.streams.world import small_sizes
from trunkline.broker.stream_keeper import sink_among, stream_among
from trunkline.mqtt.properties import NO_PROPERTIES, Properties
from trunkline.mqtt.stored import StoredPublication
from trunkline.store import StoreUnavailable
from trunkline.store.memory import MemoryEngine
from trunkline.store.sqlite import SqliteEngine
from trunkline.streams import ConsumerConfig, Discard, Measure, Retention, StreamConfig, StreamOrigin, StreamRefuses
from trunkline.streams.filters import TopicFilters
from trunkline.streams.interface import Streams
from trunkline.streams.markers import is_marker
from trunkline.streams.search import topic_counts

ORDERS = StreamConfig(name="orders", filters=("orders/#",))

#: Quota exceeded.
FULL = 0x97


async def payloads(streams: Streams, name: str = "orders") -> list[bytes]:
    """All of a stream, from first to last."""
    found: list[bytes] = []
    info = streams.info(name)
    sequence = info.first_sequence
    for _ in range(info.messages):
        message = await streams.get_next(name, "#", sequence)
        found.append(message.message.payload)
        sequence = message.sequence + 1
    return found


@pytest.fixture(params=["memory", "sqlite"])
def disk(request: pytest.FixtureRequest) -> Iterator[Disk]:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        made = Disk(MemoryEngine if request.param == "memory" else lambda: SqliteEngine(Path(folder) / "s.db"))
        yield made
        made.engine.close()


# What is taken


@pytest.mark.parametrize("retention", [Retention.LIMITS, Retention.INTEREST])
async def test_messages_that_are_taken_together(retention: Retention) -> None:
    """Nothing goes in between, nor is anything refused; but ids are known, and the limits hold behind it."""
    limited = replace(ORDERS, retention=retention, max_messages=2, duplicate_window=60.0)
    async with room() as here:
        await here.node.streams.create(limited)
        services, host = here.node.services, here.node.services.streams()
        stream = host.registry.get("orders")
        if retention is Retention.INTEREST:
            await here.node.streams.create_consumer("orders", ConsumerConfig(name="c"))
        sink = sink_among(services.pubsub.router.match("orders/1").sinks)
        assert sink is not None
        assert stream_among(services.pubsub.router.match("other").sinks) is None
        with sink.together():
            for number in (b"1", b"2", b"3"):
                properties: Properties = {"user_property": [("Nats-Msg-Id", number.decode())]}
                host.publish(host.message("orders/1", number, 1, properties))
            assert stream.log.messages == 3
        assert await payloads(here.node.streams) == [b"2", b"3"]
        assert stream.known(host.message("orders/1", b"", 1, properties), host.now) == 3


async def test_together_they_are_taken_whatever_has_changed() -> None:
    async with room() as here:
        await here.node.streams.create(replace(ORDERS, max_messages=1, discard=Discard.NEW))
        host = here.node.services.streams()
        sink = sink_among(here.node.services.pubsub.router.match("orders/1").sinks)
        assert sink is not None
        with sink.together():
            assert [host.publish(host.message("orders/1", b"", 1, NO_PROPERTIES)) for _ in range(2)] == [1, 1]
        assert host.publish(host.message("orders/1", b"", 1, NO_PROPERTIES)) == 0, "and then no more"


async def test_messages_of_every_qos_and_wills_and_retained_ones(autojump_clock: MockClock) -> None:
    async with room() as here:
        await here.node.streams.create(ORDERS)
        client = await here.client("a")
        for qos in (0, 1, 2):
            await client.publish("orders/1", b"%d" % qos, qos=qos)
        await client.publish("orders/1", b"retained", qos=1, retain=True)
        await client.publish("other", b"not this", qos=1)
        here.node.messages.publish("orders/2", b"of the broker")
        dying = await here.client("b", will=raw.Will("orders/will", b"will"))
        await dying.abort()
        while here.node.streams.info("orders").messages < 6:
            await client.ping()
        assert await payloads(here.node.streams) == [b"0", b"1", b"2", b"retained", b"of the broker", b"will"]


async def test_a_stream_is_a_receiver() -> None:
    async with room() as here:
        await here.node.streams.create(ORDERS)
        client = await here.client("a")
        answer = await client.publish("orders/1", qos=1)
        assert answer is not None
        assert answer.reason == 0
        await here.node.streams.delete("orders")
        answer = await client.publish("orders/1", qos=1)
        assert answer is not None
        assert answer.reason == 0x10


async def test_a_burst_of_several_topics_is_kept_in_order() -> None:
    async with room() as here:
        await here.node.streams.create(ORDERS)
        client = await here.client("a")
        topics = [("orders/1", "other", "orders/2")[number % 3] for number in range(300)]
        await client.send(b"".join(raw.publish(topic, b"%d" % n) for n, topic in enumerate(topics)))
        await client.ping()
        wanted = [b"%d" % number for number, topic in enumerate(topics) if topic != "other"]
        assert await payloads(here.node.streams) == wanted


async def test_an_update_of_filters_holds_for_the_next_message() -> None:
    async with room() as here:
        await here.node.streams.create(ORDERS)
        client = await here.client("a")
        await client.publish("orders/1", b"1", qos=1)
        await here.node.streams.update(StreamConfig(name="orders", filters=("new/#",)))
        await client.publish("orders/1", b"2", qos=1)
        await client.publish("new/1", b"3", qos=1)
        assert await payloads(here.node.streams) == [b"1", b"3"]


# What is refused


@pytest.mark.parametrize("version", [4, 5])
async def test_a_full_stream_refuses_and_nobody_gets_the_message(version: int) -> None:
    async with room() as here:
        await here.node.streams.create(
            StreamConfig(name="orders", filters=("orders/#",), max_messages=1, discard=Discard.NEW)
        )
        subscriber = await here.client("subscriber")
        await subscriber.subscribe("orders/#")
        client = await here.client("a", version)
        for qos in (1, 2):
            answer = await client.publish("orders/1", b"%d" % qos, qos=qos)
            assert answer is not None
            assert answer.reason == (FULL if qos == 2 and version == 5 else 0)
        answer = await client.publish("orders/1", b"again", qos=1)
        assert answer is not None
        assert answer.reason == (FULL if version == 5 else 0)
        await client.publish("orders/1", b"0")
        await client.ping()
        await subscriber.take_publish("orders/1", b"1", qos=1)
        await subscriber.expect_nothing()
        assert (await here.node.figures())["messages.dropped.stream_full"] == 3


async def test_a_life_that_the_stream_does_not_allow_is_refused() -> None:
    async with room() as here:
        await here.node.streams.create(ORDERS)
        client = await here.client("a")

        async def reason(ttl: str) -> int:
            answer = await client.publish("orders/1", b"x", qos=1, properties=raw.user_property("Nats-TTL", ttl))
            assert answer is not None
            return answer.reason

        assert [await reason(ttl) for ttl in ("60", "x", "")] == [FULL, FULL, 0]
        await here.node.streams.update(replace(ORDERS, allow_message_ttl=True))
        assert [await reason(ttl) for ttl in ("60", "x", "never")] == [0, FULL, 0]


@pytest.mark.parametrize("qos", [0, 1])
async def test_of_a_burst_each_message_gets_its_own_answer(qos: int) -> None:
    async with room() as here:
        await here.node.streams.create(
            StreamConfig(name="orders", filters=("orders/#",), max_messages=5, discard=Discard.NEW)
        )
        client = await here.client("a")
        await client.send(
            b"".join(
                raw.publish("orders/1", b"%02d" % number, qos=qos, packet_id=number + 1 if qos else None)
                for number in range(20)
            )
        )
        if qos:
            answers = [await client.receive() for _ in range(20)]
            assert [answer.packet_id for answer in answers] == list(range(1, 21))
            assert [answer.reason for answer in answers] == [0] * 5 + [FULL] * 15
        await client.ping()
        assert await payloads(here.node.streams) == [b"%02d" % number for number in range(5)]


async def test_qos_2_in_a_burst_that_fills_the_stream_between_publish_and_pubrel() -> None:
    async with room() as here:
        await here.node.streams.create(
            StreamConfig(name="orders", filters=("orders/#",), max_messages=3, discard=Discard.NEW)
        )
        client, other = await here.client("a"), await here.client("b")
        await client.send(b"".join(raw.publish("orders/1", b"%d" % n, qos=2, packet_id=n + 1) for n in range(3)))
        for _ in range(3):
            await client.expect_type(raw.PUBREC)
        await other.publish("orders/1", b"first", qos=1)
        await client.send(b"".join(raw.ack(raw.PUBREL, n + 1) for n in range(3)))
        for _ in range(3):
            await client.expect_type(raw.PUBCOMP)
        assert await payloads(here.node.streams) == [b"first", b"0", b"1"]
        assert (await here.node.figures())["messages.dropped.stream_full"] == 1


# What waits, and what is left


@asynccontextmanager
async def until_cut_off(life: Life) -> AsyncGenerator[None]:
    """The rest of the block is left when the power fails."""
    async with trio.open_nursery() as nursery:

        async def stop() -> None:
            await life.cut_off.wait()
            nursery.cancel_scope.cancel()

        nursery.start_soon(stop)
        yield
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("cut_at", range(1, 12))
async def test_what_was_acknowledged_is_in_the_stream(disk: Disk, cut_at: int, applied: bool) -> None:
    sent = [(1 + number % 2, b"%d" % number) for number in range(6)]
    answered: list[bytes] = []
    async with disk.broker(cut_at, applied=applied) as life, until_cut_off(life):
        await life.node.streams.create(ORDERS)
        wire = await life.wire()
        await wire.connect("publisher", clean=False, properties=raw.session_expiry(100))
        for qos, payload in sent:
            await wire.publish("orders/1", payload, qos=qos)
            answered.append(payload)
    async with disk.broker() as life:
        names = [info.config.name for info in life.node.streams.list()]
        kept = await payloads(life.node.streams) if names else []
        assert kept[: len(answered)] == answered
        assert kept == [payload for _, payload in sent][: len(kept)]
        await life.node.streams.create(ORDERS)
        await life.node.streams.publish("orders/1", b"more")
        assert (await payloads(life.node.streams))[-1] == b"more"


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("cut_at", range(1, 9))
async def test_of_a_roll_up_all_or_nothing_is_left(disk: Disk, cut_at: int, applied: bool) -> None:
    """Its messages have to be read from the store first, and go with several commits."""
    config = replace(ORDERS, allow_rollup=True)
    rolled_up = {"user_property": [("Nats-Rollup", "sub")]}
    others = [b"%d" % number for number in range(1, 40, 2)]
    before = [b"%d" % number for number in range(40)]
    answered = 0
    with small_sizes():
        async with disk.broker() as life:
            await life.node.streams.create(config)
            await life.node.streams.create_consumer("orders", ConsumerConfig(name="work", durable=True))
            for number in range(40):
                await life.node.streams.publish(f"orders/{number % 2}", b"%d" % number)
        async with disk.broker(cut_at, applied=applied) as life, until_cut_off(life):
            wire = await life.wire()
            await wire.connect("publisher", properties=raw.session_expiry(100))
            properties = raw.user_property("Nats-Rollup", "sub")
            await wire.publish("orders/0", b"first", qos=1, properties=properties)
            answered = 1
            await life.rests()
            await life.node.streams.publish("orders/0", b"second", properties=rolled_up)
            answered = 2
        async with disk.broker() as life:
            await life.rests()
            left = await payloads(life.node.streams)
            outcomes = [before, [*others, b"first"], [*others, b"second"]]
            assert left in outcomes[answered:]
            async with life.node.streams.consume("orders", "work") as messages:
                assert [(await anext(messages)).payload for _ in left] == left
            with trio.fail_after(60):
                while life.node.streams.consumer_info("orders", "work").pending:
                    await trio.lowlevel.checkpoint()


async def test_an_acknowledgement_waits_while_the_disk_is_full() -> None:
    disk = Disk()
    async with disk.broker() as life:
        await life.node.streams.create(ORDERS)
        await life.node.streams.create(StreamConfig(name="quick", filters=("quick",), no_ack=True))
        wire = await life.wire()
        await wire.connect("a")
        life.fill()
        await wire.send(raw.publish("orders/1", b"1", qos=1, packet_id=1))
        await wire.expect_nothing()
        other = await life.wire()
        await other.connect("b")
        await other.publish("quick", qos=1)
        life.free()
        await wire.expect_type(raw.PUBACK)
        assert await payloads(life.node.streams) == [b"1"]


async def test_what_is_stored_is_held_no_longer() -> None:
    async with Disk().broker() as life:
        await life.node.streams.create(ORDERS)
        wire = await life.wire()
        await wire.connect("a")
        for number in range(20):
            await wire.publish("orders/1", b"%d" % number, qos=1)
        await life.rests()
        gc.collect()
        assert sum(each.pins for each in gc.get_objects() if isinstance(each, StoredPublication)) == 0


async def test_consumers_go_on_after_a_power_cut(disk: Disk) -> None:
    async with disk.broker() as life:
        streams = life.node.streams
        await streams.create(ORDERS)
        await streams.create_consumer("orders", ConsumerConfig(name="work", durable=True, ack_wait=0.01))
        for number in range(4):
            await streams.publish("orders/1", b"%d" % number)
        first, second = await streams.fetch("orders", "work", 2)
        await first.ack_sync()
        assert (first.payload, second.payload) == (b"0", b"1")
    async with disk.broker() as life:
        streams = life.node.streams
        info = streams.consumer_info("orders", "work")
        assert (info.ack_pending, info.pending, info.ack_floor_stream_sequence) == (1, 2, 1)
        async with streams.consume("orders", "work") as messages:
            got = [await anext(messages) for _ in range(3)]
            found = sorted((message.payload, message.delivered) for message in got)
            assert found == [(b"1", 2), (b"2", 1), (b"3", 1)]


async def test_a_refused_read_is_an_error_of_the_reader_alone() -> None:
    disk = Disk()
    async with disk.broker() as life:
        await life.node.streams.create(ORDERS)
        for number in range(3):
            await life.node.streams.publish("orders/1", b"%d" % number)
    async with disk.broker() as life:
        life.node.stream_keeper.registry.get("orders").log.memory.forget(3)

        async def fail(function: object) -> None:
            raise StoreUnavailable("no disk")

        life.node.stream_keeper.read = fail  # type: ignore[method-assign,assignment]
        with pytest.raises(StoreUnavailable):
            await life.node.streams.get("orders", 1)
        await life.node.streams.publish("orders/1", b"3")


# Time


async def test_messages_grow_old_without_traffic(autojump_clock: MockClock) -> None:
    async with room() as here:
        await here.node.streams.create(
            StreamConfig(name="orders", filters=("orders/#",), max_age=60.0, duplicate_window=10.0)
        )
        client = await here.client("a")
        await client.publish("orders/1", b"1", qos=1)
        await trio.sleep(50)
        await client.publish("orders/1", b"2", qos=1)
        await trio.sleep(11)
        assert await payloads(here.node.streams) == [b"2"]
        await trio.sleep(50)
        assert await payloads(here.node.streams) == []


async def test_messages_end_without_traffic_when_their_lives_are_over(autojump_clock: MockClock) -> None:
    async with room() as here:
        await here.node.streams.create(replace(ORDERS, allow_message_ttl=True))
        client = await here.client("a")
        properties = raw.user_property("Nats-TTL", "60s")
        await client.publish("orders/1", b"1", qos=1, properties=properties)
        await client.publish("orders/1", b"2", qos=1)
        await client.publish("orders/1", b"3", qos=1, properties=raw.message_expiry(50))
        await trio.sleep(49)
        assert await payloads(here.node.streams) == [b"1", b"2", b"3"]
        await trio.sleep(1.5)
        assert await payloads(here.node.streams) == [b"1", b"2"]
        await client.publish("orders/1", b"4", qos=1, properties=raw.user_property("Nats-TTL", "5s"))
        await trio.sleep(5.5)
        assert await payloads(here.node.streams) == [b"1", b"2"], "which ends sooner than the others"
        await trio.sleep(5)
        assert await payloads(here.node.streams) == [b"2"]


async def test_messages_end_where_they_are_stored(disk: Disk, mock_clock: MockClock) -> None:
    async with disk.broker() as life:
        await life.node.streams.create(replace(ORDERS, allow_message_ttl=True))
        await life.node.streams.publish("orders/1", b"1", properties={"user_property": [("Nats-TTL", "60")]})
        await life.node.streams.publish("orders/1", b"2", properties={"user_property": [("Nats-TTL", "70")]})
        mock_clock.jump(61)
        await until(lambda: life.node.streams.info("orders").messages == 1)
        mock_clock.jump(10)
        await until(lambda: life.node.streams.info("orders").messages == 0)


async def until(holds: Callable[[], bool]) -> None:
    with trio.fail_after(100):
        while not holds():
            await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("cut_at", range(6))
async def test_each_topic_gets_one_marker_whenever_the_power_fails(
    disk: Disk, cut_at: int, applied: bool, mock_clock: MockClock
) -> None:
    config = replace(
        ORDERS, allow_message_ttl=True, allow_rollup=True, delete_marker_ttl=90.0, max_messages_per_topic=1
    )
    topics = [f"orders/{number}" for number in range(20)]
    with small_sizes():
        async with disk.broker() as life:
            await life.node.streams.create(config)
            for topic in topics:
                await life.node.streams.publish(topic, b"x", properties={"user_property": [("Nats-TTL", "60")]})
            await life.node.streams.publish("orders/kept", b"x")
        async with disk.broker(cut_at, applied=applied) as life, until_cut_off(life):
            mock_clock.jump(61)
            for _ in range(20):  # each of these waits for a commit
                await life.node.streams.publish("orders/more", b"x")
        async with disk.broker() as life:
            await life.node.streams.publish("orders/more", b"x")
            mock_clock.jump(61)  # a failure at the first commit has left no trace of the time before
            stream = life.node.stream_keeper.registry.get("orders")
            await until(lambda: stream.log.aging.next_due > life.node.stream_keeper.now)
            counts, _ = await topic_counts(stream.log, life.node.stream_keeper, TopicFilters(()), 0, 100)
            assert dict(counts) == dict.fromkeys([*topics, "orders/kept", "orders/more"], 1)
            for topic in topics:
                found = (await life.node.streams.get_last("orders", topic)).message
                assert is_marker(found.properties)
                assert found.guid
            assert not is_marker((await life.node.streams.get_last("orders", "orders/kept")).message.properties)


async def test_an_ephemeral_consumer_ends_when_nobody_receives(autojump_clock: MockClock) -> None:
    async with room() as here:
        streams = here.node.streams
        await streams.create(ORDERS)
        kept = await streams.create_consumer("orders", ConsumerConfig(inactive_threshold=100.0))
        gone = await streams.create_consumer("orders", ConsumerConfig())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(streams.fetch, "orders", kept.name, 1, 60.0)
            await trio.sleep(30)
            assert [info.name for info in streams.consumers("orders")] == [kept.name]
        assert gone.name != kept.name
        await trio.sleep(90)
        assert len(streams.consumers("orders")) == 1
        await trio.sleep(20)
        assert not streams.consumers("orders")


async def test_a_work_queue_between_clients_and_workers(autojump_clock: MockClock) -> None:
    async with room() as here:
        streams = here.node.streams
        await streams.create(StreamConfig(name="orders", filters=("orders/#",), retention=Retention.WORK_QUEUE))
        await streams.create_consumer("orders", ConsumerConfig(name="w", deliver_group="workers", ack_wait=5.0))
        client = await here.client("a")
        for number in range(20):
            await client.publish("orders/1", b"%d" % number, qos=1)
        done: list[bytes] = []

        async def work(limit: int) -> None:
            async with streams.consume("orders", "w", group="workers", batch=2) as messages:
                async for message in messages:
                    await trio.sleep(0.1)
                    message.ack()
                    done.append(message.payload)

        async with trio.open_nursery() as nursery:
            for limit in range(3):
                nursery.start_soon(work, limit)
            await trio.sleep(10)
            nursery.cancel_scope.cancel()
        assert sorted(done) == sorted(b"%d" % number for number in range(20))
        assert streams.info("orders").messages == 0


async def test_nothing_is_published_where_the_stream_refuses() -> None:
    async with room() as here:
        await here.node.streams.create(StreamConfig(name="orders", filters=("orders/#",), max_message_size=10))
        with pytest.raises(StreamRefuses):
            await here.node.streams.publish("orders/1", b"x" * 20)
        assert here.node.streams.info("orders").messages == 0


async def test_messages_of_a_refused_commit_are_not_taken_for_stored(mock_clock: MockClock) -> None:
    async with Disk().broker() as life:
        await life.node.streams.create(ORDERS)
        await life.node.streams.publish("orders/1", b"first")
        await life.node.plugin_stores.committed()
        log = life.node.stream_keeper.registry.get("orders").log
        assert not log.unwritten_weight
        async with life.full(mock_clock), await life.wire() as wire:
            await wire.connect("a")
            await wire.send(raw.publish("orders/1", b"second", qos=1, packet_id=1, version=5))
            await wire.ping()
            await wait_all_tasks_blocked()
            await life.rests()
            assert log.unwritten_weight
        await life.node.plugin_stores.committed()
        assert not log.unwritten_weight


# Between streams


async def test_what_the_configuration_cannot_say_stays(mock_clock: MockClock) -> None:
    disk = Disk()
    origin = StreamOrigin("o")
    async with disk.broker() as life:
        made = StreamConfig(name="s", filters=("s/#",), sources=(origin,), measure=Measure.NATS_FILE)
        await life.node.streams.create(made)
    async with disk.broker(streams=[{"name": "s", "filters": ["s/#"], "max_messages": 7}]) as life:
        config = life.node.streams.info("s").config
        assert (config.max_messages, config.sources, config.measure) == (7, (origin,), Measure.NATS_FILE)


async def test_those_that_have_much_to_do_go_on_one_after_another() -> None:
    async with room() as here:
        keeper, going_on, others = here.node.stream_keeper, [0], 0

        async def look_through() -> None:
            for _ in range(5):
                await keeper.pause()
                going_on[-1] += 1

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(look_through)
            while sum(going_on) < 100:
                await trio.lowlevel.checkpoint()
                others += 1
                going_on.append(0)
        assert max(going_on) == 1


@pytest.mark.parametrize("durability", ["memory", "os"])
async def test_a_stream_follows_another_one(durability: str, tmp_path: Path) -> None:
    store = {} if durability == "memory" else {"store": {"path": str(tmp_path / "store.db"), "durability": durability}}
    async with room(**store) as here:
        streams = here.node.streams
        await streams.create(StreamConfig(name="m", filters=(), mirror=StreamOrigin("orders")))
        await streams.create(StreamConfig(name="t", filters=(), sources=(StreamOrigin("m"),)))
        await streams.create(ORDERS)
        client = await here.client("a")
        for number in range(600):
            await client.publish("orders/1", b"%d" % number, qos=0)
        while streams.info("t").messages < 600:
            await client.ping()
        assert await payloads(streams, "t") == await payloads(streams, "m") == await payloads(streams)
        await streams.delete("m")
        await client.publish("orders/1", b"after", qos=1)
        assert streams.info("t").messages == 600
