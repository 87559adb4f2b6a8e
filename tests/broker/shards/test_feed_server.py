"""The shard with the streams sends no more than there is room for."""

from pathlib import Path

from trio.testing import wait_all_tasks_blocked

from tests.broker.shards.fed import EARLIEST, FILTER, ORDERS, numbers, payloads, publish, publishers, stay, store
from tests.conformance import raw
from tests.testing.three import at, three
from tests.wire import Wire
from trunkline import nats, testing
from trunkline.broker.shards.away_feeds import MAX_BYTES, MAX_MESSAGES
from trunkline.nats.jetstream.configs import AckPolicy, ConsumerConfig
from trunkline.streams import StreamConfig


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
            config = ConsumerConfig(durable="c", deliver_subject="pushed.here", ack_policy=AckPolicy.NONE)
            await jetstream.create_consumer("orders", config)
            await publish(others[2], 0, 2)
            await wires[1].subscribe(("pushed/here", 0))
            assert [(await wires[1].expect_type(raw.PUBLISH)).payload for _ in range(2)] == numbers(0, 2)
            assert (await jetstream.consumer("orders", "c")).push_bound
