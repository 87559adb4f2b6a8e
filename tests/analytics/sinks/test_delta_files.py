"""Files of a table are what its log says of them."""

import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trunkline.analytics.sinks import delta_files
from trunkline.analytics.sinks.delta_files import Added, FileWriter, as_text, bound

SCHEMA = pa.schema([("n", pa.int64()), ("name", pa.string())])


def writer(path: Path | str, *partition_by: str, schema: pa.Schema = SCHEMA, rows_per_file: int = 10**6) -> FileWriter:
    return FileWriter(str(path), schema.serialize().to_pybytes(), partition_by, {}, rows_per_file)


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


def read(path: Path, one: Added) -> list[dict[str, Any]]:
    table = pq.read_table(path / one.path, partitioning=None)
    assert table.schema.equals(SCHEMA)
    assert (path / one.path).stat().st_size == one.size
    return table.to_pylist()


def test_without_partitions_all_rows_are_in_one_file(tmp_path: Path) -> None:
    (one,) = writer(tmp_path).write(iter(batches(["a", "b"], 3)))
    assert [row["n"] for row in read(tmp_path, one)] == [0, 0, 1, 1, 2, 2]
    assert one.values == {}
    assert one.rows == 6
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
        assert sorted(row["n"] for row in read(tmp_path, one)) == [0, 0, 1, 1][:: 1 if one.values["day"] is None else 2]


def test_what_is_held_open_and_gathered_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_files, "_OPEN", 3)
    monkeypatch.setattr(delta_files, "_GROUP_ROWS", 4)
    monkeypatch.setattr(delta_files, "_GROUP_BYTES", 200)
    days: list[str | None] = [f"{day}" for day in range(10)]
    added = writer(tmp_path, "day").write(iter(batches(days, 20)))
    assert len(added) > 10
    rows = {
        day: sorted(row["n"] for one in added if one.values["day"] == day for row in read(tmp_path, one))
        for day in days
    }
    assert rows == {day: list(range(20)) for day in days}


def test_a_file_that_is_long_enough_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_files, "_GROUP_ROWS", 10)
    added = writer(tmp_path, rows_per_file=20).write(iter(batches(["a"] * 5, 10)))
    assert [one.rows for one in added] == [20, 20, 10]
    assert [row["n"] for one in added for row in read(tmp_path, one)] == [n for n in range(10) for _ in range(5)]


def test_it_is_written_through_the_tables_own_file_system_too(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (one,) = writer(f"file://{tmp_path}/t", "day").write(iter(batches(["x y"])))
    assert read(tmp_path / "t", one) == [{"n": 0, "name": "0"}]


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
