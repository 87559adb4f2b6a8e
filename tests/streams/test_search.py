from collections.abc import Iterator

import pytest

from tests.streams.world import World, burst, small_sizes
from trunkline.streams.errors import MessageNotFound
from trunkline.streams.filters import EVERYTHING, TopicFilters
from trunkline.streams.purging import delete_message
from trunkline.streams.search import (
    StreamMessage,
    get,
    get_last,
    get_next,
    last_sequence,
    last_sequences,
    next_match,
    topics,
)

TOPICS = ["a/1", "a/2", "b", "a/1", "b", "a/1", "a/2", "b", "b"]


@pytest.fixture(params=["in memory", "in the store"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Nine messages, one second after another."""
    world = World()
    with small_sizes():
        world.create("#")
        for number, topic in enumerate(TOPICS, 1):
            world.publish(topic, b"%d" % number)
            world.now += 1
        if request.param == "in the store":
            world.restart()
        yield world


def delete(world: World, *sequences: int) -> None:
    for sequence in sequences:
        world.do(delete_message(world.stream, world, sequence))


def test_a_message_by_its_sequence(world: World) -> None:
    for number, topic in enumerate(TOPICS, 1):
        found = world.do(get(world.stream.log, world, number))
        assert isinstance(found, StreamMessage)
        assert (found.sequence, found.message.topic, found.message.payload) == (number, topic, b"%d" % number)
        assert found.time == 1000.0 + number - 1
    delete(world, 4)
    for sequence in (0, 4, 10):
        with pytest.raises(MessageNotFound, match=f"the stream 's' has no message {sequence}$"):
            world.do(get(world.stream.log, world, sequence))


def test_the_last_one_of_a_topic_and_of_a_filter(world: World) -> None:
    def last(topic: str) -> int:
        return world.do(get_last(world.stream.log, world, topic)).sequence

    assert [last(topic) for topic in ("a/1", "a/2", "b", "a/+", "#")] == [6, 7, 9, 7, 9]
    delete(world, 6, 9, 8)
    assert [last(topic) for topic in ("a/1", "a/2", "b", "a/+", "#")] == [4, 7, 5, 7, 7]
    with pytest.raises(MessageNotFound, match="no message of 'c'"):
        last("c")


def test_the_next_one_from_a_sequence_on(world: World) -> None:
    def following(topic_filter: str, sequence: int) -> int:
        return world.do(get_next(world.stream.log, world, topic_filter, sequence)).sequence

    found = [following(*each) for each in (("a/1", 1), ("a/1", 2), ("a/+", 5), ("b", 9), ("#", 4))]
    assert found == [1, 4, 6, 9, 4]
    delete(world, 4)
    assert following("a/1", 2) == 6
    for topic_filter, sequence in (("a/1", 7), ("c", 1), ("#", 10)):
        with pytest.raises(MessageNotFound, match=f"of '{topic_filter}' from {sequence} on"):
            following(topic_filter, sequence)


def test_a_match_lies_before_the_end(world: World) -> None:
    def matching(low: int, end: int) -> int | None:
        found = world.do(next_match(world.stream.log, world, TopicFilters(("a/2",)), low, end))
        return None if found is None else found[0]

    assert [matching(1, 3), matching(1, 2), matching(3, 8), matching(3, 7), matching(8, 99)] == [2, None, 7, None, None]


def test_a_piece_of_one_topic_that_does_not_match_is_passed_over_as_a_whole() -> None:
    world = World()
    world.create("#")
    world.take(burst(["a"], [b"x"] * 3))
    world.take(burst(["a", "b"], [b"x", b"y"]))
    found = world.do(next_match(world.stream.log, world, TopicFilters(("b",)), 1, 99))
    assert found is not None
    assert found[0] == 5


def test_topics_and_their_last_sequences(world: World) -> None:
    log = world.stream.log
    assert sorted(topic for topic, _ in world.do(topics(log, world, TopicFilters(("a/+",))))) == ["a/1", "a/2"]
    assert world.do(last_sequences(log, world, EVERYTHING, 100)) == [6, 7, 9]
    assert world.do(last_sequences(log, world, EVERYTHING, 9)) == [6, 7]
    assert world.do(last_sequence(log, world, TopicFilters(("c",)))) is None
    delete(world, 6, 9)
    assert world.do(last_sequences(log, world, EVERYTHING, 100)) == [4, 7, 8]


def test_a_long_search_lets_others_have_their_turn(world: World) -> None:
    paused = []

    async def pause() -> None:
        paused.append(True)

    world.pause = pause  # type: ignore[method-assign]
    world.stream.log.patience = 0
    assert world.do(get_next(world.stream.log, world, "b", 9)).sequence == 9
    assert paused
