"""Rows and the number of the next one are one commit of the table."""

import json
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import deltalake
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from tests.events.logs import KEY, expected
from trunkline.events import delta
from trunkline.events.delta import Added, DeltaTarget, FileWriter, TablePlace, application, as_text, bound
from trunkline.events.layout import LogError
from trunkline.events.schema import SCHEMA
from trunkline.events.target import Missing, Piece, Written


def rows(first: int, end: int) -> pa.RecordBatch:
    (batch,) = expected(first, end).combine_chunks().to_batches()
    return batch


def contents(path: Path) -> pa.Table:
    """All rows in the order of their numbers, by what the table's log says of it."""
    files = deltalake.DeltaTable(path).file_uris()
    table = ds.dataset(files, schema=delta._EVENTS, partitioning=ds.partitioning(flavor="hive")).to_table()
    return table.sort_by("seq")


def meanwhile(path: Path, first: int, end: int) -> None:
    """Another writer writes."""
    DeltaTarget(str(path)).write(KEY, first, end, iter([rows(first, end)]))


def test_rows_are_added_with_the_number_of_the_next(tmp_path: Path) -> None:
    target = DeltaTarget(str(tmp_path / "t"))
    assert target.next_seq(KEY) is None
    assert target.write(KEY, 0, 30, iter([rows(0, 10), rows(10, 30)])) == Written(30, 30, 1, 0, 0)
    assert target.next_seq(KEY) == 30
    assert target.write(KEY, 30, 40, iter([rows(30, 40)])).end == 40
    assert DeltaTarget(str(tmp_path / "t")).next_seq(KEY) == 40
    other = KEY._replace(name="other")
    assert target.next_seq(other) is None
    found = contents(tmp_path / "t")
    assert found.select(SCHEMA.names).equals(expected(0, 40))
    table = deltalake.DeltaTable(tmp_path / "t")
    assert table.version() == 2
    assert table.metadata().partition_columns == ["date"]
    actions: Any = table.get_add_actions(flatten=True)
    assert {f"{day}" for day in pa.table(actions).column("partition.date").to_pylist()} == {"2025-11-21"}


def test_for_missing_rows_there_is_one_that_says_so(tmp_path: Path) -> None:
    target = DeltaTarget(str(tmp_path / "t"))
    pieces: list[Piece] = [rows(0, 10), Missing(10, 5, rows(10, 11)), rows(15, 20)]
    assert target.write(KEY, 0, 20, iter(pieces)) == Written(20, 15, 1, 0, 5)
    assert contents(tmp_path / "t").column("seq").to_pylist() == [*range(11), *range(15, 20)]


def test_nothing_is_added_when_the_rows_break_off(tmp_path: Path) -> None:
    def pieces() -> Iterator[Piece]:
        yield rows(0, 10)
        raise LogError("rows 10 to 19 are corrupt")

    with pytest.raises(LogError, match="^rows 10 to 19 are corrupt$"):
        DeltaTarget(str(tmp_path / "t")).write(KEY, 0, 20, pieces())
    assert deltalake.DeltaTable(tmp_path / "t").count() == 0


def test_of_two_that_add_the_same_rows_one_is_refused(tmp_path: Path) -> None:
    target = DeltaTarget(str(tmp_path / "t"))
    target.write(KEY, 0, 10, iter([rows(0, 10)]))

    def pieces() -> Iterator[Piece]:
        yield rows(10, 15)
        meanwhile(tmp_path / "t", 10, 20)
        yield rows(15, 20)

    with pytest.raises(LogError, match=r"was not added: .*Are there two writers\?"):
        target.write(KEY, 10, 20, pieces())
    with pytest.raises(LogError, match="another writer has added rows of n1@1763739192123, up to 20"):
        target.write(KEY, 10, 20, iter([rows(10, 20)]))
    assert contents(tmp_path / "t").column("seq").to_pylist() == list(range(20))


def test_nodes_are_added_beside_each_other(tmp_path: Path) -> None:
    target = DeltaTarget(str(tmp_path / "t"))
    target.write(KEY, 0, 10, iter([rows(0, 10)]))
    other = KEY._replace(name="other")

    def pieces() -> Iterator[Piece]:
        meanwhile(tmp_path / "t", 10, 20)
        yield rows(0, 10)

    target.write(other, 0, 10, pieces())
    assert [target.next_seq(key) for key in (KEY, other)] == [20, 10]
    assert contents(tmp_path / "t").num_rows == 30


def test_a_table_of_others_is_named(tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path / "t", pa.table({"seq": ["a"]}))
    with pytest.raises(LogError, match=str(tmp_path / "t")):
        DeltaTarget(str(tmp_path / "t")).write(KEY, 0, 10, iter([rows(0, 10)]))


def test_a_place_that_cannot_be_is_told_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    damaged = tmp_path / "t" / "_delta_log"
    DeltaTarget(str(damaged.parent)).write(KEY, 0, 10, iter([rows(0, 10)]))
    for path in damaged.iterdir():
        path.write_text("{", encoding="utf-8")
    for place in (str(tmp_path / "file"), str(tmp_path / "file" / "t"), "nowhere://x/y", str(damaged.parent)):
        with pytest.raises(LogError, match=rf"^{place}: [^\n\x1b]+$"):
            DeltaTarget(place).write(KEY, 0, 10, iter([rows(0, 10)]))


def test_the_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(LogError, match=r"pip install 'trunkline\[lake\]'"):
        DeltaTarget("anywhere")


def test_the_name_of_a_node_in_the_table_says_whose_it_is() -> None:
    assert application(KEY) == "trunkline-events n1@1763739192123"


