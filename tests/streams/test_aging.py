"""Messages that go by their age or their life: against the plain model, with crashes, and what is said of them."""

from math import inf
from random import Random
from typing import Any

import pytest

from tests.store.conftest import THOROUGH
from tests.streams.plain import PlainMessage, PlainStream
from tests.streams.world import World, burst, done, single, small_sizes
from trunkline.mqtt.message import Message
from trunkline.streams import log
from trunkline.streams.aging import MARKER
from trunkline.streams.config import ConsumerConfig, Discard, Retention
from trunkline.streams.keys import STREAM_DEADLINES
from trunkline.streams.log import MAX_STEP
from trunkline.streams.markers import is_marker
from trunkline.streams.purging import delete_message, purge
from trunkline.streams.search import get
from trunkline.streams.thinning import AGAIN


class Trial:
    """Lives, limits, removals and crashes, in an order that a number decides."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = World()
        choose = self.random.choice
        self.world.create(
            "#",
            duplicate_window=0.0,
            allow_message_ttl=True,
            allow_rollup=True,
            max_age=choose([0.0, 20.0]),
            max_messages_per_topic=choose([0, 1, 2]),
            delete_marker_ttl=choose([0.0, 3.0]),
        )
        self.plain = PlainStream(self.world.stream.config)
        self.commit()

    def run(self, steps: int) -> None:
        often = [self.publish] * 5 + [self.time_passes] * 4 + [self.commit] * 3
        for _ in range(steps):
            self.random.choice([*often, self.delete, self.purge, self.crash])()
            self.check()

    def publish(self) -> None:
        choose, now = self.random.choice, self.world.now
        topic, ttl, rollup = choose("ab"), choose(["", "1", "5", "5", "30", "never"]), choose(["", "", "", "sub"])
        for _ in range(self.random.randint(1, 3)):
            assert not self.world.take(single(topic, b"", None, rollup, ttl))
            assert self.plain.publish(PlainMessage(topic, b"", now, None, rollup, ttl))
            self.plain.trim(now)

    def time_passes(self) -> None:
        self.world.now += self.random.choice([1.0, 2.0, 4.0, 19.0])
        self.world.settle()
        self.plain.trim(self.world.now)

    def delete(self) -> None:
        if self.plain.messages:
            sequence = self.random.choice(sorted(self.plain.messages))
            self.world.do(delete_message(self.world.stream, self.world, sequence))
            self.plain.remove(sequence)

    def purge(self) -> None:
        topic = self.random.choice([None, "a", "a"])
        assert self.world.do(purge(self.world.stream, self.world, topic)) == self.plain.purge(topic, None, None)

    def commit(self) -> None:
        self.world.commit()
        self.plain.commit(self.world.now)
        self.kept = self.plain.copy()

    def crash(self) -> None:
        self.world.crash()
        self.plain = self.kept.copy()
        self.plain.trim(self.world.now)

    def check(self) -> None:
        kept, plain = self.world.stream.log, self.plain
        for sequence, message in plain.messages.items():
            assert done(get(kept, self.world, sequence)).message.topic == message.topic
        assert (kept.messages, kept.byte_size, kept.last) == (len(plain.messages), plain.byte_size, plain.last)
        rows = self.world.engine.count(STREAM_DEADLINES)
        assert rows <= 2 * (len(plain.messages) + len(self.kept.messages)) + 40


@pytest.mark.parametrize("seed", range(60 * THOROUGH))
def test_as_the_model(seed: int) -> None:
    with small_sizes():
        Trial(seed).run(60)


# What has a life, and what it leaves


def lives(**settings: Any) -> World:
    world = World()
    world.create("#", **{"duplicate_window": 0.0, "allow_message_ttl": True, **settings})
    return world


def marking(**settings: Any) -> World:
    return lives(**{"allow_rollup": True, "delete_marker_ttl": 60.0, "max_messages_per_topic": 1, **settings})


def topics_in(world: World) -> list[str]:
    """Of what there is, in its order; a marker's with a sign."""
    kept, found = world.stream.log, list[str]()
    sequence = kept.next_live(0)
    while sequence <= kept.last:
        message = done(get(kept, world, sequence)).message
        found.append(message.topic + ("!" if is_marker(message.properties) else ""))
        sequence = kept.next_live(sequence + 1)
    return found


def later(world: World, seconds: float) -> None:
    """All is stored before."""
    world.commit()
    world.now += seconds
    world.settle()


