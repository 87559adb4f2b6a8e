"""Against a set of numbers."""

from hypothesis import given
from hypothesis import strategies as st

from tests.streams.world import small_sizes
from trunkline.store import WriteBatch
from trunkline.store.engine import rows
from trunkline.store.memory import MemoryEngine
from trunkline.streams import deleted
from trunkline.streams.deleted import DeletedSequences
from trunkline.streams.keys import STREAM_DELETED

sequences = st.integers(0, 60)
ranges = st.tuples(sequences, st.integers(1, 30)).map(lambda each: (each[0], sum(each)))


@given(st.lists(ranges, max_size=8), sequences)
def test_as_a_set(added: list[tuple[int, int]], below: int) -> None:
    with small_sizes():
        some, engine, expected = DeletedSequences(), MemoryEngine(), set[int]()
        for low, high in added:
            some.add_range(low, high)
            expected |= set(range(low, high))
        assert {each for each in range(120) if each in some} == expected
        for low in range(0, 100, 7):
            assert some.next_live(low) == next(each for each in range(low, 200) if each not in expected)
            assert some.count(low, 77) == len(expected & set(range(low, 77)))
            assert some.first_of(low, 77, 100) == sorted(expected & set(range(low, 77)))
            assert some.first_of(low, 77, 5) == sorted(expected & set(range(low, 77)))[:5]
        batch = WriteBatch()
        some.write(1, batch)
        engine.commit(batch)
        some.drop_below(below)
        batch = WriteBatch()
        some.write(1, batch)
        engine.commit(batch)
        again = DeletedSequences()
        for row in rows(engine, STREAM_DELETED):
            again.restore(row)
        assert {each for each in range(below, 120) if each in again} == {each for each in expected if each >= below}
        assert engine.count(STREAM_DELETED) == len({each // 8 for each in expected if each // 8 >= below // 8})


def test_a_chunk_is_untidy_when_much_of_it_is_gone() -> None:
    some = DeletedSequences()
    some.add_range(0, deleted.CHUNK // 2 - 1)
    assert not some.untidy
    some.add(deleted.CHUNK // 2)
    assert list(some.untidy) == [0]
    some.drop_below(deleted.CHUNK)
    assert not some.untidy


def test_what_is_gone_in_one_piece_takes_next_to_nothing() -> None:
    some = DeletedSequences()
    some.add_range(0, 1_000_000)
    assert len({id(mask) for mask in some._chunks.values() if mask == deleted.FULL}) == 1
