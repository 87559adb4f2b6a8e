"""Whether the comparison finds what it should. The run itself is a step of `.ci/run`."""

import json
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bench.exactly_once import COLUMNS, Result, compare, describe

from trunkline.events.schema import SCHEMA, STORED
from trunkline.events.writer import LogWriter

TABLE = pa.schema([SCHEMA.field(name) for name in COLUMNS])


def rows(count: int) -> list[dict[str, Any]]:
    return [
        {
            "node": "n",
            "incarnation": 1,
            "seq": seq,
            "kind": "message.publish",
            "time": seq,
            "guid": b"%d" % seq,
            "size": 1,
        }
        for seq in range(count)
    ]


def compared(folder: Path, arrived: list[dict[str, Any]]) -> Result:
    """A log of ten rows, and a table of those."""
    writer = LogWriter(folder / "log", "n", 1)
    writer.append(pa.RecordBatch.from_pylist(rows(10), STORED), 0, 9)
    writer.close()
    deltalake.write_deltalake(folder / "table", pa.Table.from_pylist(arrived, TABLE))
    result = Result(1.0, 0, 0)
    compare(result, folder / "log", folder / "table")
    return result


def test_what_is_the_same_is_exact(tmp_path: Path) -> None:
    result = compared(tmp_path, rows(10)[::-1])
    assert result.exact
    assert (result.log_rows, result.table_rows, result.published, result.incarnations) == (10, 10, 10, 1)
    assert describe(result).startswith("exactly once: 10 rows of 1 incarnations")


@pytest.mark.parametrize(
    ("arrived", "field"),
    [
        (rows(9), "missing"),
        ([*rows(10), rows(10)[3]], "repeated"),
        ([*rows(9), {**rows(10)[9], "size": 2}], "different"),
        (rows(11), "different"),
    ],
)
def test_what_is_not_is_not(tmp_path: Path, arrived: list[dict[str, Any]], field: str) -> None:
    result = compared(tmp_path, arrived)
    assert not result.exact
    assert getattr(result, field) == 1
    assert describe(result).startswith("NOT EXACT")


def test_an_empty_log_proves_nothing(tmp_path: Path) -> None:
    assert not Result(1.0, 0, 0).exact


def test_of_parquet_files_those_count_that_spark_has_noted(tmp_path: Path) -> None:
    """Each batch has a file of notes, and every tenth repeats those before it."""
    compared(tmp_path, [])
    table = tmp_path / "files of spark"
    (table / "_spark_metadata").mkdir(parents=True)
    notes = []
    for number, part in enumerate((rows(10)[:5], rows(10)[5:], rows(10))):
        path = table / f"part-{number}.parquet"
        pq.write_table(pa.Table.from_pylist(part, TABLE), path)
        notes.append(json.dumps({"path": path.as_uri(), "action": "add"}))
    (table / "_spark_metadata" / "0").write_text(f"v1\n{notes[0]}")
    (table / "_spark_metadata" / "1.compact").write_text(f"v1\n{notes[0]}\n{notes[1]}")
    (table / "_spark_metadata" / ".0.crc").write_bytes(b"crc\xff")
    result = Result(1.0, 0, 0)
    compare(result, tmp_path / "log", table)
    assert result.exact
    assert result.table_rows == 10
