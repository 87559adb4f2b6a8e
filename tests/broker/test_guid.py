import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.broker.guid import Guids, from_text, to_text

NOW = 1_700_000_000.25


def split(guid: int) -> tuple[int, int, int, int]:
    """Microseconds, node, origin and sequence."""
    return guid >> 64, guid >> 48 & 0xFFFF, guid >> 16 & 0xFFFF_FFFF, guid & 0xFFFF


def test_an_id_is_made_of_time_node_origin_and_sequence() -> None:
    guids = Guids(0xABCD, 0x12345678)
    assert split(guids.next(NOW)) == (1_700_000_000_250_000, 0xABCD, 0x12345678, 0)
    assert split(guids.next(NOW)) == (1_700_000_000_250_000, 0xABCD, 0x12345678, 1)
    assert guids.next(NOW).bit_length() <= 128


def test_a_new_microsecond_begins_a_new_sequence() -> None:
    guids = Guids(1, 2)
    guids.next(NOW)
    guids.next(NOW)
    assert split(guids.next(NOW + 0.5)) == (1_700_000_000_750_000, 1, 2, 0)


def test_a_used_up_sequence_moves_the_time_on() -> None:
    guids = Guids(0xFFFF, 0xFFFFFFFF)
    ids = [guids.next(NOW) for _ in range(2 * 65_536 + 1)]
    assert split(ids[65_535]) == (1_700_000_000_250_000, 0xFFFF, 0xFFFFFFFF, 0xFFFF)
    assert split(ids[65_536]) == (1_700_000_000_250_001, 0xFFFF, 0xFFFFFFFF, 0)
    assert split(ids[-1]) == (1_700_000_000_250_002, 0xFFFF, 0xFFFFFFFF, 0)
    assert ids == sorted(set(ids))


def test_a_clock_behind_the_ids_catches_up_without_a_repetition() -> None:
    guids = Guids(1, 2)
    last = [guids.next(NOW) for _ in range(2 * 65_536 + 1)][-1]
    assert split(last)[0] == 1_700_000_000_250_002
    assert guids.next(NOW + 1e-6) == last + 1
    assert split(guids.next(NOW + 1e-3)) == (1_700_000_000_251_000, 1, 2, 0)


def test_a_clock_that_goes_back_does_not_take_the_ids_with_it() -> None:
    guids = Guids(1, 2)
    first = guids.next(NOW)
    assert [guids.next(NOW - seconds) for seconds in (1.0, 3600.0, NOW)] == [first + 1, first + 2, first + 3]
    assert split(guids.next(NOW + 1e-3))[0] == 1_700_000_000_251_000


def test_two_origins_never_give_the_same_id() -> None:
    ones, others = Guids(1, 1), Guids(1, 2)
    assert {ones.next(NOW) for _ in range(100)}.isdisjoint(others.next(NOW) for _ in range(100))


@given(st.lists(st.tuples(st.floats(0, 1e10), st.integers(1, 4)), max_size=50))
def test_ids_grow_whatever_the_clock_does(steps: list[tuple[float, int]]) -> None:
    guids = Guids(1, 2)
    ids = [guids.next(now) for now, count in steps for _ in range(count)]
    assert ids == sorted(set(ids))
    assert all(split(guid)[1:3] == (1, 2) for guid in ids)


@given(st.integers(0, (1 << 128) - 1), st.integers(0, (1 << 128) - 1))
def test_text_sorts_as_ids_do_and_reads_back(one: int, other: int) -> None:
    assert from_text(to_text(one)) == one
    assert (to_text(one) < to_text(other)) is (one < other)
    assert len(to_text(one)) == 32


@pytest.mark.parametrize(
    "text", ["", "0" * 31, "0" * 33, "G" * 32, "A" * 32, "0x" + "0" * 30, "0_" * 16, "0" * 32 + "\n"]
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a message id"):
        from_text(text)


@pytest.mark.parametrize(("node", "origin"), [(-1, 0), (1 << 16, 0), (0, -1), (0, 1 << 32)])
def test_node_and_origin_must_fit(node: int, origin: int) -> None:
    with pytest.raises(ValueError, match="must fit"):
        Guids(node, origin)
