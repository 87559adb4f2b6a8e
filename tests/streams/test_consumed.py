"""Messages as consumers deliver them, and answers to them."""

import trio
from trio.testing import MockClock

from tests.broker.room import room
from trunkline.streams import ConsumerConfig, StreamConfig

ORDERS = StreamConfig(name="orders", filters=("orders/#",))


async def test_a_message_and_its_answers(autojump_clock: MockClock) -> None:
    async with room() as here:
        streams = here.admin.streams
        await streams.create(ORDERS)
        await streams.create_consumer("orders", ConsumerConfig(name="c", ack_wait=10.0, inactive_threshold=1000.0))
        for number in range(4):
            await streams.publish("orders/1", b"%d" % number)
        acked, naked, busy, ended = await streams.fetch("orders", "c")
        assert (acked.stream, acked.consumer, acked.topic, acked.payload) == ("orders", "c", "orders/1", b"0")
        assert (ended.sequence, ended.consumer_sequence, ended.delivered, ended.pending) == (4, 4, 1, 0)
        assert ended.time == ended.message.timestamp
        acked.ack()
        acked.nak()  # it was answered
        naked.nak(2.0)
        await ended.ack_sync()
        (again,) = await streams.fetch("orders", "c")
        assert (again.sequence, again.delivered) == (2, 2)
        again.term()
        busy.in_progress()
        began = trio.current_time()
        (late,) = await streams.fetch("orders", "c", wait=20.0)
        assert (late.sequence, trio.current_time() - began) == (3, 10.0)
        late.ack()
        info = streams.consumer_info("orders", "c")
        assert (info.ack_pending, info.ack_floor_stream_sequence, info.pending) == (0, 4, 0)
        assert await streams.fetch("orders", "c", wait=1.0) == []


async def test_payloads_may_be_left_out() -> None:
    async with room() as here:
        streams = here.admin.streams
        await streams.create(ORDERS)
        await streams.create_consumer("orders", ConsumerConfig(name="c", headers_only=True))
        await streams.publish("orders/1", b"large")
        (message,) = await streams.fetch("orders", "c")
        assert (message.payload, message.message.payload) == (b"", b"large")
        assert repr(message) == "<ConsumedMessage orders 1 'orders/1'>"
