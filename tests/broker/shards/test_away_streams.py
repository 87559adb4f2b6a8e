"""A shard without streams asks, and says, what becomes of its sessions' subscriptions."""

import pytest
import trio
from trio.testing import MockClock

from tests.broker.shards.fed import EARLIEST, FILTER, ORDERS, consumers, numbers, payloads, publish, publishers, stay
from tests.conformance import raw
from tests.testing.three import at, three
from trunkline import testing
from trunkline.streams import ConsumerConfig, Discard, Retention, StreamConfig
from trunkline.streams.errors import StreamsNotOffered

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
        answer = await others[1].publish("orders/1", b"no", qos=2)
        assert b.streams.info("orders").messages == 2
        assert (await b.metrics())["messages.dropped.stream_full"] == 4


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
