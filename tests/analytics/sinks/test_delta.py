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

from trunkline.analytics.sinks.delta import DeltaSink, commit, delta_sink, file_schema, is_committed, plain_schema
from trunkline.analytics.sinks.delta_files import Added, FileWriter
from trunkline.analytics.sinks.settings import SinkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = StructType().add("day", StringType()).add("n", LongType())


def sink(path: Path | str, *partition_by: str) -> DeltaSink:
    made = delta_sink(path, app_id="app", partition_by=partition_by)
    assert isinstance(made, DeltaSink)
    return made


def write(to: DeltaSink, table: deltalake.DeltaTable, schema: StructType, rows: list[dict[str, Any]]) -> list[Added]:
    """What a task does."""
    columns = table.metadata().partition_columns
    held = file_schema(table, plain_schema(schema.json()), columns)
    whole: Any = table.schema().to_arrow()
    batch = pa.RecordBatch.from_pylist(rows, pa.schema([pa.schema(whole).field(name) for name in schema.names]))
    return FileWriter(to.path, held, tuple(columns), {}, 1000).write(iter([batch]))


def contents(path: Path | str) -> list[dict[str, Any]]:
    """All rows, by what the log says of the table."""
    table = deltalake.DeltaTable(path)
    whole: Any = table.schema().to_arrow()
    parts = ds.partitioning(flavor="hive") if table.metadata().partition_columns else None
    return ds.dataset(table.file_uris(), schema=pa.schema(whole), partitioning=parts).to_table().to_pylist()


def test_a_batch_is_added_once(tmp_path: Path) -> None:
    to = sink(tmp_path / "t", "day")
    assert not is_committed(to.table(plain_schema(SCHEMA.json())), "app", 0)
    for batch in range(3):
        table = to.table(plain_schema(SCHEMA.json()))
        commit(table, "app", batch, write(to, table, SCHEMA, [{"day": f"{batch % 2}", "n": batch}]))
    again = to.table(plain_schema(SCHEMA.json()))
    assert [is_committed(again, "app", batch) for batch in range(4)] == [True, True, True, False]
    assert not is_committed(again, "other", 0)
    assert sorted(row["n"] for row in contents(tmp_path / "t")) == [0, 1, 2]
    assert again.count() == 3
    actions: Any = again.get_add_actions(flatten=True)
    assert pa.table(actions).column("partition.day").to_pylist() == ["0", "1", "0"]


def test_of_two_that_write_the_same_batch_one_is_refused(tmp_path: Path) -> None:
    to = sink(tmp_path / "t")
    one, other = (to.table(plain_schema(SCHEMA.json())) for _ in range(2))
    files = [write(to, table, SCHEMA, [{"day": "a", "n": 1}]) for table in (one, other)]
    commit(one, "app", 0, files[0])
    with pytest.raises(SinkError, match=r"batch 0 of app was not added: .* Does the query run twice\?"):
        commit(other, "app", 0, files[1])
    assert contents(tmp_path / "t") == [{"day": "a", "n": 1}]


def test_two_queries_share_a_table(tmp_path: Path) -> None:
    to = sink(tmp_path / "t")
    one, other = (to.table(plain_schema(SCHEMA.json())) for _ in range(2))
    commit(one, "one", 0, write(to, one, SCHEMA, [{"n": 1}]))
    commit(other, "other", 0, write(to, other, SCHEMA, [{"n": 2}]))
    assert sorted(row["n"] for row in contents(tmp_path / "t")) == [1, 2]


def test_a_batch_without_rows_leaves_no_trace(tmp_path: Path) -> None:
    table = sink(tmp_path / "t").table(plain_schema(SCHEMA.json()))
    commit(table, "app", 0, [])
    assert deltalake.DeltaTable(tmp_path / "t").version() == 0


def test_columns_are_added_and_old_rows_have_null(tmp_path: Path) -> None:
    to = sink(tmp_path / "t")
    table = to.table(plain_schema(SCHEMA.json()))
    commit(table, "app", 0, write(to, table, SCHEMA, [{"n": 1}]))
    wider = StructType().add("n", LongType()).add("tags", MapType(StringType(), ArrayType(IntegerType(), False)), False)
    table = to.table(plain_schema(wider.json()))
    commit(table, "app", 1, write(to, table, wider, [{"n": 2, "tags": {"a": [1]}}]))
    table = to.table(plain_schema(SCHEMA.json()))  # and who knows nothing of the new one goes on
    commit(table, "app", 2, write(to, table, SCHEMA, [{"day": "x", "n": 3}]))
    assert sorted(contents(tmp_path / "t"), key=lambda row: row["n"]) == [
        {"day": None, "n": 1, "tags": None},
        {"day": None, "n": 2, "tags": [("a", [1])]},
        {"day": "x", "n": 3, "tags": None},
    ]


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (
            StructType().add("day", StringType()).add("n", StringType()),
            "column n is .*long.* in the table and .*string.* here",
        ),
        (StructType().add("day", StringType()).add("N", LongType()), "a column n, which is not told from N"),
        (StructType().add("n", LongType()), "partition_by: there is no column day"),
    ],
)
def test_what_does_not_fit_the_table_is_refused(tmp_path: Path, schema: StructType, words: str) -> None:
    to = sink(tmp_path / "t", "day")
    to.table(plain_schema(SCHEMA.json()))
    with pytest.raises(SinkError, match=words):
        to.table(plain_schema(schema.json()))


def test_partitions_are_those_of_the_table(tmp_path: Path) -> None:
    table = sink(tmp_path / "t", "day").table(plain_schema(SCHEMA.json()))
    with pytest.raises(SinkError, match="is partitioned by day, not by n"):
        sink(tmp_path / "t", "n").table(plain_schema(SCHEMA.json()))
    other = StructType().add("n", LongType())
    with pytest.raises(SinkError, match="is partitioned by day, which the query does not have"):
        file_schema(table, plain_schema(other.json()), ["day"])
    with pytest.raises(SinkError, match="no column beside"):
        file_schema(table, plain_schema(StructType().add("day", StringType()).json()), ["day"])


def test_types_that_cannot_be_are_named(tmp_path: Path) -> None:
    for kind in (DayTimeIntervalType(), MapType(StringType(), ArrayType(StructType().add("x", DayTimeIntervalType())))):
        with pytest.raises(SinkError, match="column i is interval day to second, a type that Delta does not know"):
            plain_schema(StructType().add("i", kind).json())
    schema = plain_schema(StructType().add("at", TimestampType()).add("list", ArrayType(LongType())).json())
    with pytest.raises(SinkError, match="partition_by: column at is timestamp, by which no folder"):
        sink(tmp_path / "t", "at").table(schema)
    with pytest.raises(SinkError, match="partition_by: column list is array"):
        sink(tmp_path / "t", "list").table(schema)


def test_the_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(SinkError, match=r"pip install 'trunkline\[lake\]'"):
        delta_sink("anywhere")


@pytest.mark.parametrize("session", [object(), SimpleNamespace(sparkContext=SimpleNamespace(getLocalProperty={}.get))])
def test_a_query_that_nobody_can_name_must_be_named(session: object) -> None:
    with pytest.raises(SinkError, match="give app_id"):
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
