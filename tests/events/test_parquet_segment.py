"""Compacted segments: whole, damaged, and written by others."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import LocalFileSystem

from tests.events.logs import KEY, expected, flip, table, time, write_parquet
from trunkline.events.listing import SegmentFiles
from trunkline.events.parquet_segment import ParquetSegment
from trunkline.events.projection import Projection
from trunkline.events.segment import Damage, Part, Rows

ALL = Projection(None)


def segment(path: Path, first: int = 0, end: int = 300) -> ParquetSegment:
    return ParquetSegment(LocalFileSystem(), SegmentFiles(first, end, (str(path),)))


def rows(one: ParquetSegment, first: int, end: int, projection: Projection = ALL) -> pa.Table:
    pieces = list(one.read(KEY, first, end, projection, verify=True))
    assert [piece.first for piece in pieces] == [first, *(piece.end for piece in pieces[:-1])]
    assert pieces[-1].end == end
    return table(piece.batch for piece in pieces if isinstance(piece, Rows))


def test_any_range(tmp_path: Path) -> None:
    one = segment(write_parquet(tmp_path, 1000, 1300), 1000, 1300)
    for first, end in ((1000, 1300), (1000, 1001), (1099, 1101), (1100, 1200), (1250, 1300)):
        assert rows(one, first, end) == expected(first, end)
    assert rows(one, 1050, 1250, Projection(["seq", "user_properties"])) == expected(
        1050, 1250, columns=["seq", "user_properties"]
    )
    assert rows(one, 1050, 1250, Projection(["seq"])) == expected(1050, 1250, columns=["seq"])


def test_batches_within_a_row_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.events.parquet_segment._BATCH_ROWS", 7)
    one = segment(write_parquet(tmp_path, 0, 300))
    for first, end in ((0, 300), (13, 14), (14, 21), (95, 205)):
        assert rows(one, first, end) == expected(first, end)


def test_parts_are_the_row_groups(tmp_path: Path) -> None:
    one = segment(write_parquet(tmp_path, 0, 250), 0, 250)
    parts = list(one.parts(100, 250))
    assert [part[:4] for part in parts] == [
        (100, 200, time(100), time(199)),
        (200, 250, time(200), time(249)),
    ]
    assert all(part.size > 100 for part in parts)
    assert one.newest == time(249)
    one.forget()
    assert one.newest == time(249)


def rewrite(path: Path, change: Any = None, **options: Any) -> None:
    rows = pq.read_table(path)
    pq.write_table(change(rows) if change else rows, path, **options)


def test_without_times_nobody_tells_them(tmp_path: Path) -> None:
    path = write_parquet(tmp_path, 0, 300)
    rewrite(path, lambda rows: rows.drop_columns(["time"]))
    [part] = segment(path).parts(0, 300)
    assert part[:4] == (0, 300, None, None)
    assert segment(path).newest is None


def test_it_numbers_its_rows_by_its_name(tmp_path: Path) -> None:
    path = write_parquet(tmp_path, 0, 300)
    assert segment(path).misplaced(KEY) is None
    other = path.rename(path.with_name("00000000000000000500-00000000000000000800.parquet"))
    one = segment(other, 500, 800)
    assert rows(one, 500, 800, Projection(["seq"])) == expected(500, 800, columns=["seq"])
    assert one.misplaced(KEY) == "its column seq does not continue from 500"
    rewrite(other, lambda rows: rows.drop_columns(["seq"]))
    assert segment(other, 500, 800).misplaced(KEY) is None


def test_another_number_of_rows_than_its_name_says(tmp_path: Path) -> None:
    one = segment(write_parquet(tmp_path, 0, 250))
    damage = Damage(100, 300, "it has 250 rows, but its name says 300", None)
    assert list(one.read(KEY, 100, 300, ALL, verify=True)) == [damage]
    [part] = one.parts(0, 300)
    assert part[:4] == (0, 300, None, None)
    assert one.newest is None


@pytest.mark.parametrize("content", [b"", b"PAR1", b"no such thing at all", b"PAR1" + b"x" * 100 + b"PAR1"])
def test_no_parquet_at_all(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken"
    path.write_bytes(content)
    [damage] = segment(path).read(KEY, 10, 300, ALL, verify=True)
    assert isinstance(damage, Damage)
    assert damage[:2] == (10, 300)
    assert damage.reason.startswith("its footer cannot be read: ")
    assert list(segment(path).parts(10, 20)) == [Part(0, 300, None, None, len(content))]


def test_a_damaged_page_costs_its_row_group(tmp_path: Path) -> None:
    path = write_parquet(tmp_path, 0, 300)
    column = pq.ParquetFile(path).metadata.row_group(1).column(expected(0, 1).schema.get_field_index("size"))
    flip(path, column.data_page_offset + column.total_compressed_size - 5)
    pieces = list(segment(path).read(KEY, 50, 250, ALL, verify=True))
    damage = pieces[1]
    assert isinstance(damage, Damage)
    assert (damage.first, damage.end, damage.time) == (100, 200, time(100))
    assert "CRC" in damage.reason
    assert table([piece.batch for piece in pieces if isinstance(piece, Rows)]) == pa.concat_tables(
        [expected(50, 100), expected(200, 250)]
    )
    assert rows(segment(path), 50, 250, Projection(["kind"])) == expected(50, 250, columns=["kind"])


def test_a_damaged_page_of_kinds_is_left_to_those_who_read_rows(tmp_path: Path) -> None:
    path = write_parquet(tmp_path, 0, 300)
    column = pq.ParquetFile(path).metadata.row_group(2).column(expected(0, 1).schema.get_field_index("kind"))
    data = path.read_bytes()
    places = range(column.dictionary_page_offset, column.dictionary_page_offset + column.total_compressed_size)
    for place in places:
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x80]) + data[place + 1 :])
        assert list(segment(path).groups_with("client.connected"))[:2] == [(0, 100), (100, 200)]
        assert not segment(path).is_last


def test_a_way_that_fails_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = segment(write_parquet(tmp_path, 0, 300))

    def fail(*_: Any, **__: Any) -> Any:
        raise OSError("the network is down")

    monkeypatch.setattr("trunkline.events.parquet_segment.pq.ParquetFile.iter_batches", fail)
    monkeypatch.setattr("trunkline.events.parquet_segment._read_raw", fail)
    with pytest.raises(OSError, match="the network is down"):
        list(one.read(KEY, 0, 300, ALL, verify=True))


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    one = segment(tmp_path / "gone")
    with pytest.raises(FileNotFoundError):
        list(one.read(KEY, 0, 300, ALL, verify=True))
    with pytest.raises(FileNotFoundError):
        list(one.parts(0, 300))
