"""An index is understood as far as it is whole, whatever pieces it comes in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.events.index import Index
from trunkline.events.layout import BEATS, LAST, RECORD_SIZE, SEALED, Header, LogError, Record

HEADER = Header(100, 1000, 7)
RECORDS = [
    Record(1000, 500, 100, 10, 1, 5000, 5900),
    Record(1500, 1000, 110, 20, 2, 4000, 4500),
    Record(2500, 200, 130, 1, 3, 6000, 6000),
]
SEAL = Record(2700, 8, 131, 0, 7, 4000, 6000, SEALED | LAST)
FILE = HEADER.pack() + b"".join(record.pack() for record in RECORDS)


def fed(*pieces: bytes, first: int = 100) -> Index:
    """Each piece is the file as it is at some time."""
    index = Index(first)
    for piece in pieces:
        index.feed(piece[index.position :])
    return index


def ranges(index: Index) -> list[tuple[int, int]]:
    return [(batch.first, batch.end) for batch in index.batches]


def test_what_a_whole_index_says() -> None:
    index = fed(FILE)
    assert ranges(index) == [(100, 110), (110, 130), (130, 131)]
    assert [(batch.offset, batch.size, batch.crc) for batch in index.batches] == [
        (1000, 500, 1),
        (1500, 1000, 2),
        (2500, 200, 3),
    ]
    assert (index.end, index.newest) == (131, 6000)
    assert (index.sealed, index.last, index.header, index.schema_crc) == (False, False, HEADER, 7)


def test_the_seal_ends_it() -> None:
    index = fed(FILE + SEAL.pack() + Record(3000, 9, 131, 5, 0, 0, 0).pack())
    assert (index.sealed, index.last, index.end, index.newest) == (True, True, 131, 6000)
    rolled = fed(FILE + SEAL._replace(flags=SEALED).pack())
    assert (rolled.sealed, rolled.last) == (True, False)


def test_it_may_be_cut_anywhere() -> None:
    for size in range(len(FILE) + 1):
        whole = max(0, size // RECORD_SIZE - 1)
        assert fed(FILE[:size]).end == [100, 110, 130, 131][whole]


@given(st.lists(st.integers(0, len(FILE) + RECORD_SIZE)).map(sorted))
def test_it_may_be_read_while_it_grows(sizes: list[int]) -> None:
    data = FILE + SEAL.pack()
    assert fed(*(data[:size] for size in sizes), data).batches == fed(data).batches


@given(st.binary(max_size=300))
def test_garbage_behind_the_last_number_is_nothing(garbage: bytes) -> None:
    index = fed(FILE + garbage)
    assert index.batches == fed(FILE).batches
    assert index.position == len(FILE)


@given(st.binary(max_size=300))
def test_garbage_alone_is_nothing(garbage: bytes) -> None:
    index = fed(garbage)
    assert (index.end, index.batches, index.header, index.newest) == (100, [], None, None)


def test_a_torn_record_is_whole_later() -> None:
    torn = FILE[:-RECORD_SIZE] + b"\0" * RECORD_SIZE
    index = fed(torn)
    assert index.end == 130
    index.feed(FILE[index.position :])
    assert index.batches == fed(FILE).batches


def damaged(number: int) -> bytes:
    data = bytearray(FILE + SEAL.pack())
    data[number * RECORD_SIZE + 20] ^= 1
    return bytes(data)


def test_a_wrong_record_before_a_right_one_is_a_hole() -> None:
    index = fed(damaged(2))
    assert ranges(index) == [(100, 110), (110, 130), (130, 131)]
    hole, after = index.batches[1:]
    assert (hole.size, hole.min_time) == (0, 5900)
    assert (after.offset, after.size) == (2500, 200)


def test_a_wrong_first_record_takes_its_time_from_the_next() -> None:
    hole = fed(damaged(1)).batches[0]
    assert (hole.first, hole.end, hole.min_time, hole.size) == (100, 110, 4000, 0)


def test_a_wrong_last_number_before_the_seal_is_a_hole() -> None:
    index = fed(damaged(3))
    assert ranges(index) == [(100, 110), (110, 130), (130, 131)]
    assert index.sealed


def test_a_wrong_seal_is_none() -> None:
    index = fed(damaged(4))
    assert (index.sealed, index.end) == (False, 131)


def test_a_wrong_header_hides_no_batch() -> None:
    index = fed(damaged(0))
    assert (index.header, index.schema_crc) == (None, 7)  # the seal knows it too
    assert ranges(index) == [(100, 110), (110, 130), (130, 131)]


def test_an_index_under_another_name_is_damaged() -> None:
    assert fed(FILE, first=120).header is None
    assert ranges(fed(FILE, first=90)) == [(90, 100), (100, 110), (110, 130), (130, 131)]


def test_records_that_go_back_are_wrong() -> None:
    again = b"".join(record.pack() for record in RECORDS)
    assert fed(FILE + again).batches == fed(FILE).batches
    short = Record(2600, 9, 131, 5, 0, 0, 0)  # begins within the one before it
    empty = Record(2800, 9, 131, 0, 0, 0, 0)
    assert fed(FILE + short.pack() + empty.pack()).batches == fed(FILE).batches


def test_a_later_version_is_refused() -> None:
    with pytest.raises(LogError, match="version 2; versions up to 1 are supported"):
        fed(HEADER._replace(version=2).pack())


@given(st.integers(0, 140), st.integers(0, 140))
def test_batches_within(first: int, end: int) -> None:
    index = fed(FILE)
    within = [batch for batch in index.batches if batch.first < end and batch.end > first and first < end]
    assert index.within(first, end) == within or first >= end


BEAT = Record(1500, 0, 110, 2, 0, 6000, 7000, BEATS)
AFTER = Record(1500, 1000, 113, 20, 2, 9000, 9500)


def test_heartbeats_that_became_more_after_they_were_read() -> None:
    begin = HEADER.pack() + RECORDS[0].pack()
    index = fed(begin + BEAT.pack() + AFTER.pack())
    assert [(batch.first, batch.end, batch.size) for batch in index.batches[1:]] == [(110, 113, 0), (113, 133, 1000)]


def test_a_batch_without_record_behind_heartbeats_is_a_hole() -> None:
    index = fed(HEADER.pack() + RECORDS[0].pack() + BEAT.pack() + AFTER._replace(offset=2200).pack())
    assert [(batch.first, batch.end, batch.flags) for batch in index.batches[2:]] == [(112, 113, 0), (113, 133, 0)]


@pytest.mark.parametrize("flags", [0, BEATS])
def test_a_damaged_record_behind_heartbeats_is_a_hole_and_no_heartbeats(flags: int) -> None:
    damaged = Record(1500, 0 if flags else 700, 112, 1, 0, 8000, 8000, flags).pack()[:-1] + b"?"
    after = AFTER._replace(offset=1500 if flags else 2200)
    begin = HEADER.pack() + RECORDS[0].pack() + BEAT.pack()
    for pieces in ((begin, begin + damaged + after.pack()), (begin + damaged + after.pack(),)):
        index = fed(*pieces)
        assert [(batch.first, batch.end, batch.flags) for batch in index.batches[1:]] == [
            (110, 112, BEATS),
            (112, 113, 0),
            (113, 133, 0),
        ]
