"""Which consumers a stream may have."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import pytest

from tests.streams.test_consumer import consumer, fetch
from tests.streams.world import World, done, small_sizes
from trunkline.store import Engine
from trunkline.streams.config import AckPolicy, ConsumerConfig, DeliverPolicy, Retention
from trunkline.streams.consumers import inactive_threshold
from trunkline.streams.errors import ConsumerExists, ConsumerNotFound, InvalidStreamConfig
from trunkline.streams.keys import CONSUMERS
from trunkline.streams.purging import delete_message

if TYPE_CHECKING:
    from trunkline.streams.consumer import ConsumerCursor

T = TypeVar("T")


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


def test_a_consumer_that_somebody_else_makes_meanwhile() -> None:
    world = World()
    world.create("#")
    others: list[ConsumerCursor] = []
    read = world.read

    async def make(function: Callable[[Engine], T]) -> T:
        others.append(world.stream.consumers.new(ConsumerConfig(name="c"), world.now))
        return await read(function)

    world.read = make  # type: ignore[method-assign]
    config = ConsumerConfig(name="c", deliver_policy=DeliverPolicy.BY_START_TIME, start_time=1.0)
    with pytest.raises(ConsumerExists):
        done(world.stream.consumers.add(world, config, world.now))
    assert [*world.stream.consumers] == others


def test_one_that_is_there_again_by_its_name_is_another_one() -> None:
    world = World()
    world.create("#")
    first = consumer(world, name="c")
    assert world.stream.consumers.remove(first)
    second = consumer(world, name="c")
    assert not world.stream.consumers.remove(first)
    assert world.stream.consumers.get("c") is second


def test_a_late_answer_to_one_that_is_gone_is_not_stored() -> None:
    world = World()
    world.create("#")
    cursor = consumer(world, name="c", durable=True)
    world.commit()
    world.stream.consumers.remove(cursor)
    world.stream.consumers.note(cursor)
    world.commit()
    assert not world.engine.count(CONSUMERS)


def test_one_without_receivers_goes_when_its_time_is_over() -> None:
    world = World()
    world.create("#")
    consumers = world.stream.consumers
    cursor = consumer(world, name="c", inactive_threshold=10.0)
    other = consumer(world, name="other", inactive_threshold=10.0)
    cursor.receivers += 1
    world.now += 10
    assert [*consumers.take_idle(world.now)] == [other], "somebody receives from the first"
    assert consumers.next_idle == math.inf
    world.now += 90
    consumers.left(cursor, world.now)
    assert consumers.next_idle == world.now + 10
    world.now += 5
    cursor.receivers += 1
    consumers.left(cursor, world.now)
    world.now += 5
    assert [*consumers.take_idle(world.now)] == [], "somebody received from it meanwhile"
    assert consumers.next_idle == world.now + 5
    consumers.update(ConsumerConfig(name="c", inactive_threshold=6.0))
    world.now += 1
    assert [*consumers.take_idle(world.now)] == [cursor]


def test_other_filters_count_from_its_place_on() -> None:
    world = World()
    with small_sizes():
        world.create("#")
        for number in range(40):
            world.publish("ab"[number % 2])
        cursor = consumer(world, name="c", durable=True, filters=("a",), backoff=(1.0,))
        assert fetch(world, cursor, 3) == [1, 3, 5]
        world.restart()
        cursor = world.stream.consumers.update(replace(world.stream.consumers.get("c").config, filters=("b",)))
        world.restart()
        cursor = world.stream.consumers.get("c")
        assert fetch(world, cursor, 2) == [6, 8]
        assert (cursor.pending, set(cursor.outstanding)) == (16, {1, 3, 5, 6, 8})
        world.now += 1
        assert fetch(world, cursor, 5) == [1, 3, 5, 6, 8], "what is not acknowledged comes again, whatever its topic"
        everything = world.stream.consumers.update(replace(cursor.config, filters=()))
        assert everything.pending == 32, "what there is needs no counting"


@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_a_consumer_got_by_other_filters_is_wanted_until_it_is_acknowledged(is_restarted: bool) -> None:
    world = World()
    world.create("#", retention=Retention.INTEREST)
    first = consumer(world, name="1", durable=True, filters=("a",))
    second = consumer(world, name="2", durable=True)
    world.publish("a", b"1", b"2", b"3")
    assert fetch(world, first, 2) == [1, 2]
    assert fetch(world, second) == [1, 2, 3]
    world.stream.consumers.update(replace(first.config, filters=("b",)))
    if is_restarted:
        world.restart()
    first, second = (world.stream.consumers.get(name) for name in "12")
    for sequence in (1, 2, 3):
        world.stream.ack(second, sequence)
    world.settle()
    assert world.stream.info.messages == 2, "the third is wanted by nobody"
    world.stream.ack(first, 1)
    world.settle()
    world.do(delete_message(world.stream, world, 2))
    assert not first.outstanding, "nobody waits for what is gone"
    assert world.stream.info.messages == 0


def test_what_nobody_is_interested_in_any_more_leaves() -> None:
    world = World()
    world.create("#", retention=Retention.INTEREST)
    cursor = consumer(world, name="c")
    for topic in "abab":
        world.publish(topic)
    world.stream.consumers.update(replace(cursor.config, filters=("b",)))
    world.settle()
    assert world.stream.info.messages == 2
    assert fetch(world, cursor) == [2, 4]


def test_of_the_last_of_each_topic_those_that_other_filters_leave_come() -> None:
    world = World()
    world.create("#")
    for topic in "abcabc":
        world.publish(topic)
    cursor = consumer(world, name="c", deliver_policy=DeliverPolicy.LAST_PER_TOPIC)
    assert fetch(world, cursor, 1) == [4]
    world.stream.ack(cursor, 4)
    world.stream.consumers.update(replace(cursor.config, filters=("c",)))
    world.do(delete_message(world.stream, world, 5))
    world.publish("b")
    world.publish("c")
    assert fetch(world, cursor) == [6, 8]
    assert cursor.pending == 0


def test_filters_of_a_work_queue_do_not_overlap_after_an_update_either() -> None:
    world = World()
    world.create("#", retention=Retention.WORK_QUEUE)
    one = consumer(world, name="1", filters=("a",))
    consumer(world, name="2", filters=("b",))
    world.stream.consumers.update(replace(one.config, filters=("c", "a")))
    with pytest.raises(InvalidStreamConfig, match="gets some of the same"):
        world.stream.consumers.update(replace(one.config, filters=("+",)))
    assert one.config.filters == ("c", "a")


def test_who_waits_for_a_consumer_is_woken_when_it_gets_an_answer() -> None:
    world, woken = World(), list[str]()
    world.create("#")
    cursor = consumer(world, name="c")
    cursor.watch(lambda: woken.append("woken"))
    world.stream.consumers.note(cursor)
    assert woken == ["woken"]


def test_numbers_of_ephemeral_consumers_are_given_to_no_other() -> None:
    world = World()
    world.create("#")
    assert consumer(world, name="ephemeral-1") is not consumer(world)
    assert [each.name for each in world.stream.consumers] == ["ephemeral-1", "ephemeral-2"]


def test_what_people_are_told_of_times_is_by_the_calendar() -> None:
    world = World()
    world.create("#")
    consumers = world.stream.consumers
    cursor = consumer(world, name="c")
    world.stream.log.behind = 500.0
    consumers.update(ConsumerConfig(name="c", pause_until=world.now + 501))
    info = consumers.info(cursor, world.now)
    assert (info.created, info.paused) == (world.now + 500, True)
    assert not consumers.info(cursor, world.now + 1).paused


def test_when_it_delivered_something_and_was_answered() -> None:
    world = World()
    world.create("#")
    world.publish("a")
    world.stream.log.behind = 500.0
    cursor, consumers = consumer(world, name="c"), world.stream.consumers

    def times() -> tuple[float | None, float | None]:
        info = consumers.info(cursor, world.now)
        return info.last_delivered, info.last_acked

    assert times() == (None, None)
    world.now += 1
    fetch(world, cursor)
    world.now += 1
    assert times() == (world.now - 1 + 500, None)
    assert not fetch(world, cursor)
    world.stream.ack(cursor, 1, world.now)
    world.stream.ack(cursor, 1, world.now + 7)
    assert times() == (world.now - 1 + 500, world.now + 500), "the second answer was to nothing"
