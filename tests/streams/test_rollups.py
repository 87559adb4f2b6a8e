"""Messages that take the place of those before them; tests/streams/test_registry.py has them among all that a stream
does."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.store.conftest import THOROUGH
from tests.streams.plain import PlainMessage, PlainStream
from tests.streams.test_consumer import consumer, fetch
from tests.streams.world import World, burst, done, single, small_sizes
from trunkline.mqtt.publication import PublishBatch
from trunkline.mqtt.versions import Version
from trunkline.store import WriteBatch
from trunkline.streams import log, thinning
from trunkline.streams.config import ConsumerConfig, Discard, Retention, StreamConfig
from trunkline.streams.errors import MessageNotFound, RollupForbidden
from trunkline.streams.purging import delete_message, purge
from trunkline.streams.search import get, get_last, get_next

if TYPE_CHECKING:
    from trunkline.mqtt.properties import Properties

TOPICS = ["a", "b", "c"]


class LazyWorld(World):
    """What has to be worked off waits, while it is lazy."""

    is_lazy = False

    def settle(self) -> None:
        if not self.is_lazy:
            super().settle()

    def write(self) -> bool:
        """One commit."""
        batch = WriteBatch()
        more = self.registry.write(batch)
        self.engine.commit(batch)
        self.registry.stored(self.registry.take_written())
        return more

    def step(self) -> bool:
        """Do some work, up to where something has to be read. Returns whether there is more."""
        needed = self.stream.work(self.now)
        self.stream.changed()
        if needed is not None:
            done(self.stream.log.fetch(self, needed))
        return needed is not None


def live(world: World) -> list[int]:
    stream, found, sequence = world.stream, list[int](), 0
    while True:
        try:
            sequence = done(get_next(stream.log, world, "#", sequence + 1)).sequence
        except MessageNotFound:
            return found
        found.append(sequence)


# What they do


@pytest.mark.parametrize("value", ["sub", "SUB", "Sub"])
def test_it_takes_the_place_of_the_messages_of_its_topic(value: str) -> None:
    world = World()
    world.create("#", allow_rollup=True)
    for topic in "abaab":
        world.publish(topic)
    assert not world.take(single("a", rollup=value))
    assert live(world) == [2, 5, 6]
    assert (world.stream.info.messages, world.stream.info.topics) == (3, 2)


def test_or_of_all_messages() -> None:
    world = World()
    world.create("#", allow_rollup=True)
    for topic in "abaab":
        world.publish(topic)
    cursor = consumer(world, name="c")
    assert fetch(world, cursor, 2) == [1, 2]
    assert not world.take(single("c", rollup="all"))
    assert (live(world), cursor.pending, len(cursor.outstanding)) == ([6], 1, 0)
    assert fetch(world, cursor) == [6]


@pytest.mark.parametrize(("allowed", "value"), [(False, "sub"), (False, "all"), (False, "x"), (True, "x")])
def test_what_is_not_allowed_is_refused_for_everybody(allowed: bool, value: str) -> None:
    world = World()
    world.create("#", allow_rollup=allowed)
    world.publish("a")
    assert list(world.take(single("a", rollup=value))) == [0]
    with pytest.raises(RollupForbidden, match="'x'" if allowed else "'s' does not allow"):
        world.stream.check_message(single("a", rollup=value), world.now)
    assert live(world) == [1]


def test_an_empty_one_is_none() -> None:
    world = World()
    world.create("#")
    message = single("a")
    message.properties = {"user_property": [("Nats-Rollup", "")]}
    assert not world.take(message)
    assert live(world) == [1]


@pytest.mark.parametrize("allowed", [False, True])
@pytest.mark.parametrize("pair", [("nats-rollup", "sub"), ("Unit", "all")])
def test_what_else_a_publisher_says_is_none(allowed: bool, pair: tuple[str, str]) -> None:
    world = World()
    world.create("#", allow_rollup=allowed)
    world.publish("a")
    message = single("a")
    message.properties = {"user_property": [pair]}
    assert not world.take(message)
    assert live(world) == [1, 2]


def test_a_duplicate_takes_the_place_of_nothing() -> None:
    world = World()
    world.create("#", allow_rollup=True)
    world.take(single("a", b"", "x"))
    world.publish("a")
    assert not world.take(single("a", b"", "x", "all"))
    assert live(world) == [1, 2]


def rollups(payloads: list[bytes], value: str) -> PublishBatch:
    """PUBLISH packets of MQTT 5.0 in one burst, with the same properties."""
    name = b"Nats-Rollup"
    pair = b"\x26" + len(name).to_bytes(2, "big") + name + len(value).to_bytes(2, "big") + value.encode()
    packets = [
        bytes([0x30, 2 + 1 + 1 + len(pair) + len(payload), 0, 1]) + b"a" + bytes([len(pair)]) + pair + payload
        for payload in payloads
    ]
    starts = [sum(map(len, packets[:number])) for number in range(len(packets))]
    properties: Properties = {"user_property": [("Nats-Rollup", value)]}
    return PublishBatch(["a"], 0x30, Version.V5, b"".join(packets), starts, (), properties)


def test_of_a_burst_the_last_is_left_and_each_is_refused_for_itself() -> None:
    world = World()
    world.create("#", allow_rollup=True, max_message_size=60)
    world.publish("b")
    world.publish("a", b"", b"")
    assert list(world.take(rollups([b"1", b"2" * 60, b"3"], "sub"))) == [1]
    assert live(world) == [1, 5]
    assert list(world.take(rollups([b"1", b"2"], "some"))) == [0, 1]


def test_a_full_stream_refuses_them_as_others() -> None:
    world = World()
    world.create("#", allow_rollup=True, max_messages=2, discard=Discard.NEW)
    world.publish("a", b"", b"")
    assert list(world.take(single("a", rollup="sub"))) == [0]
    assert live(world) == [1, 2]


def test_what_nobody_is_interested_in_takes_the_place_of_nothing() -> None:
    world = World()
    world.create("#", allow_rollup=True, retention=Retention.INTEREST)
    cursor = consumer(world, filters=("a",))
    world.publish("a", b"", b"")
    assert not world.take(single("b", rollup="all"))
    assert live(world) == [1, 2]
    assert not world.take(single("a", rollup="sub"))
    assert fetch(world, cursor) == [4]
    world.stream.ack(cursor, 4)
    assert not live(world)


# While they are worked off


@contextmanager
def stored(count: int = 60, **settings: Any) -> Iterator[LazyWorld]:
    """Messages of two topics in turn, all of them in the store alone, and a lazy world."""
    world = LazyWorld()
    with small_sizes():
        world.create("#", allow_rollup=True, **settings)
        for number in range(count):
            world.publish("ab"[number % 2], b"%d" % number)
        world.restart()
        world.is_lazy = True
        yield world


def test_what_has_to_be_read_to_be_removed_counts_no_more_at_once() -> None:
    with stored() as world:
        early = done(world.stream.consumers.add(world, ConsumerConfig(name="early"), world.now))
        assert not world.take(single("a", rollup="sub"))
        stream = world.stream
        assert (stream.info.messages, stream.info.topics) == (31, 2)
        assert stream.log.topics.rolled_up
        late = done(stream.consumers.add(world, ConsumerConfig(name="late", filters=("a",)), world.now))
        with pytest.raises(MessageNotFound):
            done(get(stream.log, world, 1))
        with pytest.raises(MessageNotFound):
            done(delete_message(stream, world, 3))
        assert done(get_last(stream.log, world, "a")).sequence == 61
        assert done(get_next(stream.log, world, "#", 1)).sequence == 2
        evens = [*range(2, 61, 2)]
        assert fetch(world, early) == [*evens, 61]
        assert fetch(world, late) == [61]
        while world.step():
            pass
        assert not stream.log.topics.rolled_up
        assert (early.pending, late.pending, stream.info.messages) == (0, 0, 31)
        assert live(world) == [*evens, 61]


def test_one_that_was_delivered_does_not_come_again() -> None:
    with stored(10) as world:
        cursor = done(world.stream.consumers.add(world, ConsumerConfig(name="c", durable=True), world.now))
        assert fetch(world, cursor, 4) == [1, 2, 3, 4]
        world.commit()
        world.crash()
        world.take(single("a", rollup="sub"))
        world.now += 40
        cursor = world.stream.consumers.get("c")
        assert fetch(world, cursor, 2) == [2, 4]
        assert set(cursor.outstanding) == {2, 4}
        world.write()
        world.crash()
        assert set(world.stream.consumers.get("c").outstanding) == {2, 4}


def test_what_is_passed_over_is_not_pending_after_a_crash() -> None:
    with stored(10) as world:
        done(world.stream.consumers.add(world, ConsumerConfig(name="c", durable=True), world.now))
        world.commit()
        world.take(single("a", rollup="sub"))
        world.write()
        world.crash()
        cursor = world.stream.consumers.get("c")
        assert not world.stream.deliver(cursor, 5, world.now), "the block has to be read"
        done(world.stream.log.fetch(world, cursor.needs or 0))
        assert [each.sequence for each in world.stream.deliver(cursor, 1, world.now)] == [2]
        while world.step():
            pass
        world.commit()
        world.crash()
        assert world.stream.consumers.get("c").pending == 5
        assert fetch(world, world.stream.consumers.get("c")) == [4, 6, 8, 10, 11]


def test_after_a_crash_it_goes_on_with_any_commit() -> None:
    """Of the message and of what it takes the place of, all or nothing counts, whenever the power fails."""
    with stored() as world:
        world.take(single("a", b"new", rollup="sub"))
        world.write()
        for _ in range(7):
            world.crash()
            assert live(world) == [*range(2, 61, 2), 61]
            assert world.stream.info.messages == 31
            world.step()
            world.write()
        while world.step():
            world.write()
        world.write()
        world.crash()
        assert not world.stream.log.topics.rolled_up
        assert live(world) == [*range(2, 61, 2), 61]


def test_before_the_commit_nothing_of_it_counts() -> None:
    with stored() as world:
        world.take(single("a", rollup="sub"))
        world.step()
        world.crash()
        assert live(world) == [*range(1, 61)]


def test_a_second_one_before_the_first_is_done() -> None:
    with stored() as world:
        for number in range(3):
            world.take(single("a", b"%d" % number, rollup="sub"))
            world.take(single("a"))
            world.step()
        assert live(world) == [*range(2, 61, 2), 65, 66]
        world.restart()
        while world.step():
            pass
        assert live(world) == [*range(2, 61, 2), 65, 66]
        assert not world.stream.log.topics.rolled_up


def test_one_whose_last_message_is_deleted_before_it_is_done() -> None:
    with stored(20) as world:
        world.take(single("a", rollup="sub"))
        done(delete_message(world.stream, world, 21))
        done(purge(world.stream, world, "b"))
        assert (world.stream.info.messages, live(world)) == (0, [])
        world.stream.log.skip(2, world.now)
        while world.step():
            pass
        assert (world.stream.info.messages, world.stream.info.first_sequence) == (0, 24)
        world.restart()
        world.publish("c")
        assert live(world) == [24]


def test_a_topic_of_which_only_that_is_left_is_not_forgotten() -> None:
    """However often what is known of topics is written anew."""
    with stored(20) as world:
        world.take(single("a", rollup="sub"))
        done(delete_message(world.stream, world, 21))
        for _ in range(20):
            world.take(single("c"))
            world.write()
        world.crash()
        assert live(world) == [*range(2, 21, 2), *range(22, 42)]
        while world.step():
            pass
        assert live(world) == [*range(2, 21, 2), *range(22, 42)]
        assert world.stream.info.first_sequence == 2


def test_a_consumer_that_begins_meanwhile_counts_what_is_left() -> None:
    with stored(20) as world:
        world.take(single("a", rollup="sub"))
        for number, filters in enumerate([(), ("a",), ("b",), ("a", "b")]):
            done(world.stream.consumers.add(world, ConsumerConfig(name=f"c{number}", filters=filters), world.now))
        while world.step():
            pass
        assert [cursor.pending for cursor in world.stream.consumers] == [11, 1, 10, 11]


def test_what_is_not_kept_meanwhile_leaves_nothing_pending() -> None:
    with stored(20) as world:
        cursor = done(world.stream.consumers.add(world, ConsumerConfig(name="c"), world.now))
        world.take(single("a", rollup="sub"))
        done(delete_message(world.stream, world, 21))
        done(purge(world.stream, world, "b"))
        world.stream.log.skip(2, world.now)
        while world.step():
            pass
        assert cursor.pending == 0


def test_one_that_only_passes_over_messages_is_stored_too() -> None:
    with stored(8) as world:
        config = ConsumerConfig(name="c", durable=True, filters=("a",))
        done(world.stream.consumers.add(world, config, world.now))
        world.restart()
        world.take(single("a", rollup="sub"))
        world.commit()
        cursor = world.stream.consumers.get("c")
        world.stream.deliver(cursor, 1, world.now)
        done(world.stream.log.fetch(world, cursor.needs or 0))
        assert not world.stream.deliver(cursor, 1, world.now), "of a page that has none for it"
        while world.step():
            pass
        world.commit()
        world.crash()
        assert world.stream.consumers.get("c").pending == 1


def test_a_burst_of_which_some_are_deleted_already() -> None:
    world = LazyWorld()
    with small_sizes():
        world.create("#", allow_rollup=True)
        world.publish("b")
        world.take(burst(["a"], [b""] * 12))
        consumer(world, name="c", durable=True)
        world.commit()  # they are stored as one publication
        world.do(delete_message(world.stream, world, 5))
        world.restart()
        world.is_lazy = True
        world.take(single("a", rollup="sub"))
        while world.step():
            pass
        cursor = world.stream.consumers.get("c")
        assert (live(world), cursor.pending) == ([1, 14], 2)
        assert not world.stream.log.topics.rolled_up


def test_a_count_that_is_too_high_ends_with_the_last_message() -> None:
    """Messages that a repair could not save are not met."""
    with stored(20) as world:
        world.take(single("a", rollup="sub"))
        rolled_up = world.stream.log.topics.rolled_up
        rolled_up["a"] = rolled_up["a"]._replace(left=99)
        steps = 0
        while world.step() and steps < 100:
            steps += 1
        assert (steps < 100, rolled_up) == (True, {})


def test_limits_wait_for_it() -> None:
    """Messages of other topics are not dropped for some that count no more."""
    with stored(20, max_messages=20) as world:
        world.take(single("a", rollup="sub"))
        world.is_lazy = False
        world.settle()
        assert live(world) == [*range(2, 21, 2), 21]


def test_a_stream_that_takes_no_more_has_room_again_at_once() -> None:
    with stored(20, max_messages=21, discard=Discard.NEW) as world:
        assert not world.take(single("a", rollup="sub"))
        assert not world.take(single("c"))


def test_a_topic_with_too_many_messages_meanwhile() -> None:
    with stored(20, max_messages_per_topic=10) as world:
        world.take(single("a", rollup="sub"))
        for _ in range(12):
            world.take(single("a"))
        world.take(single("b"))
        world.is_lazy = False
        world.settle()
        assert live(world) == [*range(4, 21, 2), *range(24, 35)]


def test_an_id_of_a_message_that_counts_no_more_is_forgotten_with_a_crash() -> None:
    world = LazyWorld()
    with small_sizes():
        world.create("#", allow_rollup=True)
        world.take(single("a", b"", "x"))
        world.publish("b", *[b""] * 20)
        world.publish("a")
        world.restart()
        world.is_lazy = True
        world.take(single("a", rollup="sub"))
        world.write()
        world.crash()
        assert world.stream.known(single("a", b"", "x"), world.now) is None


def test_many_are_done_in_one_go_and_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "MAX_STEP", 8)
    monkeypatch.setattr(thinning, "MAX_ROLLED_UP", 3)
    world = LazyWorld()
    with small_sizes():
        world.create("#", allow_rollup=True)
        world.take(burst(["long"], [b""] * 100))
        for number in range(200):
            world.publish(f"t/{number % 10}")
        world.restart()
        world.is_lazy = True
        for number in range(10):
            world.take(single(f"t/{number}", rollup="sub"))
        assert world.stream.log.patience <= 8
        world.take(single("long", rollup="sub"))
        steps = 0
        while world.step():
            assert world.stream.log.patience >= -8
            steps += 1
        assert steps > 30
        assert live(world) == [*range(301, 312)]


def test_of_a_topic_that_has_the_stream_for_itself_nothing_has_to_be_looked_at() -> None:
    world = LazyWorld()
    with small_sizes():
        world.create("#", allow_rollup=True)
        world.publish("a", *[b""] * 100)
        cursor = consumer(world, name="c")
        world.restart()
        world.is_lazy = True
        world.take(single("a", rollup="sub"))
        assert not world.stream.log.topics.rolled_up
        assert (world.stream.info.first_sequence, world.stream.info.messages) == (101, 1)
        del cursor


# All of it together


class Lazy(RuleBasedStateMachine):
    """Everything that may happen between a roll-up and its end, against a plain model."""

    def __init__(self) -> None:
        super().__init__()
        self._small = small_sizes()
        self._small.__enter__()
        self.world = LazyWorld()

    @initialize(retention=st.just(Retention.LIMITS))
    def create(self, retention: Retention) -> None:
        self.world.create("#", allow_rollup=True, retention=retention, duplicate_window=0.0)
        self.plain = PlainStream(self.world.stream.config)
        self.serial = 0
        for _ in range(3):
            self.publish(TOPICS * 3, one_topic=False)
        self.restart()
        self.world.is_lazy = True

    @rule(topics=st.lists(st.sampled_from(TOPICS), min_size=1, max_size=9), one_topic=st.booleans())
    def publish(self, topics: list[str], one_topic: bool) -> None:
        batch = burst(topics[:1] if one_topic else topics, [b"%d" % number for number in range(len(topics))])
        assert not self.world.take(batch)
        for message in batch.messages:
            self.plain.publish(PlainMessage(message.topic, message.payload, self.world.now))

    @rule(topic=st.sampled_from(TOPICS), value=st.sampled_from(["sub", "sub", "sub", "all"]))
    def roll_up(self, topic: str, value: str) -> None:
        assert not self.world.take(single(topic, b"", None, value))
        self.plain.publish(PlainMessage(topic, b"", self.world.now, None, value))

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        sequence = data.draw(st.integers(1, self.plain.last + 1))
        if sequence in self.plain.messages:
            done(delete_message(self.world.stream, self.world, sequence))
            self.plain.remove(sequence)
        else:
            with pytest.raises(MessageNotFound):
                done(delete_message(self.world.stream, self.world, sequence))

    @rule(topic_filter=st.sampled_from(["a", "b"]), keep=st.sampled_from([0, 2]))
    def purge(self, topic_filter: str, keep: int) -> None:
        purged = done(purge(self.world.stream, self.world, topic_filter, None, keep))
        assert purged == self.plain.purge(topic_filter, None, keep)

    @rule(filters=st.sampled_from([(), ("a",), ("b", "c")]), durable=st.booleans())
    def add_consumer(self, filters: tuple[str, ...], durable: bool) -> None:
        self.serial += 1
        config = ConsumerConfig(name=f"c{self.serial}", filters=filters, durable=durable, ack_wait=10.0)
        done(self.world.stream.consumers.add(self.world, config, self.world.now))
        self.plain.add(config.name, config)

    @precondition(lambda self: self.plain.consumers)
    @rule(data=st.data(), limit=st.integers(1, 8))
    def fetch(self, data: st.DataObject, limit: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.plain.consumers)))
        expected = self.plain.fetch(self.plain.consumers[name], limit, self.world.now)
        got = fetch(self.world, self.world.stream.consumers.get(name), limit)
        assert got == [each[0] for each in expected]

    @precondition(lambda self: self.plain.consumers)
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.plain.consumers)))
        outstanding = sorted(self.plain.consumers[name].outstanding)
        if outstanding:
            sequence = data.draw(st.sampled_from(outstanding))
            assert self.world.stream.ack(self.world.stream.consumers.get(name), sequence)
            self.plain.ack(self.plain.consumers[name], sequence)

    @rule(seconds=st.sampled_from([1.0, 11.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.now += seconds

    @rule()
    def work(self) -> None:
        self.world.step()

    @rule()
    def settle(self) -> None:
        self.world.is_lazy = False
        self.world.settle()
        self.world.is_lazy = True

    @rule()
    def commit(self) -> None:
        self.world.write()
        self.kept = self.plain.copy()

    @rule()
    def restart(self) -> None:
        """After which nothing is in memory."""
        self.commit()
        self.crash()

    @rule()
    def crash(self) -> None:
        self.world.crash()
        self.plain = self.kept.copy()
        for name, each in list(self.plain.consumers.items()):
            if not each.config.durable:
                del self.plain.consumers[name]

    @invariant()
    def same(self) -> None:
        stream, plain = self.world.stream, self.plain
        assert (stream.info.messages, stream.info.bytes) == (len(plain.messages), plain.byte_size)
        assert stream.info.topics == len({message.topic for message in plain.messages.values()})
        if not stream.log.topics.rolled_up:
            assert stream.info.first_sequence == min(plain.messages, default=plain.last + 1)
            assert {cursor.name: cursor.pending for cursor in stream.consumers} == {
                name: len(plain.pending(each)) for name, each in plain.consumers.items()
            }
            assert {cursor.name: set(cursor.outstanding) for cursor in stream.consumers} == {
                name: set(each.outstanding) for name, each in plain.consumers.items()
            }

    @rule()
    def look(self) -> None:
        assert live(self.world) == list(self.plain.messages)
        for topic in TOPICS:
            of_it = self.plain.of(topic)
            if of_it:
                assert done(get_last(self.world.stream.log, self.world, topic)).sequence == of_it[-1]

    def teardown(self) -> None:
        self._small.__exit__(None, None, None)


def test_as_the_model_while_it_is_worked_off() -> None:
    run_state_machine_as_test(Lazy, settings=settings(max_examples=60 * THOROUGH, stateful_step_count=40))


def test_a_stream_that_may_not_be_purged_has_none() -> None:
    world = World()
    world.create("#", deny_purge=True)
    with pytest.raises(ValueError, match="allow_rollup"):
        world.registry.update(StreamConfig(name="s", filters=("#",), deny_purge=True, allow_rollup=True))
