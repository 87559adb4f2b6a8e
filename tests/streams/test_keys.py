from hypothesis import given
from hypothesis import strategies as st

from trunkline.streams.keys import (
    CONSUMERS,
    OF_A_STREAM,
    STREAMS,
    deadline_in,
    deadline_key,
    key,
    number_in,
    stream_key,
)

streams, numbers = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)


@given(streams, numbers)
def test_a_key_begins_with_its_stream_and_gives_its_number_back(stream: int, number: int) -> None:
    assert key(stream, number).startswith(stream_key(stream))
    assert number_in(key(stream, number)) == number


@given(st.lists(st.tuples(streams, numbers), max_size=9))
def test_keys_lie_in_the_order_of_streams_and_numbers(found: list[tuple[int, int]]) -> None:
    assert sorted(key(*each) for each in found) == [key(*each) for each in sorted(found)]


@given(st.lists(st.tuples(streams, numbers, numbers), max_size=9))
def test_deadlines_lie_in_the_order_of_time(found: list[tuple[int, int, int]]) -> None:
    assert sorted(deadline_key(*each) for each in found) == [deadline_key(*each) for each in sorted(found)]
    assert [deadline_in(deadline_key(*each)) for each in found] == [tick for _, tick, _ in found]


def test_no_key_of_a_stream_is_within_another_one() -> None:
    """What a stream leaves behind is erased from its key on to that of the next."""
    assert stream_key(7) <= key(7, 0) < key(7, 2**64 - 1) < stream_key(8) <= key(8, 0)


def test_the_row_of_a_stream_outlives_what_it_holds() -> None:
    assert STREAMS not in OF_A_STREAM
    assert CONSUMERS in OF_A_STREAM
    assert len({space.name for space in (STREAMS, *OF_A_STREAM)}) == 1 + len(OF_A_STREAM)
