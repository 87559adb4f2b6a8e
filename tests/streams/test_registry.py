"""A stream and its consumers against a plain model, over both engines, with crashes."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

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

from tests.store.conftest import MEMORY, THOROUGH
from tests.streams.plain import PlainMessage, PlainStream
from tests.streams.world import World, burst, done, single, small_sizes
from trunkline.store import Engine, WriteBatch
from trunkline.store.engine import rows
from trunkline.store.memory import MemoryEngine
from trunkline.store.sqlite import SqliteEngine
from trunkline.streams.config import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
    Discard,
    Retention,
    StreamConfig,
)
from trunkline.streams.consumer import IDENTITY, STATE
from trunkline.streams.errors import InvalidStreamConfig, MessageNotFound, StreamExists, StreamNotFound
from trunkline.streams.keys import CONSUMERS
from trunkline.streams.purging import delete_message, purge
from trunkline.streams.search import get, get_last, get_next
from trunkline.streams.stream import Stream

TOPICS = ["a/1", "a/2", "b/1", "c"]
FILTERS = [(), ("a/+",), ("b/#", "c"), ("a/1",)]
topics = st.sampled_from(TOPICS)
payloads = st.binary(max_size=3)
limits = st.fixed_dictionaries(
    {
        "max_messages": st.sampled_from([0, 0, 5, 12]),
        "max_bytes": st.sampled_from([0, 0, 40]),
        "max_age": st.sampled_from([0.0, 0.0, 30.0]),
        "max_messages_per_topic": st.sampled_from([0, 0, 1, 3]),
        "max_message_size": st.sampled_from([0, 0, 5]),
        "discard": st.sampled_from(Discard),
        "discard_new_per_topic": st.booleans(),
        "duplicate_window": st.sampled_from([0.0, 20.0]),
        "retention": st.sampled_from([Retention.LIMITS, Retention.LIMITS, Retention.INTEREST, Retention.WORK_QUEUE]),
        "first_sequence": st.sampled_from([1, 1, 21]),
        "allow_rollup": st.sampled_from([True, True, False]),
        "allow_message_ttl": st.sampled_from([True, True, False]),
        "delete_marker_ttl": st.sampled_from([0.0, 3.0]),
    }
)
consumer_settings = st.fixed_dictionaries(
    {
        "deliver_policy": st.sampled_from(DeliverPolicy),
        "filters": st.sampled_from(FILTERS),
        "ack_policy": st.sampled_from(AckPolicy),
        "max_deliver": st.sampled_from([0, 0, 2]),
        "max_ack_pending": st.sampled_from([0, 2, 1000]),
        "backoff": st.sampled_from([(), (1.0, 5.0)]),
        "durable": st.booleans(),
    }
)


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self._small = small_sizes()
        self._small.__enter__()
        self.world = World(self.make())

    def make(self) -> Engine:
        return MemoryEngine()

    @initialize(config=limits)
    def create(self, config: dict[str, Any]) -> None:
        if config["discard"] is Discard.OLD or not config["max_messages_per_topic"]:
            config["discard_new_per_topic"] = False
        if (
            not (config["allow_message_ttl"] and config["allow_rollup"])
            or config["max_messages"]
            or config["max_bytes"]
        ):
            config["delete_marker_ttl"] = 0.0  # else what a marker pushes out is a matter of how much is read at once
        self.world.create("#", **config)
        self.plain = PlainStream(self.stream.config)
        self.world.commit()
        self.kept = self.plain.copy()
        self.serial = 0

    @property
    def stream(self) -> Stream:
        return self.world.stream

    # Messages

    @rule(chosen=st.lists(st.tuples(topics, payloads), min_size=1, max_size=9), one_topic=st.booleans())
    def publish(self, chosen: list[tuple[str, bytes]], one_topic: bool) -> None:
        names = [chosen[0][0]] if one_topic else [topic for topic, _ in chosen]
        batch = burst(names, [payload for _, payload in chosen])
        single_file = bool(self.stream.refusal(batch, self.world.now)) and batch.count > 1
        refused = self.world.take(batch)
        expected = set[int]()
        for number, message in enumerate(batch.messages):
            if not self.plain.publish(PlainMessage(message.topic, message.payload, self.world.now)):
                expected.add(number)
            if single_file:
                self.plain.trim(self.world.now)
        self.plain.trim(self.world.now)
        assert set(refused) == expected

    @rule(topic=topics, payload=payloads, identity=st.sampled_from(["x", "y", "z"]))
    def publish_with_id(self, topic: str, payload: bytes, identity: str) -> None:
        refused = self.world.take(single(topic, payload, identity))
        taken = self.plain.publish(PlainMessage(topic, payload, self.world.now, identity))
        self.plain.trim(self.world.now)
        assert taken != bool(refused)

    @rule(
        topic=topics,
        payload=payloads,
        rollup=st.sampled_from(["sub", "sub", "sub", "all", "some"]),
        identity=st.sampled_from([None, None, "x"]),
    )
    def roll_up(self, topic: str, payload: bytes, rollup: str, identity: str | None) -> None:
        refused = self.world.take(single(topic, payload, identity, rollup))
        taken = self.plain.publish(PlainMessage(topic, payload, self.world.now, identity, rollup))
        self.plain.trim(self.world.now)
        assert taken != bool(refused)

    @rule(
        topic=topics,
        payload=payloads,
        ttl=st.sampled_from(["1", "6", "6", "40", "never", "0"]),
        rollup=st.sampled_from(["", "", "sub"]),
    )
    def publish_with_a_life(self, topic: str, payload: bytes, ttl: str, rollup: str) -> None:
        refused = self.world.take(single(topic, payload, None, rollup, ttl))
        taken = self.plain.publish(PlainMessage(topic, payload, self.world.now, None, rollup, ttl))
        self.plain.trim(self.world.now)
        assert taken != bool(refused)

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        sequence = data.draw(st.integers(self.stream.log.first, self.plain.last + 1))
        if sequence in self.plain.messages:
            self.world.do(delete_message(self.stream, self.world, sequence))
            self.plain.remove(sequence)
        else:
            with pytest.raises(MessageNotFound):
                self.world.do(delete_message(self.stream, self.world, sequence))

    @rule(data=st.data(), topic_filter=st.sampled_from([None, None, "a/+", "c"]))
    def purge(self, data: st.DataObject, topic_filter: str | None) -> None:
        sequence, keep = None, data.draw(st.sampled_from([None, 0, 2]))
        if keep is None:
            sequence = data.draw(st.none() | st.integers(1, self.plain.last + 2))
        purged = self.world.do(purge(self.stream, self.world, topic_filter, sequence, keep))
        assert purged == self.plain.purge(topic_filter, sequence, keep)

    @rule(seconds=st.sampled_from([1.0, 6.0, 25.0, 31.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.now += seconds
        self.world.settle()
        self.plain.trim(self.world.now)

    # Consumers

    @rule(chosen=consumer_settings, data=st.data())
    def add_consumer(self, chosen: dict[str, Any], data: st.DataObject) -> None:
        if chosen["deliver_policy"] is DeliverPolicy.BY_START_SEQUENCE:
            chosen["start_sequence"] = data.draw(st.integers(1, self.plain.last + 2))
        if chosen["deliver_policy"] is DeliverPolicy.BY_START_TIME:
            chosen["start_time"] = self.world.now - data.draw(st.sampled_from([0.0, 5.0, 26.0, 100.0]))
        if chosen["ack_policy"] is AckPolicy.NONE:
            chosen["max_deliver"], chosen["backoff"] = 0, ()
        self.serial += 1
        config = ConsumerConfig(name=f"c{self.serial}", ack_wait=10.0, **chosen)
        try:
            self.world.do(self.stream.consumers.add(self.world, config, self.world.now))
        except InvalidStreamConfig:
            assert self.plain.config.retention is Retention.WORK_QUEUE
        else:
            self.plain.add(config.name, config)

    @precondition(lambda self: self.plain.consumers)
    @rule(data=st.data(), limit=st.integers(1, 8))
    def fetch(self, data: st.DataObject, limit: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.plain.consumers)))
        cursor, consumer = self.stream.consumers.get(name), self.plain.consumers[name]
        expected = self.plain.fetch(consumer, limit, self.world.now)
        messages = dict(self.kept.messages) | self.plain.messages
        fetched: list[tuple[int, int, int, int]] = []
        while True:
            for each in self.stream.deliver(cursor, limit - len(fetched), self.world.now):
                fetched.append((each.sequence, each.consumer_sequence, each.count, each.pending))
                if each.sequence in messages:
                    assert (each.message.topic, each.message.payload) == (
                        messages[each.sequence].topic,
                        messages[each.sequence].payload,
                    )
            if cursor.needs is None or len(fetched) == limit:
                break
            # delivery follows at once: other work may drop again from memory what was read
            done(self.stream.log.fetch(self.world, cursor.needs))
        self.world.settle()
        assert fetched == expected

    def outstanding(self, data: st.DataObject) -> tuple[str, int] | None:
        found = [(name, each) for name, consumer in self.plain.consumers.items() for each in consumer.outstanding]
        return data.draw(st.sampled_from(found)) if found else None

    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        chosen = self.outstanding(data)
        if chosen is not None:
            name, sequence = chosen
            assert self.stream.ack(self.stream.consumers.get(name), sequence)
            self.world.settle()
            self.plain.ack(self.plain.consumers[name], sequence)

    @rule(data=st.data(), delay=st.sampled_from([0.0, 3.0]))
    def nak(self, data: st.DataObject, delay: float) -> None:
        chosen = self.outstanding(data)
        if chosen is not None:
            name, sequence = chosen
            cursor, consumer = self.stream.consumers.get(name), self.plain.consumers[name]
            assert cursor.nak(sequence, delay, self.world.now)
            self.stream.consumers.note(cursor)
            consumer.outstanding[sequence] = (self.world.now + delay, consumer.outstanding[sequence][1])

    @rule(data=st.data())
    def in_progress(self, data: st.DataObject) -> None:
        chosen = self.outstanding(data)
        if chosen is not None:
            name, sequence = chosen
            cursor, consumer = self.stream.consumers.get(name), self.plain.consumers[name]
            assert cursor.in_progress(sequence, self.world.now)
            self.stream.consumers.note(cursor)
            count = consumer.outstanding[sequence][1]
            consumer.outstanding[sequence] = (self.world.now + consumer.config.wait_after(count), count)

    @precondition(lambda self: self.plain.consumers)
    @rule(data=st.data())
    def delete_consumer(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.plain.consumers)))
        self.stream.delete_consumer(self.stream.consumers.get(name))
        self.world.settle()
        self.plain.delete(name)

    @precondition(lambda self: self.plain.consumers)
    @rule(data=st.data(), filters=st.sampled_from(FILTERS))
    def change_filters(self, data: st.DataObject, filters: tuple[str, ...]) -> None:
        name = data.draw(st.sampled_from(sorted(self.plain.consumers)))
        cursor, consumer = self.stream.consumers.get(name), self.plain.consumers[name]
        place, behind = cursor.position, [each for each in self.plain.pending(consumer) if each >= consumer.position]
        try:
            self.stream.consumers.update(replace(cursor.config, filters=filters))
        except InvalidStreamConfig:
            assert self.plain.config.retention is Retention.WORK_QUEUE
            return
        if filters != consumer.config.filters:
            if consumer.config.deliver_policy is DeliverPolicy.BY_START_TIME:
                place = max(place, consumer.position)  # what lies before is too old, or gone
            assert consumer.position <= place <= min(behind, default=self.plain.last + 1), "behind all that it has seen"
            self.plain.update(name, filters, place)
        while (needed := cursor.count(self.stream.log)) is not None:
            done(self.stream.log.fetch(self.world, needed))
        self.world.settle()

    # The store

    @rule()
    def commit(self) -> None:
        self.world.commit()
        self.plain.commit(self.world.now)
        self.kept = self.plain.copy()

    @rule()
    def crash(self) -> None:
        """Everything is as it was at the last commit, but for ephemeral consumers."""
        self.world.crash()
        self.plain = self.kept.copy()
        self.plain.identities = {
            identity: known for identity, known in self.plain.identities.items() if known[0] in self.plain.messages
        }
        for name, consumer in list(self.plain.consumers.items()):
            if not consumer.config.durable:
                del self.plain.consumers[name]
        if self.plain.config.retention is Retention.INTEREST:
            self.plain.sweep(list(self.plain.messages))
        self.plain.trim(self.world.now)

    @invariant()
    def same(self) -> None:
        info, plain = self.stream.info, self.plain
        assert info.messages == len(plain.messages)
        assert info.bytes == plain.byte_size
        assert info.last_sequence == plain.last
        assert info.first_sequence == min(plain.messages, default=plain.last + 1)
        assert info.topics == len({message.topic for message in plain.messages.values()})
        assert {cursor.name: cursor.pending for cursor in self.stream.consumers} == {
            name: len(plain.pending(consumer)) for name, consumer in plain.consumers.items()
        }
        assert {cursor.name: set(cursor.outstanding) for cursor in self.stream.consumers} == {
            name: set(consumer.outstanding) for name, consumer in plain.consumers.items()
        }

    @rule(topic=topics)
    def look_up(self, topic: str) -> None:
        log, plain = self.stream.log, self.plain
        of_it = plain.of(topic)
        for sequence, expected in plain.messages.items():
            found = self.world.do(get(log, self.world, sequence))
            assert (found.message.topic, found.message.payload, found.time) == (
                expected.topic,
                expected.payload,
                expected.time,
            )
        if of_it:
            assert self.world.do(get_last(log, self.world, topic)).sequence == of_it[-1]
            assert self.world.do(get_next(log, self.world, topic, of_it[0])).sequence == of_it[0]
        else:
            with pytest.raises(MessageNotFound):
                self.world.do(get_last(log, self.world, topic))
            with pytest.raises(MessageNotFound):
                self.world.do(get_next(log, self.world, topic))

    def teardown(self) -> None:
        self._small.__exit__(None, None, None)


class SqliteMachine(Machine):
    def make(self) -> Engine:
        self._folder = tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)
        return SqliteEngine(Path(self._folder.name) / "s.db")

    def teardown(self) -> None:
        super().teardown()
        self.world.engine.close()
        self._folder.cleanup()


def test_as_the_model_in_memory() -> None:
    run_state_machine_as_test(
        Machine,
        settings=settings(max_examples=60 * THOROUGH, stateful_step_count=40),
    )


def test_as_the_model_in_sqlite() -> None:
    run_state_machine_as_test(
        SqliteMachine,
        settings=settings(max_examples=8 * THOROUGH, stateful_step_count=40),
    )


# Names and numbers


def test_streams_do_not_share_topics() -> None:
    world = World()
    world.create("a/#")
    with pytest.raises(StreamExists, match="overlap"):
        world.create("+/x", name="other")
    world.create("b/#", name="other")
    with pytest.raises(StreamExists):
        world.registry.update(StreamConfig(name="other", filters=("a/b",)))


def test_the_same_stream_again_is_no_error() -> None:
    world = World()
    assert world.create("a/#") is world.create("a/#")
    with pytest.raises(StreamExists, match="trunkline streams edit"):
        world.create("a/#", max_messages=1)


def test_a_deleted_stream_leaves_nothing_behind() -> None:
    world = World()
    with small_sizes():
        world.create("a/#")
        world.publish("a/1", *[b"x"] * 30)
        config = ConsumerConfig(name="c", durable=True)
        world.do(world.stream.consumers.add(world, config, world.now))
        world.commit()
        world.registry.delete("s")
        world.commit()
    assert not any(world.engine.count(space) for space in world.engine.spaces())
    with pytest.raises(StreamNotFound):
        world.registry.get("s")


def test_a_deleted_stream_is_erased_after_a_crash_in_between() -> None:
    world = World()
    with small_sizes():
        world.create("a/#")
        world.publish("a/1", *[b"x"] * 30)
        for name in ("c", "d"):
            config = ConsumerConfig(name=name, durable=True, filters=("a/1",))
            world.do(world.stream.consumers.add(world, config, world.now))
        world.commit()
        world.registry.delete("s")
        batch = WriteBatch()
        assert world.registry.write(batch)
        world.engine.commit(batch)
        world.crash()
        assert not len(world.registry)
        world.commit()
    assert not any(world.engine.count(space) for space in world.engine.spaces())


@pytest.mark.parametrize("lost", [IDENTITY, STATE])
def test_a_consumer_of_which_a_repair_has_saved_only_a_part_is_gone(lost: bytes) -> None:
    world = World()
    world.create("#")
    for name in ("c", "d"):
        world.do(world.stream.consumers.add(world, ConsumerConfig(name=name, durable=True), world.now))
    world.commit()
    batch = WriteBatch()
    for key, _ in rows(world.engine, CONSUMERS):
        if key.endswith(b"c" + lost):
            batch.delete(CONSUMERS, key)
    world.engine.commit(batch)
    world.crash()
    assert [cursor.name for cursor in world.stream.consumers] == ["d"]