def test_messages_go_from_the_middle_of_the_log_when_their_lives_are_over() -> None:
    world = lives()
    for topic, ttl in (("a", ""), ("b", "5s"), ("c", "10"), ("d", "1m"), ("e", "")):
        world.take(single(topic, ttl=ttl))
    world.commit()
    assert world.stream.log.aging.next_due == world.now + 5
    later(world, 4.75)
    assert topics_in(world) == ["a", "b", "c", "d", "e"]
    later(world, 0.25)
    assert topics_in(world) == ["a", "c", "d", "e"]
    later(world, 60)
    assert topics_in(world) == ["a", "e"]
    world.commit()
    assert world.engine.count(STREAM_DEADLINES) == 0
    assert world.stream.log.aging.next_due == inf


def test_mqtt_says_in_its_own_way_when_a_message_expires() -> None:
    world = lives()
    world.take(Message("a", b"", 1, properties={"message_expiry_interval": 5}))
    both = {"message_expiry_interval": 50, "user_property": [("Nats-TTL", "10")]}
    world.take(Message("b", b"", 1, properties=both))  # type: ignore[arg-type]
    later(world, 5)
    assert topics_in(world) == ["b"]
    later(world, 5)
    assert topics_in(world) == []


def test_where_lives_are_not_allowed_what_expires_stays() -> None:
    world = lives(allow_message_ttl=False)
    world.take(Message("a", b"", 1, properties={"message_expiry_interval": 5}))
    later(world, 100)
    assert topics_in(world) == ["a"]
    assert world.take(single("a", ttl="5")) == {0: "the stream 's' does not allow lives of single messages"}


def test_what_lives_for_ever_stays_and_keeps_nothing_else_back() -> None:
    world = lives(max_age=30.0)
    for number in range(3):
        world.take(single(f"{number}", ttl="never"))
        world.take(single("old"))
    later(world, 30)
    assert topics_in(world) == ["0", "1", "2"]
    assert world.stream.log.aging.next_due == inf
    world.take(single("new"))
    world.restart()
    assert world.stream.log.aging.next_due == world.now + 30
    later(world, 30)
    assert topics_in(world) == ["0", "1", "2"]


def test_the_older_of_life_and_age_ends_a_message() -> None:
    world = lives(max_age=30.0)
    world.take(single("a", ttl="40"))
    world.take(single("b", ttl="20"))
    later(world, 20)
    assert topics_in(world) == ["a"]
    later(world, 10)
    assert topics_in(world) == []


def test_a_sealed_stream_keeps_what_it_has() -> None:
    world = lives(max_age=30.0)
    world.take(single("a", ttl="5"))
    world.take(single("b"))
    world.commit()
    config = world.stream.config
    world.registry.update(type(config).from_plain(config.to_plain() | {"sealed": True}))
    later(world, 100)
    assert topics_in(world) == ["a", "b"]
    assert world.stream.log.aging.next_due == inf


def test_a_consumer_does_not_wait_for_what_is_over() -> None:
    world = lives(retention=Retention.WORK_QUEUE)
    world.do(world.stream.consumers.add(world, ConsumerConfig(name="c"), world.now))
    world.take(single("a", ttl="5"))
    world.take(single("b", ttl="5"))
    cursor = world.stream.consumers.get("c")
    assert [each.sequence for each in world.stream.deliver(cursor, 1, world.now)] == [1]
    later(world, 5)
    assert (cursor.pending, len(cursor.outstanding), world.stream.log.messages) == (0, 0, 0)


def test_where_lives_are_not_allowed_nothing_lives_for_ever() -> None:
    world = lives(allow_message_ttl=False, max_age=30.0)
    world.stream.add(single("a", ttl="never"), world.now)  # as it comes from another stream
    later(world, 30)
    assert topics_in(world) == []


def test_others_have_their_turn_before_all_are_looked_at_that_live_for_ever() -> None:
    world = lives(max_age=30.0)
    for _ in range(MAX_STEP + 1):
        world.stream.add(single("a", ttl="never"), world.now)
    world.now += 30
    assert world.stream.log.trim(world.now) == AGAIN
    world.settle()
    assert world.stream.log.messages == MAX_STEP + 1


@pytest.mark.parametrize("is_purged", [False, True])
def test_others_have_their_turn_before_all_are_gone_whose_lives_are_over(
    is_purged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "MAX_STEP", 10)
    world = lives()
    for _ in range(20):
        world.take(single("a", ttl="5"))
    world.commit()
    if is_purged:
        world.do(purge(world.stream, world))
    world.now += 5
    done(world.stream.log.deadlines.read(world, world.now))
    assert world.stream.log.trim(world.now) == AGAIN
    world.settle()
    assert world.stream.log.messages == 0


# Markers


def test_others_have_their_turn_before_all_markers_are_there() -> None:
    world = marking(max_messages_per_topic=0, max_age=5.0)
    count = 2 * MAX_STEP // MARKER
    for number in range(count):
        world.take(single(f"{number}"))
    world.now += 5
    assert world.stream.log.trim(world.now) == AGAIN
    world.settle()
    assert topics_in(world) == [f"{number}!" for number in range(count)]


