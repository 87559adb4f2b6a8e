"""One segment by itself: what a reader of the whole log does not show."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow.fs import LocalFileSystem

from tests.events.logs import KEY, append, expected, flip, only, table, time, write
from trunkline.events.arrow_segment import ArrowSegment
from trunkline.events.layout import DATA, INDEX, RECORD_SIZE
from trunkline.events.listing import list_segments
from trunkline.events.projection import Projection
from trunkline.events.segment import Damage, Part, Rows

ALL = Projection(None)


def segment(root: Path) -> ArrowSegment:
    (files,) = list_segments(LocalFileSystem(), str(root), KEY)[KEY]
    return ArrowSegment(LocalFileSystem(), files)


def batches(pieces: list[Rows | Damage]) -> list[pa.RecordBatch]:
    return [piece.batch for piece in pieces if isinstance(piece, Rows)]


def test_parts_and_rows(tmp_path: Path) -> None:
    write(tmp_path, [10, 20])
    one = segment(tmp_path)
    assert (one.first, one.end, one.newest) == (0, 30, time(29))
    parts = list(one.parts(0, 30))
    assert [(part.first, part.end, part.min_time, part.max_time) for part in parts] == [
        (0, 10, time(0), time(9)),
        (10, 30, time(10), time(29)),
    ]
    assert list(one.parts(10, 11)) == parts[1:]
    pieces = list(one.read(KEY, 8, 12, ALL, verify=True))
    assert [(piece.first, piece.end) for piece in pieces] == [(8, 12)]  # batches that are read at once are one
    assert table(batches(pieces)) == expected(8, 12)


def test_it_grows_when_it_is_looked_at_again(tmp_path: Path) -> None:
    writer = write(tmp_path, [10])
    one = segment(tmp_path)
    assert one.end == 10
    append(writer, 5)
    assert one.end == 10
    one.mark_stale()
    assert one.end == 15
    writer.close()
    one.mark_stale()
    assert one.index.sealed
    only(tmp_path, INDEX).unlink()
    one.mark_stale()
    assert one.end == 15
    one.forget()
    with pytest.raises(FileNotFoundError):  # not a segment without rows
        _ = one.end


def test_a_vanished_index_leaves_what_is_known(tmp_path: Path) -> None:
    write(tmp_path, [10])
    one = segment(tmp_path)
    assert one.end == 10
    only(tmp_path, INDEX).unlink()
    one.mark_stale()
    assert one.end == 10
    only(tmp_path, DATA).unlink()
    with pytest.raises(FileNotFoundError):
        list(one.read(KEY, 0, 10, ALL, verify=True))


def test_without_header_the_stream_says_where_the_rows_begin(tmp_path: Path) -> None:
    write(tmp_path, [10, 20]).close()
    flip(only(tmp_path, INDEX), 0)
    assert table(batches(list(segment(tmp_path).read(KEY, 0, 30, ALL, verify=True)))) == expected(0, 30)
    assert [part.size > 0 for part in segment(tmp_path).parts(0, 30)] == [True, True]
    flip(only(tmp_path, DATA), 1)  # neither says it
    pieces = list(segment(tmp_path).read(KEY, 5, 30, ALL, verify=True))
    assert pieces == [
        Damage(5, 10, "the segment's schema is damaged", time(0)),
        Damage(10, 30, "the segment's schema is damaged", time(10)),
    ]


def test_a_schema_that_cannot_be_checked_is_not_relied_on(tmp_path: Path) -> None:
    write(tmp_path, [10])
    flip(only(tmp_path, INDEX), 0)
    assert list(segment(tmp_path).read(KEY, 0, 10, ALL, verify=True)) == [
        Damage(0, 10, "the segment's schema is damaged", time(0))
    ]
    assert table(batches(list(segment(tmp_path).read(KEY, 0, 10, ALL, verify=False)))) == expected(0, 10)


def test_damage_is_told_with_its_reason(tmp_path: Path) -> None:
    write(tmp_path, [10, 10, 10, 10, 10])
    index = only(tmp_path, INDEX)
    found = segment(tmp_path).index.batches
    flip(only(tmp_path, DATA), (found[0].offset or 0) + 200)
    flip(index, 3 * RECORD_SIZE + 1)
    with only(tmp_path, DATA).open("r+b") as file:
        file.truncate((found[4].offset or 0) + found[4].size - 1)
    pieces = list(segment(tmp_path).read(KEY, 0, 50, ALL, verify=True))
    assert [piece for piece in pieces if isinstance(piece, Damage)] == [
        Damage(0, 10, "its checksum is wrong", time(0)),
        Damage(20, 30, "its index record is damaged", time(19)),
        Damage(40, 50, "the file ends before it does", time(40)),
    ]
    assert [(piece.first, piece.end) for piece in pieces if isinstance(piece, Rows)] == [(10, 20), (30, 40)]
    assert list(segment(tmp_path).parts(20, 30)) == [Part(20, 30, time(19), time(19), 0)]


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_unverified_damage_is_an_error_and_no_crash(tmp_path: Path, compression: str) -> None:
    """Most flipped bits are in values and pass; the rest must be told, whatever pyarrow makes of them."""
    write(tmp_path, [10, 10, 10], compression=compression)
    data = only(tmp_path, DATA)
    first, last = (segment(tmp_path).index.batches[number].offset or 0 for number in (1, 2))
    for at in range(first, last, 37):
        flip(data, at, 0xFF)
        pieces = list(segment(tmp_path).read(KEY, 0, 30, ALL, verify=False))
        if len(pieces) > 1:
            assert [(piece.first, piece.end) for piece in pieces] == [(0, 10), (10, 20), (20, 30)]
            assert isinstance(pieces[1], Damage)
        assert isinstance(pieces[-1], Rows)
        assert table([pieces[-1].batch.slice(pieces[-1].batch.num_rows - 10)]) == expected(20, 30)
        flip(data, at, 0xFF)


def test_a_record_that_lies_about_its_rows(tmp_path: Path) -> None:
    from trunkline.events.layout import Record

    write(tmp_path, [10])
    index = only(tmp_path, INDEX)
    record = Record.unpack(index.read_bytes()[RECORD_SIZE:])
    assert record is not None
    index.write_bytes(index.read_bytes()[:RECORD_SIZE] + record._replace(rows=11).pack())
    [piece] = segment(tmp_path).read(KEY, 0, 11, ALL, verify=True)
    assert piece == Damage(0, 11, "it has 10 rows instead of 11", time(0))
