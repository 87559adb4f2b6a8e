"""Topics lose messages in one go through the log; tests/streams/test_rollups.py has what is rolled up."""

import pytest

from tests.streams.world import World, done, small_sizes
from trunkline.streams import log
from trunkline.streams.config import StreamConfig
from trunkline.streams.search import get_next


def left(world: World) -> list[int]:
    return [sequence for sequence in range(1, world.stream.log.last + 1) if world.stream.log.is_live(sequence)]


def test_the_last_messages_of_each_topic_stay() -> None:
    world = World()
    with small_sizes():
        world.create("#", max_messages_per_topic=2)
        for topic in "abcabacaab":
            world.publish(topic)
        world.restart()
    assert left(world) == [3, 5, 7, 8, 9, 10]


def test_a_lower_limit_is_reached_in_steps_that_read_what_is_not_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "MAX_STEP", 4)
    world = World()
    with small_sizes():
        world.create("#")
        for number in range(40):
            world.publish(f"t/{number % 4}")
        world.restart()
        world.registry.update(StreamConfig(name="s", filters=("#",), max_messages_per_topic=3))
        stream, asked = world.stream, list[int]()
        while (needed := stream.work(world.now)) is not None:
            asked.append(needed)
            done(stream.log.fetch(world, needed))
    assert left(world) == [*range(29, 41)]
    assert any(asked), "some were read"
    assert not all(asked), "others got their turn in between"
    assert not stream.log.thinning.has_work


def test_the_first_of_each_topic_is_known_then() -> None:
    """What is asked for next does not look at what is gone."""
    world = World()
    with small_sizes():
        world.create("#", max_messages_per_topic=2)
        for topic in "aabbbbbbbbaa":
            world.publish(topic)
        figures = world.stream.log.topics.get("b")
        assert figures is not None
        assert figures.first >= 8
        assert done(get_next(world.stream.log, world, "b")).sequence == 9


def test_a_stream_without_messages_has_nothing_to_be_thinned() -> None:
    world = World()
    world.create("#", max_messages_per_topic=1)
    world.publish("a", *[b""] * 3)
    world.stream.log.thinning.crowd("a")
    world.stream.log.thinning.look_again()
    world.stream.clear()
    assert not world.stream.log.thinning.has_work
