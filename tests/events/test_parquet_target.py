"""A file is whole or is not there, and holds rows of one day without a hole."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import LocalFileSystem

from tests.events.logs import KEY, expected
from trunkline.events import parquet_target
from trunkline.events.layout import VERSION_KEY
from trunkline.events.parquet_target import ParquetTarget
from trunkline.events.schema import SCHEMA
from trunkline.events.target import Missing, Piece, Written

DAY = 86_400_000_000


def target(root: Path, **options: int) -> ParquetTarget:
    return ParquetTarget(root.as_posix(), LocalFileSystem(), **options)


def rows(first: int, times: list[int | None]) -> pa.RecordBatch:
    """Rows from `first` on with these times, in microseconds."""
    table = expected(first, first + len(times))
    table = table.set_column(
        SCHEMA.names.index("time"), SCHEMA.field("time"), pa.array(times, SCHEMA.field("time").type)
    )
    (batch,) = table.combine_chunks().to_batches()
    return batch


def same(first: int, end: int) -> pa.RecordBatch:
    (batch,) = expected(first, end).combine_chunks().to_batches()
    return batch


def names(root: Path) -> list[str]:
    return sorted(
        path.relative_to(root / KEY.compacted_directory).as_posix() for path in root.rglob("*") if path.is_file()
    )


def name(first: int, end: int) -> str:
    return f"{first:020d}-{end:020d}.parquet"


def test_rows_become_one_file_that_says_what_it_has(tmp_path: Path) -> None:
    written = target(tmp_path).write(KEY, 100, 400, iter([same(100, 150), same(150, 400)]))
    path = tmp_path / KEY.compacted_directory / "date=2025-11-21" / name(100, 400)
    assert written == Written(400, 300, 1, path.stat().st_size, 0)
    assert names(tmp_path) == [f"date=2025-11-21/{path.name}"]
    file = pq.ParquetFile(path, page_checksum_verification=True)
    assert file.read().equals(expected(100, 400))
    assert (file.schema_arrow.metadata or {})[VERSION_KEY] == b"1"
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"
    assert file.metadata.row_group(0).sorting_columns == (pq.SortingColumn(SCHEMA.names.index("seq")),)
    assert target(tmp_path).next_seq(KEY) == 400
    assert target(tmp_path).next_seq(KEY._replace(incarnation=1)) is None


def test_row_groups_have_a_size_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_target, "_GROUP_ROWS", 100)
    target(tmp_path).write(KEY, 0, 250, iter([same(at, at + 10) for at in range(0, 250, 10)]))
    metadata = pq.read_metadata(next(tmp_path.rglob("*.parquet")))
    assert [metadata.row_group(group).num_rows for group in range(3)] == [100, 100, 50]
    monkeypatch.setattr(parquet_target, "_GROUP_BYTES", 1)
    target(tmp_path).write(KEY, 250, 270, iter([same(250, 260), same(260, 270)]))
    assert pq.read_metadata(max(tmp_path.rglob("*.parquet"))).num_row_groups == 2


def test_a_file_ends_with_its_day(tmp_path: Path) -> None:
    to = target(tmp_path)
    batches = [rows(0, [DAY - 2, DAY - 1]), rows(2, [DAY - 1, DAY, DAY + 1]), rows(5, [DAY, 3 * DAY])]
    assert to.write(KEY, 0, 7, iter(batches)).end == 3
    assert to.write(KEY, 3, 7, iter([batches[1].slice(1), batches[2]])).end == 6
    assert to.write(KEY, 6, 7, iter([batches[2].slice(1)])).end == 7
    assert names(tmp_path) == [
        f"date=1970-01-01/{name(0, 3)}",
        f"date=1970-01-02/{name(3, 6)}",
        f"date=1970-01-04/{name(6, 7)}",
    ]
    # the border is between two batches as well
    batches = [rows(7, [DAY]), rows(8, [2 * DAY])]
    assert to.write(KEY, 7, 9, iter(batches)).end == 8


def test_a_clock_that_was_put_back_makes_another_file(tmp_path: Path) -> None:
    to = target(tmp_path)
    batch = rows(0, [DAY, DAY - 1, DAY])
    assert [to.write(KEY, at, 3, iter([batch.slice(at)])).end for at in range(3)] == [1, 2, 3]


def test_a_row_without_time_goes_with_those_before(tmp_path: Path) -> None:
    to = target(tmp_path)
    assert to.write(KEY, 0, 4, iter([rows(0, [3 * DAY, None]), rows(2, [None, 3 * DAY])])).end == 4
    assert to.write(KEY, 4, 6, iter([rows(4, [None, 4 * DAY])])).end == 6
    assert to.write(KEY, 6, 7, iter([rows(6, [None])])).end == 7
    assert [path.split("/")[0] for path in names(tmp_path)] == ["date=1970-01-01", "date=1970-01-04", "date=1970-01-05"]


def test_a_file_that_is_large_enough_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_target, "_GROUP_ROWS", 100)
    to = target(tmp_path, bytes_per_file=1000)
    assert to.write(KEY, 0, 1000, iter([same(at, at + 100) for at in range(0, 1000, 100)])).end == 100


def test_missing_rows_are_in_no_file(tmp_path: Path) -> None:
    to = target(tmp_path)

    def pieces() -> Iterator[Piece]:
        yield Missing(0, 5, same(0, 1))
        yield same(5, 10)
        yield Missing(10, 10, same(10, 11))
        raise AssertionError("nobody asks for more")

    assert to.write(KEY, 0, 30, pieces())._replace(bytes=0) == Written(10, 5, 1, 0, 5)
    assert to.write(KEY, 10, 20, iter([Missing(10, 10, same(10, 11))])) == Written(20, 0, 0, 0, 10)
    assert to.files(KEY) == [(5, 10)]


def test_a_file_that_could_not_be_finished_is_not_there(tmp_path: Path) -> None:
    def pieces() -> Iterator[Piece]:
        yield same(0, 10)
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        target(tmp_path).write(KEY, 0, 30, pieces())
    assert names(tmp_path) == []


def test_what_a_killed_run_has_left_is_not_read_and_replaced(tmp_path: Path) -> None:
    folder = tmp_path / KEY.compacted_directory / "date=2025-11-21"
    folder.mkdir(parents=True)
    (folder / f".{0:020d}.parquet.half").write_bytes(b"PAR1 and no more")
    to = target(tmp_path)
    assert to.next_seq(KEY) is None
    to.write(KEY, 0, 10, iter([same(0, 10)]))
    assert names(tmp_path) == [f"date=2025-11-21/{name(0, 10)}"]


def test_days_are_those_of_utc(tmp_path: Path) -> None:
    late = int(datetime(2026, 3, 1, 23, 59, 59, 999_999, UTC).timestamp() * 1_000_000)
    target(tmp_path).write(KEY, 0, 1, iter([rows(0, [late])]))
    assert names(tmp_path) == [f"date=2026-03-01/{name(0, 1)}"]
