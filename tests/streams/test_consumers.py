"""Which consumers a stream may have."""

import pytest

from tests.streams.test_consumer import consumer, fetch
from tests.streams.world import World, done
from trunkline.streams.config import AckPolicy, ConsumerConfig, DeliverPolicy, Retention
from trunkline.streams.consumers import inactive_threshold
from trunkline.streams.errors import ConsumerExists, ConsumerNotFound, InvalidStreamConfig


def test_a_work_queue_ends_up_empty_and_has_one_consumer_a_topic() -> None:
    world = World()
    world.create("#", retention=Retention.WORK_QUEUE)
    world.publish("a", b"1", b"2")
    cursor = consumer(world, name="c", filters=("a",))
    with pytest.raises(InvalidStreamConfig, match="gets some of the same"):
        consumer(world, filters=("+",))
    with pytest.raises(InvalidStreamConfig, match="explicit"):
        consumer(world, filters=("b",), ack_policy=AckPolicy.NONE)
    with pytest.raises(InvalidStreamConfig, match="all"):
        consumer(world, filters=("b",), deliver_policy=DeliverPolicy.NEW)
    for sequence in fetch(world, cursor):
        world.stream.ack(cursor, sequence)
    assert world.stream.info.messages == 0


def test_the_same_consumer_again_is_no_error() -> None:
    world = World()
    world.create("#", max_consumers=2)
    assert consumer(world, name="c") is consumer(world, name="c")
    with pytest.raises(ConsumerExists):
        consumer(world, name="c", ack_wait=1.0)
    updated = world.stream.consumers.update(ConsumerConfig(name="c", ack_wait=1.0))
    assert updated.config.ack_wait == 1.0
    assert consumer(world).name == "ephemeral-1"
    with pytest.raises(InvalidStreamConfig, match="no more"):
        consumer(world)


def test_a_consumer_that_is_deleted_while_it_is_made() -> None:
    world = World()
    world.create("#")
    world.publish("a", *[b""] * 3000)
    config = ConsumerConfig(name="c", filters=("a",), deliver_policy=DeliverPolicy.BY_START_SEQUENCE, start_sequence=2)

    async def pause() -> None:
        world.stream.delete_consumer(world.stream.consumers.get("c"))

    world.pause = pause  # type: ignore[method-assign]
    with pytest.raises(ConsumerNotFound):
        done(world.stream.consumers.add(world, config, world.now))


def test_how_long_a_consumer_without_receivers_stays() -> None:
    assert inactive_threshold(ConsumerConfig()) == 5.0
    assert inactive_threshold(ConsumerConfig(name="c", durable=True)) == float("inf")
    assert inactive_threshold(ConsumerConfig(inactive_threshold=60.0)) == 60.0
