"""Messages that go by their age or their life: against the plain model, with crashes, and what is said of them."""

from __future__ import annotations

from math import inf
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from tests.store.conftest import THOROUGH
from tests.streams.plain import PlainMessage, PlainStream
from tests.streams.world import World, burst, done, single, small_sizes
from trunkline.streams.config import ConsumerConfig, Discard, Retention, StreamConfig
from trunkline.streams.keys import STREAM_DEADLINES
from trunkline.streams.purging import delete_message, purge
from trunkline.streams.search import get

if TYPE_CHECKING:
    from collections.abc import Generator

    from trunkline.mqtt.properties import Properties


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
        log, plain = self.world.stream.log, self.plain
        for sequence, message in plain.messages.items():
            assert done(get(log, self.world, sequence)).message.topic == message.topic
        assert (log.messages, log.byte_size, log.last) == (len(plain.messages), plain.byte_size, plain.last)
        rows = self.world.engine.count(STREAM_DEADLINES)
        assert rows <= 2 * (len(plain.messages) + len(self.kept.messages)) + 40


@pytest.mark.parametrize("seed", range(60 * THOROUGH))
def test_as_the_model(seed: int) -> None:
    with small_sizes():
        Trial(seed).run(60)
