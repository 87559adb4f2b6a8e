"""What a stream takes, and what leaves it."""

from typing import Any

import pytest

from tests.streams.test_consumer import consumer, fetch
from tests.streams.world import World, burst, done, single, small_sizes
from trunkline.streams import log, stream
from trunkline.streams.config import Discard, Retention, StreamConfig
from trunkline.streams.errors import (
    ConsumerNotFound,
    InvalidStreamConfig,
    MessageNotFound,
    MessageTooLarge,
    StreamForbids,
    StreamFull,
    StreamRefuses,
    StreamSealed,
    WrongLastId,
    WrongLastSequence,
)
from trunkline.streams.purging import delete_message, purge


def test_each_message_of_a_burst_is_refused_for_itself() -> None:
    world = World()
    world.create("#", max_message_size=3)
    refused = world.take(burst(["a"], [b"1", b"222", b"33"]))
    assert list(refused) == [1]
    assert "3 bytes at most" in refused[1]
    assert world.stream.info.messages == 2


def test_a_full_stream_that_discards_what_is_new() -> None:
    world = World()
    world.create("#", max_messages=2, discard=Discard.NEW)
    assert list(world.take(burst(["a"], [b""] * 4))) == [2, 3]
    with pytest.raises(StreamRefuses, match="is full"):
        world.stream.check_message(single("a"), world.now)
    world.do(delete_message(world.stream, world, 1))
    world.publish("a")
    assert world.stream.info.last_sequence == 3


@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        ({"max_messages": 2}, "messages"),
        ({"max_bytes": 5}, "bytes"),
        ({"max_bytes": 3}, "bytes"),
        ({"max_messages_per_topic": 2, "discard_new_per_topic": True}, "topic"),
    ],
)
def test_a_full_stream_says_what_there_is_no_room_for(settings: dict[str, Any], limit: str) -> None:
    world = World()
    world.create("#", discard=Discard.NEW, **settings)
    world.publish("a", b"", b"")
    with pytest.raises(StreamFull) as caught:
        world.stream.check_message(single("a", b"123"), world.now)
    assert caught.value.limit == limit


def test_a_message_that_is_too_large_whatever_the_stream_has() -> None:
    world = World()
    world.create("#", max_message_size=3, max_bytes=2)
    with pytest.raises(MessageTooLarge, match="2 bytes at most"):
        world.stream.check_message(single("a", b"123"), world.now)
    with pytest.raises(StreamFull, match="2 bytes at most"):
        world.stream.check_message(single("a", b"12"), world.now)


def test_a_sealed_stream() -> None:
    world = World()
    world.create("#")
    world.publish("a")
    world.registry.update(StreamConfig(name="s", filters=("#",), sealed=True))
    assert "sealed" in world.take(single("a"))[0]
    with pytest.raises(StreamSealed):
        world.stream.check_message(single("a"), world.now)
    for request in (delete_message(world.stream, world, 1), purge(world.stream, world)):
        with pytest.raises(StreamForbids) as caught:
            world.do(request)
        assert caught.value.why == "sealed"


def test_a_purge_is_up_to_a_sequence_or_keeps_some() -> None:
    world = World()
    world.create("#")
    with pytest.raises(InvalidStreamConfig):
        world.do(purge(world.stream, world, sequence=1, keep=1))


def test_expectations_of_a_publisher() -> None:
    world = World()
    world.create("#")
    world.publish("a")
    world.publish("b")
    world.take(single("b", b"", "x"))
    stream = world.stream
    stream.expect("a", last_sequence=3, last_topic_sequence=1, last_id="x")
    stream.expect("new", last_topic_sequence=0)
    with pytest.raises(WrongLastSequence, match="the last sequence of the stream 's' is 3, not 2"):
        stream.expect("a", last_sequence=2)
    with pytest.raises(WrongLastSequence):
        stream.expect("a", last_topic_sequence=3)
    with pytest.raises(WrongLastId, match="the last id in the stream 's' is 'x'") as caught:
        stream.expect("a", last_id="y")
    assert caught.value.actual == "x"


def test_an_acknowledged_message_that_has_to_be_read_first_is_removed_after_a_crash_too() -> None:
    world = World()
    world.create("#", retention=Retention.WORK_QUEUE)
    world.publish("a", b"1")
    cursor = consumer(world, name="c", durable=True)
    fetch(world, cursor)
    world.restart()
    stream = world.stream
    assert stream.log.find(1) is None
    assert stream.ack(stream.consumers.get("c"), 1)
    world.commit()
    world.crash()
    assert world.stream.info.messages == 0


def test_interest_ends_with_the_last_consumer() -> None:
    world = World()
    world.create("#", retention=Retention.INTEREST)
    world.publish("a")
    assert world.stream.info.messages == 0
    one, two = consumer(world, name="1", filters=("a",)), consumer(world, name="2")
    world.publish("a")
    world.publish("b")
    for cursor in (one, two):
        assert fetch(world, cursor)[0] == 2
    world.stream.ack(one, 2)
    assert world.stream.info.messages == 2
    world.stream.delete_consumer(two)
    world.settle()
    assert world.stream.info.messages == 0
    with pytest.raises(ConsumerNotFound):
        world.stream.consumers.get("2")


def test_what_nobody_wants_any_more_is_removed_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "MAX_STEP", 8)
    with small_sizes():
        world = World()
        world.create("#", retention=Retention.INTEREST)
        consumer(world, name="1", filters=("a",))
        two = consumer(world, name="2")
        for number in range(60):
            world.publish("a" if number % 10 == 0 else "b")
        world.stream.delete_consumer(two)
        world.settle()
        assert world.stream.info.messages == 6


def test_a_lower_limit_holds_at_once() -> None:
    world = World()
    world.create("#")
    for topic in "abc":
        world.publish(topic, b"1", b"2", b"3")
    world.registry.update(StreamConfig(name="s", filters=("#",), max_messages_per_topic=2, max_messages=5))
    world.settle()
    assert (world.stream.info.messages, world.stream.info.first_sequence) == (5, 3)


def test_messages_grow_old() -> None:
    world = World()
    world.create("#", max_age=200.0)
    world.publish("a")
    world.now += 50
    world.publish("a")
    assert world.stream.log.aging.next_due == 1200.0
    world.now = 1200.0
    world.settle()
    assert world.stream.info.first_sequence == 2
    world.restart()
    world.now = 1250.0
    world.settle()
    assert world.stream.info.messages == 0


def test_what_is_worked_off_last_is_written_too() -> None:
    world = World()
    world.create("#", max_age=200.0)
    world.publish("a", b"1", b"2")
    world.commit()
    world.now += 300.0
    world.settle()
    world.commit()
    world.now = 1000.0
    world.crash()
    assert world.stream.info.messages == 0


def test_messages_that_are_not_there() -> None:
    world = World()
    world.create("#")
    with pytest.raises(MessageNotFound, match="no message 7"):
        world.do(delete_message(world.stream, world, 7))


def test_others_have_their_turn_before_much_work_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "STEPS", 2)
    monkeypatch.setattr(log, "MAX_STEP", 10)
    world = World()
    world.create("#")
    for _ in range(100):
        world.publish("a")
    world.registry.update(StreamConfig(name="s", filters=("#",), max_messages=1))
    left = [world.stream.info.messages]
    while not done(world.stream.settle(world, lambda: world.now)):
        left.append(world.stream.info.messages)
    assert len(left) > 3
    assert left == sorted(set(left), reverse=True), "each time some are gone"
    assert world.stream.info.messages == 1
