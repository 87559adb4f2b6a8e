from collections.abc import Iterator

import pytest

from tests.streams.world import World, burst, small_sizes
from trunkline.streams import search
from trunkline.streams.errors import MessageNotFound, WrongLastSequence
from trunkline.streams.filters import EVERYTHING, TopicFilters
from trunkline.streams.purging import delete_message
from trunkline.streams.search import (
    StreamMessage,
    TooManyTopics,
    count_from,
    deleted_sequences,
    filter_last,
    first_between,
    get,
    get_last,
    get_next,
    last_sequence,
    last_sequences,
    lasts_before,
    next_match,
    since,
    topic_counts,
    topics,
)
from trunkline.streams.topics import TopicFigures

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

    assert [last(topic) for topic in ("a/1", "a/2", "b", "a/+", "#", "")] == [6, 7, 9, 7, 9, 9]
    delete(world, 6, 9, 8)
    assert [last(topic) for topic in ("a/1", "a/2", "b", "a/+", "#")] == [4, 7, 5, 7, 7]
    with pytest.raises(MessageNotFound, match="no message of 'c'"):
        last("c")


def test_the_next_one_from_a_sequence_on(world: World) -> None:
    def following(topic_filter: str, sequence: int) -> int:
        return world.do(get_next(world.stream.log, world, topic_filter, sequence)).sequence

    found = [following(*each) for each in (("a/1", 1), ("a/1", 2), ("a/+", 5), ("b", 9), ("#", 4), ("", 4))]
    assert found == [1, 4, 6, 9, 4, 4]
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


