"""What plugins and the program around the broker do with streams."""

import pytest
import trio
from trio.testing import MockClock

from tests.broker.room import room
from trunkline.mqtt.errors import ProtocolError
from trunkline.streams import (
    AckPolicy,
    ConsumerBound,
    ConsumerConfig,
    ConsumerExists,
    ConsumerNotFound,
    DeliverPolicy,
    MessageNotFound,
    StreamConfig,
    StreamExists,
    StreamNotFound,
    WrongLastSequence,
)

ORDERS = StreamConfig(name="orders", filters=("orders/#",))


async def test_a_stream_from_its_beginning_to_its_end() -> None:
    async with room() as here:
        streams = here.admin.streams
        assert not streams.list()
        created = await streams.create(ORDERS)
        assert (created.messages, created.first_sequence, created.last_time) == (0, 1, None)
        assert await streams.create(ORDERS) == created
        await streams.create(StreamConfig(name="a", filters=("a",)))
        assert [info.config.name for info in streams.list()] == ["a", "orders"]
        with pytest.raises(StreamExists):
            await streams.update(StreamConfig(name="a", filters=("orders/1",)))
        await streams.update(StreamConfig(name="a", filters=("b",), description="changed"))
        assert streams.info("a").config.description == "changed"
        await streams.delete("a")
        for request in (streams.delete("a"), streams.purge("a"), streams.get("a", 1)):
            with pytest.raises(StreamNotFound, match="no stream 'a'"):
                await request


async def test_messages_one_by_one() -> None:
    async with room() as here:
        streams = here.admin.streams
        await streams.create(ORDERS)
        for number in range(1, 4):
            published = await streams.publish(f"orders/{number % 2}", f"{number}")
            assert published == ("orders", number, False)
        assert (await streams.get("orders", 2)).message.payload == b"2"
        assert (await streams.get_last("orders", "orders/1")).sequence == 3
        assert (await streams.get_next("orders", "orders/1", 2)).sequence == 3
        await streams.delete_message("orders", 2)
        with pytest.raises(MessageNotFound):
            await streams.get("orders", 2)
        assert await streams.purge("orders", keep=1) == 1
        assert await streams.purge("orders") == 1
        assert streams.info("orders").messages == 0


async def test_a_publisher_that_expects_something() -> None:
    async with room() as here:
        streams = here.admin.streams
        await streams.create(ORDERS)
        subscriber = await here.client("a")
        await subscriber.subscribe("#")
        first = await streams.publish("orders/1", message_id="x", expected_last_sequence=0)
        again = await streams.publish("orders/1", message_id="x", expected_last_sequence=0)
        assert (first.sequence, again.sequence, again.duplicate) == (1, 1, True)
        await streams.publish(
            "orders/1", expected_last_topic_sequence=1, expected_last_id="x", expected_stream="orders"
        )
        with pytest.raises(WrongLastSequence) as caught:
            await streams.publish("orders/1", b"never seen", expected_last_topic_sequence=1)
        assert (caught.value.expected, caught.value.actual) == (1, 2)
        with pytest.raises(StreamNotFound):
            await streams.publish("orders/1", expected_stream="other")
        with pytest.raises(StreamNotFound):
            await streams.publish("elsewhere")
        with pytest.raises(ProtocolError):
            await streams.publish("orders/+")
        for _ in range(3):  # a publication with a known id goes to subscribers, as it does with JetStream
            await subscriber.take_publish("orders/1", qos=1)
        await subscriber.expect_nothing()


async def test_the_last_sequence_of_a_topic_after_its_last_message_was_deleted() -> None:
    async with room() as here:
        streams = here.admin.streams
        await streams.create(ORDERS)
        for _ in range(3):
            await streams.publish("orders/1")
            await streams.publish("orders/2")
        await streams.delete_message("orders", 5)
        assert (await streams.get_last("orders", "orders/1")).sequence == 3
        await streams.publish("orders/1", expected_last_topic_sequence=3)


