"""Streams of which rows are lost: what is there can be read, and is counted as it is."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.streams.world import World, burst, single, small_sizes
from trunkline.store import Space, WriteBatch
from trunkline.store.engine import rows
from trunkline.streams import AckPolicy, ConsumerConfig
from trunkline.streams.blocks import message_sizes
from trunkline.streams.keys import STREAM_BLOCKS, STREAM_DELETED, STREAM_TOPICS
from trunkline.streams.recount import recount
from trunkline.streams.search import get

if TYPE_CHECKING:
    from trunkline.mqtt.message import Message

CONSUMERS = {"all": (), "some": ("t/1", "t/2")}


def lose(world: World, space: Space, keys: list[bytes]) -> None:
    batch = WriteBatch()
    for key in keys:
        batch.delete(space, key)
    world.engine.commit(batch)


def live(world: World) -> dict[int, Message]:
    """By their sequences."""
    found: dict[int, Message] = {}
    log, sequence = world.stream.log, 0
    while (sequence := log.next_live(sequence + 1)) <= log.last:
        message = world.do(get(log, world, sequence)).message
        if log.is_there(sequence, message.topic):
            found[sequence] = message
    return found


def delivered(world: World, name: str) -> list[int]:
    stream = world.stream
    cursor = stream.consumers.get(name)
    found: list[int] = []
    while True:
        taken = stream.deliver(cursor, 3, world.now)
        found += [each.sequence for each in taken]
        for each in taken:
            stream.ack(cursor, each.sequence, world.now)
        if cursor.needs is not None:
            world.do(stream.log.fetch(world, cursor.needs))
        elif not taken:
            return found


def filled(rng: random.Random) -> World:
    world = World()
    world.create("t/#", allow_rollup=True)
    for name, filters in CONSUMERS.items():
        config = ConsumerConfig(name=name, durable=True, ack_policy=AckPolicy.EXPLICIT, filters=filters)
        world.do(world.stream.consumers.add(world, config, world.now))
    for _ in range(rng.randint(5, 25)):
        topics = [f"t/{rng.randint(1, 4)}" for _ in range(rng.randint(1, 3))]
        if rng.random() < 0.5:
            world.take(burst(topics, [b"x"] * len(topics)))
        else:
            world.take(single(topics[0], b"x", rollup="sub" if rng.random() < 0.1 else ""))
        log = world.stream.log
        if rng.random() < 0.3 and log.messages and log.is_live(gone := rng.randint(1, log.last)):
            while not log.remove(gone):
                world.do(log.fetch(world, gone))
        if rng.random() < 0.1:
            for each in world.stream.deliver(world.stream.consumers.get("all"), 2, world.now):
                del each  # it is to be acknowledged yet
        if rng.random() < 0.5:
            world.commit()
    world.commit()
    return world


@pytest.mark.parametrize("seed", range(60))
def test_what_is_left(seed: int) -> None:
    with small_sizes():
        rng = random.Random(seed)
        world = filled(rng)
        before = live(world)
        others = rng.choice([[], [], [STREAM_TOPICS], [STREAM_DELETED], [STREAM_TOPICS, STREAM_DELETED]])
        for space in [STREAM_BLOCKS, *others]:
            keys = [key for key, _ in rows(world.engine, space)]
            lose(world, space, rng.sample(keys, rng.randint(0, len(keys))))
        world.reopen()
        lost = recount(world.stream, world.engine)
        world.restart()
        after = live(world)
        if not others:
            assert after.keys() <= before.keys()
            assert lost == len(before) - len(after)
        check_figures(world, after)
        world.now += 1000  # what was delivered comes again
        for name, filters in CONSUMERS.items():
            wanted = [sequence for sequence, message in after.items() if not filters or message.topic in filters]
            assert sorted(delivered(world, name)) == wanted
            assert world.stream.consumers.get(name).pending == 0
        world.publish("t/1", b"x")
        assert delivered(world, "all") == delivered(world, "some") == [world.stream.log.last]


def check_figures(world: World, after: dict[int, Message]) -> None:
    log = world.stream.log
    sizes = {sequence: message_sizes(message, log.config.measure)[0] for sequence, message in after.items()}
    assert (log.messages, log.byte_size) == (len(after), sum(sizes.values()))
    assert log.first == min(after, default=log.last + 1)
    topics = {message.topic for message in after.values()}
    assert len(log.topics) == len(topics)
    for topic in topics:
        figures, of_topic = log.topics.get(topic), [each for each in after if after[each].topic == topic]
        assert figures is not None
        assert (figures.count, figures.byte_size) == (len(of_topic), sum(sizes[each] for each in of_topic))
        assert (figures.first, figures.last, figures.exact) == (of_topic[0], of_topic[-1], True)


def test_where_nothing_is_lost_nothing_is_deleted() -> None:
    with small_sizes():
        world = filled(random.Random(1))
        before = live(world)
        world.reopen()
        assert recount(world.stream, world.engine) == 0
        world.restart()
        assert live(world).keys() == before.keys()
        check_figures(world, before)


def test_where_everything_is_lost() -> None:
    with small_sizes():
        world = filled(random.Random(2))
        count, last = len(live(world)), world.stream.log.last
        lose(world, STREAM_BLOCKS, [key for key, _ in rows(world.engine, STREAM_BLOCKS)])
        world.reopen()
        assert recount(world.stream, world.engine) == count
        world.restart()
        check_figures(world, {})
        world.publish("t/1", b"x")
        assert list(live(world)) == [last + 1]
