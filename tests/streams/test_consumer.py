"""What a consumer delivers when: what the model does not say."""

from typing import Any

import pytest

from tests.streams.world import World, burst, done, small_sizes
from trunkline.mqtt.message import Message
from trunkline.streams.config import AckPolicy, ConsumerConfig, DeliverPolicy, ReplayPolicy
from trunkline.streams.consumer import ConsumerCursor


def consumer(world: World, **settings: Any) -> ConsumerCursor:
    return world.do(world.stream.consumers.add(world, ConsumerConfig(**settings), world.now))


def fetch(world: World, cursor: ConsumerCursor, limit: int = 100) -> list[int]:
    found: list[int] = []
    while True:
        found += [each.sequence for each in world.stream.deliver(cursor, limit - len(found), world.now)]
        if cursor.needs is None or len(found) == limit:
            return found
        done(world.stream.log.fetch(world, cursor.needs))


def test_replay_is_as_slow_as_it_was_until_it_has_caught_up() -> None:
    world = World()
    world.create("#")
    for wait in (0, 5, 2):
        world.now += wait
        world.publish("a")
    world.now += 100
    cursor = consumer(world, replay_policy=ReplayPolicy.ORIGINAL)
    assert fetch(world, cursor) == [1]
    assert cursor.next_due == world.now + 5
    world.now += 5
    assert fetch(world, cursor) == [2]
    world.now += 2
    world.publish("a")
    world.publish("a")
    assert fetch(world, cursor) == [3, 4, 5]


def test_a_paused_consumer_delivers_nothing() -> None:
    world = World()
    world.create("#")
    world.publish("a")
    cursor = consumer(world, pause_until=world.now + 10)
    assert fetch(world, cursor) == []
    assert cursor.next_due == world.now + 10
    world.now += 10
    assert fetch(world, cursor) == [1]


def test_it_says_when_something_comes_again() -> None:
    world = World()
    world.create("#")
    world.publish("a")
    cursor = consumer(world, backoff=(1.0, 5.0))
    assert fetch(world, cursor) == [1]
    assert cursor.next_due == world.now + 1
    world.now += 1
    assert fetch(world, cursor) == [1]
    assert cursor.next_due == world.now + 5
    assert cursor.outstanding.redelivered == 1


def test_floors() -> None:
    world = World()
    world.create("#")
    world.publish("a", b"1", b"2", b"3")
    cursor = consumer(world)
    fetch(world, cursor)
    world.stream.ack(cursor, 1)
    world.stream.ack(cursor, 3)
    assert cursor.ack_floor == (1, 1)
    world.stream.ack(cursor, 2)
    assert cursor.ack_floor == (3, 3)
    assert not world.stream.ack(cursor, 2), "once"
    assert not cursor.nak(2, 0.0, world.now)
    assert not cursor.in_progress(2, world.now)


def test_a_filter_that_matches_little_reads_page_after_page() -> None:
    world = World()
    with small_sizes():
        world.create("#")
        for number in range(60):
            world.publish("rare" if number == 50 else "often")
        world.restart()
        cursor = consumer(world, filters=("rare",))
        assert cursor.pending == 1
        assert fetch(world, cursor) == [51]
        assert cursor.pending == 0


def test_the_beginning_is_found_by_time_without_reading_everything() -> None:
    world = World()
    with small_sizes():
        world.create("#")
        for _ in range(400):
            world.now += 1
            world.publish("a")
            world.commit()
        world.restart()
        reads = list[int]()
        read = world.read
        world.read = lambda function: reads.append(1) or read(function)  # type: ignore[method-assign,assignment,return-value,func-returns-value]
        cursor = consumer(
            world, deliver_policy=DeliverPolicy.BY_START_TIME, start_time=world.now - 9.5, ack_policy=AckPolicy.NONE
        )
    assert cursor.pending == 10
    assert fetch(world, cursor)[0] == 391
    assert len(reads) < 20


def test_entries_of_acknowledged_messages_do_not_pile_up() -> None:
    world = World()
    world.create("#")
    cursor = consumer(world)
    for _ in range(50):
        world.take(burst(["a"], [b""] * 20))
        for sequence in fetch(world, cursor):
            world.stream.ack(cursor, sequence)
    assert len(cursor.outstanding.deadlines) < 200


