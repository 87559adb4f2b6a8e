"""The index of topics, and its rows."""

from itertools import pairwise

import pytest

from tests.streams.world import small_sizes
from trunkline.router.topictree import PATIENCE
from trunkline.store import WriteBatch
from trunkline.store.engine import rows
from trunkline.store.memory import MemoryEngine
from trunkline.streams.filters import TopicFilters
from trunkline.streams.keys import STREAM_TOPICS
from trunkline.streams.topics import MAX_ROWS, PLANTED_AT_ONCE, TopicIndex


def commit(index: TopicIndex, engine: MemoryEngine) -> bool:
    batch = WriteBatch()
    more = index.write(1, batch)
    engine.commit(batch)
    return more


def restored(engine: MemoryEngine) -> TopicIndex:
    index = TopicIndex()
    for row in rows(engine, STREAM_TOPICS):
        index.restore(row)
    return index


def figures(index: TopicIndex) -> dict[str, tuple[int, int, int, int, bool]]:
    while not index.plant():
        pass
    return {
        topic: (each.count, each.byte_size, each.first, each.last, each.exact)
        for topic, each in filter(None, index.matching(TopicFilters(())))
    }


def test_counts_and_the_last_one() -> None:
    index = TopicIndex()
    index.add("a", 1, 3, 30)
    index.add("a", 7, 1, 5)
    index.add("b", 4, 3, 1)
    assert figures(index) == {"a": (4, 35, 1, 7, True), "b": (3, 1, 4, 6, True)}
    index.remove("a", 1, 10)
    index.remove("a", 7, 5)
    assert figures(index)["a"] == (2, 20, 2, 6, False), "which one is the last is not known"
    index.resolve("a", 3)
    assert figures(index)["a"] == (2, 20, 2, 3, True)
    index.remove("a", 2, 20, 2)
    assert list(figures(index)) == ["b"]
    index.clear()
    assert not len(index)


@pytest.mark.parametrize("filters", [(), ("#",)], ids=["all", "those of a filter"])
def test_a_look_through_many_topics_lets_others_have_their_turn(filters: tuple[str, ...]) -> None:
    index = TopicIndex()
    for number in range(3 * PATIENCE + 1):
        index.add(f"t{number}", number + 1, 1, 1)
    while not index.plant():
        pass
    found = list(index.matching(TopicFilters(filters)))
    turns = [place for place, each in enumerate([*found, None]) if each is None]
    assert max(later - place for place, later in pairwise([-1, *turns])) <= PATIENCE + 1
    assert len(turns) < 8


def test_they_are_made_ready_in_steps() -> None:
    index = TopicIndex()
    for number in range(3 * PLANTED_AT_ONCE):
        index.add(f"t{number}", number + 1, 1, 1)
    assert [index.plant() for _ in range(3)] == [False, False, True]


def test_a_topic_that_several_filters_match_is_found_once() -> None:
    index = TopicIndex()
    index.add("a/b", 1, 1, 1)
    index.plant()
    found = [each for each in index.matching(TopicFilters(("a/+", "a/b", "#"))) if each is not None]
    assert [topic for topic, _ in found] == ["a/b"]


def test_topics_come_while_others_are_looked_at() -> None:
    index = TopicIndex()
    index.add("a", 1, 1, 1)
    index.add("b", 2, 1, 1)
    found = []
    for each in index.matching(TopicFilters(())):
        if each is not None:
            found.append(each[0])
            index.add(f"{each[0]}/new", 3, 1, 1)
    assert found == ["a", "b"]


def test_many_filters_that_match_nothing_let_others_have_their_turn() -> None:
    filters = TopicFilters(tuple(f"none/{number}" for number in range(3 * PATIENCE)))
    assert list(TopicIndex().matching(filters)).count(None) >= 3


def test_which_one_is_the_last_is_known_with_the_next_one() -> None:
    index = TopicIndex()
    index.add("a", 1, 5, 50)
    index.remove("a", 4, 20, 2)
    assert figures(index)["a"] == (3, 30, 1, 3, False), "the last one was among them"
    index.add("a", 6, 1, 10)
    assert figures(index)["a"] == (4, 40, 1, 6, True)