def test_topics_that_are_too_many_are_not_gathered(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    matching = world.stream.log.topics.matching

    def counted(filters: TopicFilters) -> Iterator[tuple[str, TopicFigures] | None]:
        for each in matching(filters):
            looked.extend([each[0]] if each else [])
            yield each

    monkeypatch.setattr(world.stream.log.topics, "matching", counted)
    with pytest.raises(TooManyTopics):
        world.do(topics(world.stream.log, world, EVERYTHING, most=1))
    assert len(looked) == 2


def test_messages_are_counted_by_topic_in_pages() -> None:
    world = World()
    world.create("#")
    for number in range(30):
        world.publish(f"t/{number % 7}")
    world.publish("other")
    log = world.stream.log
    every, total = world.do(topic_counts(log, world, TopicFilters(("t/+",)), 0, 100))
    assert total == 7
    assert dict(every) == {f"t/{number}": 5 if number < 2 else 4 for number in range(7)}
    paged = [world.do(topic_counts(log, world, TopicFilters(("t/+",)), offset, 3)) for offset in (0, 3, 6, 9)]
    assert [each for counts, _ in paged for each in counts] == every
    assert [(len(counts), total) for counts, total in paged] == [(3, 7), (3, 7), (1, 7), (0, 7)]
    assert world.do(topic_counts(log, world, TopicFilters(()), 0, 100))[1] == 8


def test_which_messages_are_deleted() -> None:
    world = World()
    with small_sizes():
        world.create("#")
        for _ in range(60):
            world.publish("a")
        gone = [1, 2, 5, *range(16, 33), 59]
        for sequence in gone:
            world.do(delete_message(world.stream, world, sequence))
        log = world.stream.log
        assert deleted_sequences(log, 100) == gone[2:], "not those before the first message"
        assert deleted_sequences(log, 3) == [5, 16, 17]
        assert deleted_sequences(log, 0) == []


def test_what_a_publisher_expects_of_a_filter() -> None:
    world = World()
    with small_sizes():
        world.create("#", max_messages_per_topic=3)
        for topic in ("e/a", "e/b", "x", "e/a", "x"):
            world.publish(topic)
        stream, log = world.stream, world.stream.log
        of = world.do(filter_last(log, world, TopicFilters(("e/+",))))
        stream.expect("e/c", last_topic_sequence=4, of=of)
        with pytest.raises(WrongLastSequence, match="'e/\\+' in the stream 's' is 4, not 5"):
            stream.expect("e/c", last_topic_sequence=5, of=of)
        world.publish("x")
        stream.expect("e/c", last_topic_sequence=4, of=of)
        world.publish("e/b")
        with pytest.raises(WrongLastSequence, match="is 7, not 4"):
            stream.expect("e/c", last_topic_sequence=4, of=of)
        of = world.do(filter_last(log, world, TopicFilters(("e/+",))))
        world.do(delete_message(stream, world, 7))
        assert of.now(log) is None, "it has to be looked for again"
        with pytest.raises(WrongLastSequence):
            stream.expect("e/c", last_topic_sequence=4, of=of)
        of = world.do(filter_last(log, world, TopicFilters(("e/+",))))
        assert of.now(log) == 4
        none = world.do(filter_last(log, world, TopicFilters(("none",))))
        stream.expect("e/c", last_topic_sequence=0, of=none)


def test_it_is_looked_for_again_when_much_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MAX_STEP", 3)
    world = World()
    world.create("#")
    world.publish("a")
    of = world.do(filter_last(world.stream.log, world, TopicFilters(("a",))))
    world.publish("b", *[b""] * 4)
    assert of.now(world.stream.log) is None


def test_how_many_there_are_from_a_sequence_on(world: World) -> None:
    def count(low: int, *filters: str) -> int:
        return world.do(count_from(world.stream.log, world, TopicFilters(filters), low))

    assert [count(low) for low in (0, 1, 5, 9, 10, 99)] == [9, 9, 5, 1, 0, 0]
    assert [count(low, "a/+") for low in (0, 1, 2, 5, 7, 8)] == [5, 5, 4, 2, 1, 0]
    assert [count(low, "b") for low in (1, 3, 4, 9, 10)] == [4, 4, 3, 1, 0]
    assert count(3, "b", "a/2") == 5
    assert count(1, "c") == 0
    delete(world, 1, 5)
    assert [count(1), count(5), count(1, "a/+"), count(4, "b"), count(2, "a/1")] == [7, 4, 4, 2, 2]


def test_the_first_since_a_moment(world: World) -> None:
    def first(moment: float) -> int:
        return world.do(since(world.stream.log, world, moment))

    assert [first(moment) for moment in (0.0, 1000.0, 1000.1, 1004.0, 1008.0, 1008.1)] == [1, 1, 2, 5, 9, 10]
    delete(world, 5)
    assert first(1004.0) == 6


def test_the_last_of_each_topic_at_an_earlier_moment(world: World) -> None:
    def lasts(end: int, *filters: str, limit: int = 9) -> list[int]:
        return world.do(lasts_before(world.stream.log, world, TopicFilters(filters), end, limit))

    assert [lasts(end) for end in (10, 9, 7, 6, 3, 2, 1)] == [
        [6, 7, 9],
        [6, 7, 8],
        [2, 5, 6],
        [2, 4, 5],
        [1, 2],
        [1],
        [],
    ]
    assert lasts(7, "a/+") == [2, 6]
    assert lasts(9, "c") == []
    delete(world, 4, 5)
    assert lasts(6) == [1, 2, 3]
    assert lasts(3, limit=2) == [1, 2], "the third begins later"
    with pytest.raises(TooManyTopics):
        lasts(4, limit=2)


def test_of_messages_that_came_together() -> None:
    world = World()
    world.create("#")
    world.take(burst(["a", "a", "b", "a"], [b""] * 4))
    log = world.stream.log
    assert [world.do(count_from(log, world, TopicFilters(("a",)), low)) for low in range(1, 6)] == [3, 2, 1, 1, 0]
    assert world.do(lasts_before(log, world, EVERYTHING, 4, 9)) == [2, 3]
    assert world.do(lasts_before(log, world, EVERYTHING, 3, 9)) == [2]


def test_moments_are_those_of_the_calendar(world: World) -> None:
    log = world.stream.log
    log.behind = 500.0  # the calendar was set anew since
    assert [world.do(since(log, world, moment)) for moment in (1500.0, 1504.0, 1508.5)] == [1, 5, 10]
    found = world.do(first_between(log, world, EVERYTHING, 5, 6))
    assert found is not None
    assert found.time == 1504.0