def test_a_beginning_by_time_is_found_while_it_is_counted() -> None:
    """As of a subscription, which does not look it up before."""
    world = World()
    world.create("#")
    for _ in range(10):
        world.publish("a")
        world.now += 1
    config = ConsumerConfig(deliver_policy=DeliverPolicy.BY_START_TIME, start_time=world.now - 3)
    cursor = world.stream.consumers.new(config, world.now)
    assert cursor.count(world.stream.log) is None
    assert cursor.pending == 3
    assert fetch(world, cursor) == [8, 9, 10]


def test_the_last_of_each_topic_come_once_and_what_is_new_behind_them() -> None:
    world = World()
    world.create("#")
    for topic in "abcab":
        world.publish(topic)
    cursor = consumer(world, deliver_policy=DeliverPolicy.LAST_PER_TOPIC, filters=("a", "c"))
    assert cursor.pending == 2
    world.publish("a")
    assert fetch(world, cursor, 1) == [3]
    assert fetch(world, cursor) == [4, 6]
    assert fetch(world, cursor) == []
    assert cursor.pending == 0


def test_what_is_deleted_before_it_is_delivered_is_not_pending_after_a_crash() -> None:
    world = World()
    world.create("#")
    for _ in range(5):
        world.publish("a")
    consumer(world, name="c", durable=True)
    world.commit()
    world.stream.log.remove(3)
    world.stream.changed()
    world.commit()
    world.crash()
    cursor = world.stream.consumers.get("c")
    assert cursor.pending == 4
    assert fetch(world, cursor) == [1, 2, 4, 5]


def test_nobody_waits_for_the_acknowledgement_of_a_deleted_message() -> None:
    world = World()
    world.create("#")
    world.publish("a", b"1", b"2")
    cursor = consumer(world, backoff=(1.0,))
    assert fetch(world, cursor) == [1, 2]
    assert fetch(world, cursor) == [], "it has caught up"
    world.stream.log.remove(1)
    assert list(cursor.outstanding) == [2]
    world.now += 1
    assert fetch(world, cursor) == [2]


def test_what_does_not_fit_stays_where_it_was() -> None:
    world = World()
    world.create("#")
    world.publish("a", b"1", b"22", b"3")
    cursor = consumer(world, backoff=(1.0,))
    asked = list[bytes]()

    def small(message: Message) -> bool:
        asked.append(message.payload)
        return len(message.payload) < 2

    taken = world.stream.deliver(cursor, 10, world.now, small)
    assert ([each.sequence for each in taken], asked) == ([1], [b"1", b"22"])
    assert (cursor.held_back, cursor.pending, set(cursor.outstanding)) == (True, 2, {1})
    assert fetch(world, cursor) == [2, 3]
    assert not cursor.held_back


def test_nor_does_what_comes_again_and_nothing_overtakes_it() -> None:
    world = World()
    world.create("#")
    world.publish("a", b"1", b"22", b"3")
    cursor = consumer(world, backoff=(1.0,))
    assert fetch(world, cursor, 2) == [1, 2]
    world.now += 1
    taken = world.stream.deliver(cursor, 10, world.now, lambda message: len(message.payload) < 2)
    assert [(each.sequence, each.count) for each in taken] == [(1, 2)]
    assert cursor.held_back
    assert cursor.outstanding[2].count == 1
    assert fetch(world, cursor) == [2, 3]
    assert cursor.outstanding[2].count == 2


def test_no_more_wait_for_their_acknowledgements_than_a_commit_can_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.streams.consumer.MAX_UNACKNOWLEDGED", 3)
    world = World()
    world.create("#")
    for _ in range(5):
        world.publish("a")
    for most in (0, 10):
        cursor = consumer(world, name=f"c{most}", max_ack_pending=most)
        assert [each.sequence for each in world.stream.deliver(cursor, 100, world.now)] == [1, 2, 3]
        world.stream.ack(cursor, 1)
        assert [each.sequence for each in world.stream.deliver(cursor, 100, world.now)] == [4]


def test_a_topic_that_comes_twice_at_once_is_pending_once() -> None:
    world = World()
    world.create("#", max_messages_per_topic=1)
    cursor = consumer(world)
    assert fetch(world, cursor) == []
    world.take(burst(["a", "b", "a"], [b""] * 3))
    assert cursor.pending == 2
    assert fetch(world, cursor) == [2, 3]
    assert cursor.pending == 0