async def test_consumers() -> None:
    async with room() as here:
        streams = here.admin.streams
        await streams.create(ORDERS)
        config = ConsumerConfig(name="c", durable=True)
        created = await streams.create_consumer("orders", config)
        assert created == streams.consumer_info("orders", "c")
        assert created.config == config
        with pytest.raises(ConsumerExists):
            await streams.create_consumer("orders", ConsumerConfig(name="c"))
        changed = await streams.update_consumer("orders", ConsumerConfig(name="c", durable=True, ack_wait=1.0))
        assert changed.config.ack_wait == 1.0
        assert [info.name for info in streams.consumers("orders")] == ["c"]
        await streams.delete_consumer("orders", "c")
        with pytest.raises(ConsumerNotFound, match="'orders' has no consumer 'c'"):
            streams.consumer_info("orders", "c")
        with pytest.raises(ConsumerNotFound):
            await streams.fetch("orders", "c")


async def test_what_is_published_meanwhile_comes_at_once(autojump_clock: MockClock) -> None:
    async with room() as here:
        streams = here.admin.streams
        await streams.create(ORDERS)
        got: list[int] = []

        async def receive() -> None:
            config = ConsumerConfig(ack_policy=AckPolicy.NONE, deliver_policy=DeliverPolicy.NEW)
            async with streams.consume("orders", config) as messages:
                async for message in messages:
                    got.append(message.sequence)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await trio.testing.wait_all_tasks_blocked()
            client = await here.client("a")
            for number in range(100):
                await client.publish("orders/1", b"%d" % number, qos=1)
            await trio.testing.wait_all_tasks_blocked()
            assert got == list(range(1, 101))
            nursery.cancel_scope.cancel()
        assert not streams.consumers("orders"), "it was made for the block"


async def test_who_may_receive(autojump_clock: MockClock) -> None:
    async with room() as here:
        streams = here.admin.streams
        await streams.create(ORDERS)
        await streams.create_consumer("orders", ConsumerConfig(name="alone"))
        await streams.create_consumer("orders", ConsumerConfig(name="shared", deliver_group="g"))
        async with streams.consume("orders", "alone"):
            with pytest.raises(ConsumerBound, match="already"):
                async with streams.consume("orders", "alone"):
                    pass
        async with streams.consume("orders", "alone") as messages:
            assert messages.consumer == "alone"
        with pytest.raises(ConsumerBound, match="'g', not ''"):
            async with streams.consume("orders", "shared"):
                pass
        async with streams.consume("orders", "shared", group="g"), streams.consume("orders", "shared", group="g"):
            pass


async def test_a_paused_consumer(autojump_clock: MockClock) -> None:
    async with room() as here:
        streams, node = here.admin.streams, here.admin
        await streams.create(ORDERS)
        await streams.create_consumer("orders", ConsumerConfig(name="c", inactive_threshold=100.0))
        await streams.publish("orders/1")
        assert (await streams.pause_consumer("orders", "c", node.wall() + 30)).paused
        began = trio.current_time()
        assert len(await streams.fetch("orders", "c", wait=60.0)) == 1
        assert trio.current_time() - began == 30
        await streams.publish("orders/1")
        await streams.pause_consumer("orders", "c", node.wall() + 30)
        assert not (await streams.pause_consumer("orders", "c", None)).paused
        assert len(await streams.fetch("orders", "c")) == 1


async def test_a_consumer_without_a_name_of_its_own_is_paused() -> None:
    async with room() as here:
        streams, node = here.admin.streams, here.admin
        await streams.create(ORDERS)
        name = (await streams.create_consumer("orders", ConsumerConfig())).name
        assert (await streams.pause_consumer("orders", name, node.wall() + 30)).paused
        assert not (await streams.pause_consumer("orders", name, None)).paused


async def test_the_end_of_a_consumer_ends_its_receivers(autojump_clock: MockClock) -> None:
    async with room() as here:
        streams = here.admin.streams
        await streams.create(ORDERS)
        await streams.create_consumer("orders", ConsumerConfig(name="c"))
        async with trio.open_nursery() as nursery:

            async def receive() -> None:
                with pytest.raises(ConsumerNotFound):
                    await streams.fetch("orders", "c", wait=1000.0)

            nursery.start_soon(receive)
            await trio.testing.wait_all_tasks_blocked()
            await streams.delete("orders")