# Files of a table are what its log says of them.

FILE_SCHEMA = pa.schema([("n", pa.int64()), ("name", pa.string())])


def writer(
    path: Path | str, *partition_by: str, schema: pa.Schema = FILE_SCHEMA, rows_per_file: int = 10**6
) -> FileWriter:
    return FileWriter(TablePlace(str(path), {}), schema, partition_by, rows_per_file)


def batches(days: list[str | None], count: int = 1) -> list[pa.RecordBatch]:
    """`count` batches of a row for each day, narrower and in another order than the files have it."""
    return [
        pa.record_batch(
            {
                "day": pa.array(days, pa.string()),
                "name": pa.array([f"{number}" for _ in days], pa.large_string()),
                "n": pa.array([number] * len(days), pa.int16()),
            }
        )
        for number in range(count)
    ]


def read_file(path: Path, one: Added) -> list[dict[str, Any]]:
    table = pq.read_table(path / one.path, partitioning=None)
    assert table.schema.equals(FILE_SCHEMA)
    assert (path / one.path).stat().st_size == one.size
    return table.to_pylist()


def count_of(one: Added) -> int:
    count: int = json.loads(one.statistics)["numRecords"]
    return count


def test_without_partitions_all_rows_are_in_one_file(tmp_path: Path) -> None:
    (one,) = writer(tmp_path).write(iter(batches(["a", "b"], 3)))
    assert [row["n"] for row in read_file(tmp_path, one)] == [0, 0, 1, 1, 2, 2]
    assert one.values == {}
    assert count_of(one) == 6
    assert json.loads(one.statistics) == {
        "numRecords": 6,
        "minValues": {"n": 0, "name": "0"},
        "maxValues": {"n": 2, "name": "2"},
        "nullCount": {"n": 0, "name": 0},
    }


def test_no_rows_make_no_file(tmp_path: Path) -> None:
    assert writer(tmp_path).write(iter([])) == []
    assert writer(tmp_path / "new").write(iter([batches([])[0]])) == []


def test_each_value_has_a_folder_whatever_it_is(tmp_path: Path) -> None:
    days = ["2026-03-01", "a/b=c %20\n.", None, "..", ""]
    added = writer(tmp_path, "day").write(iter(batches(days, 2)))
    assert {one.values["day"] for one in added} == {"2026-03-01", "a/b=c %20\n.", None, ".."}
    for one in added:
        name = Path(one.path).parent
        assert len(name.parts) == 1
        expected = "__HIVE_DEFAULT_PARTITION__" if one.values["day"] is None else one.values["day"]
        assert unquote(name.name) == f"day={expected}"
        assert (
            sorted(row["n"] for row in read_file(tmp_path, one))
            == [0, 0, 1, 1][:: 1 if one.values["day"] is None else 2]
        )


def test_what_is_held_open_and_gathered_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "_MAX_OPEN", 3)
    monkeypatch.setattr(delta, "_GROUP_ROWS", 4)
    monkeypatch.setattr(delta, "_GATHERED_BYTES", 200)
    days: list[str | None] = [f"{day}" for day in range(10)]
    added = writer(tmp_path, "day").write(iter(batches(days, 20)))
    assert len(added) > 10
    rows = {
        day: sorted(row["n"] for one in added if one.values["day"] == day for row in read_file(tmp_path, one))
        for day in days
    }
    assert rows == {day: list(range(20)) for day in days}


def test_a_file_that_is_long_enough_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "_GROUP_ROWS", 10)
    added = writer(tmp_path, rows_per_file=20).write(iter(batches(["a"] * 5, 10)))
    assert [count_of(one) for one in added] == [20, 20, 10]
    assert [row["n"] for one in added for row in read_file(tmp_path, one)] == [n for n in range(10) for _ in range(5)]


def test_it_is_written_through_the_tables_own_file_system_too(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (one,) = writer(f"file://{tmp_path}/t", "day").write(iter(batches(["x y"])))
    assert read_file(tmp_path / "t", one) == [{"n": 0, "name": "0"}]


def test_bounds_are_left_out_where_they_would_be_wrong(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            ("f", pa.float64()),
            ("long", pa.string()),
            ("empty", pa.int32()),
            ("list", pa.list_(pa.int32())),
            ("at", pa.timestamp("us", "UTC")),
            ("day", pa.date32()),
            ("raw", pa.binary()),
        ]
    )
    moment = datetime(2026, 3, 1, 1, 2, 3, 123_456, UTC)
    row = {"f": float("nan"), "long": "x" * 100, "list": [1], "at": moment, "day": date(2026, 3, 1), "raw": b"1"}
    (one,) = writer(tmp_path, schema=schema).write(iter([pa.RecordBatch.from_pylist([row, {}], schema)]))
    told = json.loads(one.statistics)
    assert told["minValues"] == {"at": "2026-03-01T01:02:03.123Z", "day": "2026-03-01"}
    assert told["maxValues"] == {"at": "2026-03-01T01:02:03.124Z", "day": "2026-03-01"}
    assert told["nullCount"] == {"f": 1, "long": 1, "empty": 2, "at": 1, "day": 1, "raw": 1}


def test_values_are_written_as_a_table_has_them() -> None:
    assert [as_text(value) for value in (None, "", "a", True, 7, date(2026, 3, 1))] == [
        None,
        None,
        "a",
        "true",
        "7",
        "2026-03-01",
    ]
    assert bound(datetime(2026, 3, 1), up=True) is None
    assert bound(True, up=True) is None
