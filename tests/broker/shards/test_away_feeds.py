"""What a subscription to a stream gets does not depend on where its session is."""

from collections.abc import Collection
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.broker.inside import inside
from tests.broker.shards.fed import (
    EARLIEST,
    FILTER,
    ORDERS,
    consumers,
    numbers,
    payloads,
    publish,
    publishers,
    stay,
    store,
)
from tests.conformance import raw
from tests.testing.three import at, three
from trunkline import testing
from trunkline.broker.shards.away_streams import AwayStreams
from trunkline.broker.shards.feed_words import FeedMessage
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