@pytest.mark.parametrize("settings", [{}, {"max_age": 5.0}])
def test_the_last_message_of_a_topic_leaves_a_marker(settings: dict[str, Any]) -> None:
    world = marking(max_messages_per_topic=2, **settings)
    world.take(single("a", ttl="" if settings else "60"))
    later(world, 4)
    world.take(single("a", ttl="" if settings else "60"))
    later(world, 1 if settings else 56)
    assert topics_in(world) == ["a"], "one is left"
    later(world, 4)
    assert topics_in(world) == ["a!"]
    assert done(get(world.stream.log, world, 3)).message.properties == {
        "user_property": [("Nats-Marker-Reason", "MaxAge"), ("Nats-TTL", "1m0s"), ("Nats-Rollup", "sub")]
    }
    later(world, 5 if settings else 60)
    assert topics_in(world) == [], "a marker leaves none"


def test_a_whole_burst_leaves_one_marker_for_each_topic() -> None:
    world = marking(max_messages_per_topic=0, max_age=5.0)
    world.take(burst(["a", "b", "a", "b"], [b"x"] * 4))
    world.take(burst(["c"], [b"x"] * 9))
    later(world, 5)
    assert topics_in(world) == ["a!", "b!", "c!"]


def test_what_goes_for_another_reason_leaves_none() -> None:
    world = marking(max_messages=3)
    for topic in "abcdef":
        world.take(single(topic))
    world.do(delete_message(world.stream, world, 4))
    assert world.do(purge(world.stream, world, "e")) == 1
    assert topics_in(world) == ["f"]


def test_no_life_is_shorter_than_that_of_a_marker_where_topics_have_a_history() -> None:
    world = marking(max_messages_per_topic=0)
    world.take(single("a", ttl="5"))
    later(world, 59)
    assert topics_in(world) == ["a"]
    assert done(get(world.stream.log, world, 1)).message.properties == {"user_property": [("Nats-TTL", "5")]}
    later(world, 1)
    assert topics_in(world) == ["a!"]


def test_of_what_is_rolled_up_nothing_is_marked() -> None:
    world = marking(max_messages_per_topic=0, max_age=30.0)
    with small_sizes():
        for _ in range(5):
            world.take(single("a"))
        world.commit()
        world.stream.log.memory.drop_below(6)
        stream = world.stream
        stream.take(single("a", rollup="sub"), world.now)  # what it takes the place of is not read yet
        stream.log.remove(6)
        assert stream.log.messages == 0
        later(world, 30)
    assert topics_in(world) == []


def test_markers_are_for_those_who_want_the_topic() -> None:
    world = marking(retention=Retention.INTEREST)
    world.do(world.stream.consumers.add(world, ConsumerConfig(name="c", filters=("a",)), world.now))
    world.take(single("a", ttl="5"))
    later(world, 5)
    assert topics_in(world) == ["a!"]
    world.stream.delete_consumer(world.stream.consumers.get("c"))
    world.do(world.stream.consumers.add(world, ConsumerConfig(name="d", filters=("b",)), world.now))
    world.take(single("b", ttl="5"))
    world.commit()
    world.stream.delete_consumer(world.stream.consumers.get("d"))
    later(world, 5)
    assert topics_in(world) == []


def test_a_full_stream_that_takes_nothing_new_has_no_room_for_a_marker() -> None:
    size = 1 + len("Nats-TTL") + 4 + 1 + 1
    world = marking(discard=Discard.NEW, max_bytes=size)
    assert not world.take(single("a", ttl="5"))
    later(world, 5)
    assert topics_in(world) == []


def test_a_marker_may_be_larger_than_messages() -> None:
    world = marking(max_message_size=1 + len("Nats-TTL") + 4 + 1 + 1)
    assert not world.take(single("a", ttl="5"))
    later(world, 5)
    assert topics_in(world) == ["a!"]


def test_a_marker_is_stamped_as_a_message_of_the_broker() -> None:
    world = marking()
    stamped: list[str] = []

    def stamp(message: Message) -> Message:
        stamped.append(message.topic)
        return message

    world.stream.stamp = stamp
    world.take(single("a", ttl="5"))
    later(world, 5)
    assert stamped == ["a"]


def test_a_step_removes_fewer_messages_than_it_may_look_at() -> None:
    world = World()
    world.create("#", max_age=1.0, duplicate_window=0.0)
    for number in range(MAX_STEP):
        world.publish(f"t/{number}", b"x")
    world.now += 2
    assert world.stream.log.trim(world.now) == AGAIN
    assert world.stream.log.messages > MAX_STEP * 3 // 4
    world.settle()
    assert not world.stream.log.messages
