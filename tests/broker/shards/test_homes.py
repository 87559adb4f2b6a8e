"""Every client id has one home."""

from collections import Counter
from itertools import count

import pytest

from trunkline.broker.shards.homes import SLOTS, Homes, dealt, slot_of


def test_a_slot_is_that_of_all_versions() -> None:
    """Stored sessions are where these say: they never change."""
    assert slot_of("123456789") == 0xCB_F4_39_26 % 256  # the check value of CRC-32
    assert [slot_of(each) for each in ("", "a", "device-1", "ä")] == [0, 67, 121, 131]


@pytest.mark.parametrize("shards", [1, 2, 3, 7, 255, 256])
def test_slots_are_dealt_evenly(shards: int) -> None:
    counts = Counter(dealt(shards))
    assert sorted(counts) == list(range(shards))
    assert max(counts.values()) - min(counts.values()) <= 1


@pytest.mark.parametrize("shards", [0, -1, 257])
def test_there_are_no_more_shards_than_slots(shards: int) -> None:
    with pytest.raises(ValueError, match=f"{shards} shards"):
        dealt(shards)


def test_all_shards_know_the_same_homes() -> None:
    first, second = Homes(0, dealt(2)), Homes(1, dealt(2))
    ids = [f"device-{number}" for number in range(1000)]
    assert [first.home_of(each) for each in ids] == [second.home_of(each) for each in ids]
    assert 400 < sum(map(first.home_of, ids)) < 600


def test_a_table_may_be_any_that_gives_the_shard_a_slot() -> None:
    table = bytes([1] * 255 + [0])
    assert Homes(0, table).home_of("a") == 1
    with pytest.raises(ValueError, match="shard 2 has no slot"):
        Homes(2, table)
    with pytest.raises(ValueError, match="255 slots"):
        Homes(0, table[1:])


def test_a_drawn_client_id_has_its_home_here() -> None:
    for own in range(3):
        numbers = count()
        homes = Homes(own, dealt(3))
        drawn = homes.draw(lambda: f"auto-{next(numbers)}")  # noqa: B023 - it is called at once
        assert homes.home_of(drawn) == own
        assert drawn == f"auto-{next(numbers) - 1}"
    assert SLOTS == 256