def test_a_topic_that_goes_before_it_is_looked_for() -> None:
    index = TopicIndex()
    index.add("a", 1, 1, 1)
    index.remove("a", 1, 1)
    assert (len(index), index.plant(), len(index._unplanted)) == (0, True, 0)
    assert list(index.matching(TopicFilters(("a",)))) == []


def test_what_counts_no_more_and_its_rows() -> None:
    engine, index = MemoryEngine(), TopicIndex()
    for first, count in ((1, 3), (4, 2)):
        index.add("a", first, count, 10 * count)
        commit(index, engine)
        index.roll_up("a")
    index.add("a", 6, 1, 10)
    commit(index, engine)
    assert index.rolled_up == restored(engine).rolled_up == {"a": (1, 6, 5)}
    assert [index.is_rolled_up("a", sequence) for sequence in (1, 5, 6)] == [True, True, False]
    index.removed_rolled_up("a", 3)
    index.forget_rolled_up("a", 5)
    assert index.rolled_up == {"a": (1, 6, 2)}
    index.removed_rolled_up("a", 2)
    commit(index, engine)
    assert index.rolled_up == restored(engine).rolled_up == {}
    index.remove("a", 6, 10)
    commit(index, engine)
    assert figures(restored(engine)) == {}


def test_what_has_been_looked_for_is_kept() -> None:
    engine, index = MemoryEngine(), TopicIndex()
    index.add("a", 1, 5, 50)
    index.remove("a", 5, 10)
    commit(index, engine)
    index.resolve("a", 3)
    index.resolve("a", 2)  # somebody else has looked as well, and says nothing new
    commit(index, engine)
    assert figures(index) == figures(restored(engine)) == {"a": (4, 40, 1, 3, True)}


def test_nothing_is_left_when_all_messages_are_gone() -> None:
    engine, index = MemoryEngine(), TopicIndex()
    with small_sizes():
        for number in range(1, 8):  # a rewriting has begun
            index.add(f"t{number}", number, 1, 1)
            commit(index, engine)
        index.roll_up("t1")
        index.add("t8", 8, 1, 1)
        while not index.plant():
            pass
        index.add("t9", 9, 1, 1)
        index.clear()
        assert (index.rolled_up, len(index._unplanted)) == ({}, 0)
        assert list(index._tree.match("#")) == []
        while commit(index, engine):
            pass
        assert engine.count(STREAM_TOPICS) == 0
        assert figures(restored(engine)) == {}
        index.add("new", 10, 1, 1)
        while commit(index, engine):
            pass
        assert figures(restored(engine)) == {"new": (1, 1, 10, 10, True)}


@pytest.mark.parametrize("rewrites", [False, True])
def test_rows_tell_the_same(rewrites: bool) -> None:
    engine, index = MemoryEngine(), TopicIndex()
    with small_sizes():
        for number in range(40):
            index.add(f"t{number % 5}", number + 1, 1, 2)
            if number % 9 == 8:
                index.remove(f"t{number % 5}", number + 1, 2)
            commit(index, engine)
            assert figures(restored(engine)) == figures(index)
        while rewrites and commit(index, engine):
            pass
    assert figures(restored(engine)) == figures(index)


def test_rows_do_not_become_more_and_more() -> None:
    engine, index = MemoryEngine(), TopicIndex()
    for number in range(5 * MAX_ROWS):
        index.add(f"t{number % 3}", number + 1, 1, 2)
        commit(index, engine)
    assert engine.count(STREAM_TOPICS) < 2 * MAX_ROWS


def test_rows_go_on_with_their_numbers_after_a_restart() -> None:
    engine, index = MemoryEngine(), TopicIndex()
    with small_sizes():
        for number in range(10):
            index.add("a", number + 1, 1, 1)
            while commit(index, engine):
                pass
            index = restored(engine)
            assert figures(index)["a"][0] == number + 1
        assert engine.count(STREAM_TOPICS) < 8
