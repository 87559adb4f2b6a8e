"""A batch is in the table once, however often it is written."""

import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyspark.sql.types import (
    ArrayType,
    DayTimeIntervalType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from trunkline.analytics.sinks.delta import delta_sink, plain_schema
from trunkline.events.delta import TableError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = StructType().add("day", StringType()).add("n", LongType())


class Frame:
    """As much of a batch as the sink asks for: its tasks run here."""

    def __init__(self, schema: StructType, *rows: dict[str, Any]) -> None:
        self.schema = schema
        self.rows = rows
        self.tasks = 0

    def mapInArrow(self, task: Any, schema: str) -> Any:
        self.tasks += 1
        types = pa.schema(deltalake.Schema.from_json(json.dumps(plain_schema(self.schema.json()))).to_arrow())
        found = task(iter([pa.RecordBatch.from_pylist(list(self.rows), types)]))
        return SimpleNamespace(collect=lambda: [SimpleNamespace(**row) for out in found for row in out.to_pylist()])


def write(path: Path, batch: int, frame: Frame, *partition_by: str, app: str = "app") -> None:
    delta_sink(path, app_id=app, partition_by=partition_by)(frame, batch)  # type: ignore[arg-type]


def contents(path: Path | str) -> list[dict[str, Any]]:
    """All rows, by what the log says of the table."""
    table = deltalake.DeltaTable(path)
    whole: Any = table.schema().to_arrow()
    parts = ds.partitioning(flavor="hive") if table.metadata().partition_columns else None
    return ds.dataset(table.file_uris(), schema=pa.schema(whole), partitioning=parts).to_table().to_pylist()


def test_a_batch_is_added_once(tmp_path: Path) -> None:
    for batch in (0, 1, 1, 2, 0):
        write(tmp_path / "t", batch, Frame(SCHEMA, {"day": f"{batch % 2}", "n": batch}), "day")
    assert sorted(row["n"] for row in contents(tmp_path / "t")) == [0, 1, 2]
    table = deltalake.DeltaTable(tmp_path / "t")
    assert (table.count(), table.version()) == (3, 3)
    actions: Any = table.get_add_actions(flatten=True)
    assert pa.table(actions).column("partition.day").to_pylist() == ["0", "1", "0"]
    known = Frame(SCHEMA, {"day": "x", "n": 9})
    write(tmp_path / "t", 2, known)
    assert known.tasks == 0
    write(tmp_path / "t", 2, known, app="other")
    assert table.version() + 1 == deltalake.DeltaTable(tmp_path / "t").version()


def test_a_batch_without_rows_leaves_no_trace(tmp_path: Path) -> None:
    write(tmp_path / "t", 0, Frame(SCHEMA))
    assert deltalake.DeltaTable(tmp_path / "t").version() == 0


def test_columns_are_added_and_old_rows_have_null(tmp_path: Path) -> None:
    write(tmp_path / "t", 0, Frame(SCHEMA, {"n": 1}))
    wider = StructType().add("n", LongType()).add("tags", MapType(StringType(), ArrayType(IntegerType(), False)), False)
    write(tmp_path / "t", 1, Frame(wider, {"n": 2, "tags": {"a": [1]}}))
    write(tmp_path / "t", 2, Frame(SCHEMA, {"day": "x", "n": 3}))  # a query that does not know the new one goes on
    assert sorted(contents(tmp_path / "t"), key=lambda row: row["n"]) == [
        {"day": None, "n": 1, "tags": None},
        {"day": None, "n": 2, "tags": [("a", [1])]},
        {"day": "x", "n": 3, "tags": None},
    ]


OTHER = StructType().add("n", LongType())


@pytest.mark.parametrize(
    ("schema", "partition_by", "words"),
    [
        (
            StructType().add("day", StringType()).add("n", StringType()),
            "day",
            "column n is .*long.* in the table and .*string.* here",
        ),
        (
            StructType().add("day", StringType()).add("N", LongType()),
            "day",
            "a column n, which differs from N only in case",
        ),
        (OTHER, "day", "partition_by: there is no column day"),
        (SCHEMA, "n", "is partitioned by day, not by n"),
        (StructType().add("at", TimestampType()), "at", "partition_by: column at is timestamp, by which no folder"),
        (StructType().add("list", ArrayType(LongType())), "list", "partition_by: column list is array"),
        (
            StructType().add("i", DayTimeIntervalType()),
            "",
            "column i is interval day to second, a type that Delta does not know",
        ),
        (
            StructType().add("i", MapType(StringType(), ArrayType(DayTimeIntervalType()))),
            "",
            "column i is interval day to second, a type that Delta does not know",
        ),
        (OTHER, "", "is partitioned by day, which the query does not have"),
        (StructType().add("day", StringType()), "", "no column beside"),
    ],
)
def test_what_does_not_fit_the_table_is_refused(
    tmp_path: Path, schema: StructType, partition_by: str, words: str
) -> None:
    write(tmp_path / "t", 0, Frame(SCHEMA, {"day": "a", "n": 1}), "day")
    with pytest.raises(TableError, match=words):
        write(tmp_path / "t", 1, Frame(schema), *filter(None, [partition_by]))


def test_the_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(TableError, match=r"pip install 'trunkline\[lake\]'"):
        delta_sink("anywhere")


@pytest.mark.parametrize("session", [object(), SimpleNamespace(sparkContext=SimpleNamespace(getLocalProperty={}.get))])
def test_a_query_that_nobody_can_name_must_be_named(session: object) -> None:
    with pytest.raises(TableError, match="give app_id"):
        delta_sink("anywhere")(SimpleNamespace(sparkSession=session), 0)  # type: ignore[arg-type]


def test_credentials_are_not_shown() -> None:
    assert "hunter2" not in repr(delta_sink("s3://b/t", storage_options={"AWS_SECRET_ACCESS_KEY": "hunter2"}))


def test_a_stream_whose_last_note_was_lost_writes_no_row_twice(spark: "SparkSession", tmp_path: Path) -> None:
    rows = [{"day": f"2026-03-0{n % 2 + 1}", "n": n} for n in range(200)]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.json").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")

    def run() -> None:
        stream = spark.readStream.schema(SCHEMA).json(str(tmp_path / "in"))
        to = delta_sink(tmp_path / "lake", partition_by=["day"])
        query = stream.repartition(2).writeStream.foreachBatch(to)
        query = query.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()

    run()
    versions = deltalake.DeltaTable(tmp_path / "lake").version()
    # as after a crash between the table's commit and Spark's own
    shutil.rmtree(tmp_path / "checkpoint" / "commits")
    run()
    table = deltalake.DeltaTable(tmp_path / "lake")
    assert table.version() == versions
    read: DataFrame = spark.read.option("basePath", str(tmp_path / "lake")).parquet(*table.file_uris())
    assert sorted((str(row.day), row.n) for row in read.collect()) == sorted((row["day"], row["n"]) for row in rows)
