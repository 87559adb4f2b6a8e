"""Topics lose messages in one go through the log; tests/streams/test_rollups.py has what is rolled up."""

import pytest

from tests.streams.world import World, burst, done, single, small_sizes
from trunkline.streams import log
from trunkline.streams.config import StreamConfig
from trunkline.streams.purging import delete_message
from trunkline.streams.search import get_next
from trunkline.streams.thinning import AGAIN


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


@pytest.fixture
def scattered(monkeypatch: pytest.MonkeyPatch) -> World:
    """Of 103 messages of 101 topics two are too many, and a step looks at four."""
    world = World()
    world.create("#")
    world.publish("a")
    for number in range(100):
        world.publish(f"x/{number}")
    world.publish("a", b"", b"")
    monkeypatch.setattr(log, "MAX_STEP", 4)
    world.stream.update(StreamConfig(name="s", filters=("#",), max_messages_per_topic=1))
    return world


def test_each_step_looks_at_a_few_topics_or_messages(scattered: World) -> None:
    steps = 0
    while (needed := scattered.stream.work(scattered.now)) is not None:
        assert needed == AGAIN
        steps += 1
    assert 45 <= steps <= 60
    assert left(scattered) == [*range(2, 102), 103]
    figures = scattered.stream.log.topics.get("a")
    assert figures is not None
    assert figures.first == 103, "nobody looks for it from the beginning"


def test_nothing_more_is_looked_at_when_enough_is_gone(scattered: World) -> None:
    done(delete_message(scattered.stream, scattered, 102))
    steps = 0
    while scattered.stream.work(scattered.now) is not None:
        steps += 1
    assert 20 <= steps <= 30, "only the topics, and the first message"
    assert left(scattered) == [*range(2, 102), 103]


@pytest.mark.parametrize("steps", [5, 40])
def test_a_stream_that_is_cleared_meanwhile_has_no_work(scattered: World, steps: int) -> None:
    """While topics are looked at, and while messages are."""
    for _ in range(steps):
        assert scattered.stream.work(scattered.now) == AGAIN
    scattered.stream.clear()
    assert not scattered.stream.log.thinning.has_work


def test_a_stream_without_a_limit_keeps_all_of_a_topic() -> None:
    world = World()
    world.create("#")
    world.publish("a", *[b""] * 5)
    world.registry.update(StreamConfig(name="s", filters=("#",), description="changed"))
    world.settle()
    assert left(world) == [1, 2, 3, 4, 5]


def test_what_is_rolled_up_goes_in_steps_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "MAX_STEP", 4)
    world = World()
    world.create("#", allow_rollup=True)
    for _ in range(20):
        world.publish("a")
        world.publish("b")
    world.stream.take(single("a", rollup="sub"), world.now)
    assert world.stream.log.thinning.has_work
    assert left(world)[0] < 20
    world.settle()
    assert left(world) == [*range(2, 41, 2), 41]
    assert not world.stream.log.thinning.has_work


def test_of_a_burst_only_what_is_too_much_goes() -> None:
    world = World()
    world.create("#")
    world.publish("z")
    world.take(burst(["a", "b", "a", "b", "c", "a"], [b""] * 6))
    world.publish("z")
    world.registry.update(StreamConfig(name="s", filters=("#",), max_messages_per_topic=1))
    world.settle()
    assert left(world) == [5, 6, 7, 8]


def test_a_burst_of_another_topic_is_passed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.create("#")
    world.publish("a")
    for number in range(5):
        world.take(burst([f"x/{number}"], [b""] * 100))
    world.publish("a", b"", b"")
    monkeypatch.setattr(log, "MAX_STEP", 8)
    world.stream.log.thinning.crowd("a")
    world.stream.log.config = StreamConfig(name="s", filters=("#",), max_messages_per_topic=1)
    steps = 1
    while world.stream.work(world.now) is not None:
        steps += 1
    assert (steps, world.stream.log.messages) == (1, 501)
