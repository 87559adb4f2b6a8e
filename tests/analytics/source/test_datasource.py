"""The format `trunkline` in Spark: few queries, for each takes seconds."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from tests.analytics.events_made import INCARNATION, at, made
from tests.analytics.source.logs import Log, by_number, ticks, write
from tests.analytics.source.versions import needs
from trunkline.analytics.source.datasource import TrunklineDataSource
from trunkline.events.kinds import TABLES, columns_of
from trunkline.events.positions import Positions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

N1, N2 = f"n1@{INCARNATION}", f"n2@{INCARNATION}"


def test_the_writers_are_those_of_the_sinks() -> None:
    source = TrunklineDataSource({"topic": "x"})
    assert source.name() == "trunkline"


def test_a_batch_is_the_rows_that_were_written(spark: "SparkSession", tmp_path: Path) -> None:
    events = made(3_000)
    write(tmp_path, events, roll_bytes=100_000)
    frame = spark.read.format("trunkline").option("maxRowsPerPartition", 1_000).load(str(tmp_path))
    assert by_number(frame.toArrow()) == by_number(events)
    few = (
        spark.read.format("trunkline")
        .schema("kind string, size int, time timestamp")
        .option("kinds", "message.publish,message.delivered")
        .option("startingTimestamp", at(100).isoformat())
        .load(str(tmp_path))
        .groupBy("kind")
        .agg(F.count("*").alias("count"), F.sum("size").alias("bytes"))
    )
    wanted = [one for one in by_number(events) if one["time"] >= at(100)]
    assert {tuple(found) for found in few.collect()} == {
        (
            kind,
            sum(one["kind"] == kind for one in wanted),
            sum(one["size"] for one in wanted if one["kind"] == kind),
        )
        for kind in ("message.publish", "message.delivered")
    }


def test_a_table_of_the_catalog_stands_for_a_log(spark: "SparkSession", tmp_path: Path) -> None:
    events = made(3_000)
    write(tmp_path, events)
    options = f"OPTIONS (path '{tmp_path}', kinds 'node.tick')"
    try:
        spark.sql(f"CREATE TABLE ticks USING trunkline {options} COMMENT 'heartbeats' TBLPROPERTIES ('team' = 'x')")
        (counted,) = spark.sql("SELECT count(kind), count(DISTINCT kind) FROM ticks").collect()
        assert tuple(counted) == (sum(one["kind"] == "node.tick" for one in events.to_pylist()), 1)
        spark.sql(f"CREATE TABLE everything USING trunkline LOCATION '{tmp_path}'")
        assert by_number(spark.table("everything").toArrow()) == by_number(events)
    finally:
        spark.sql("DROP TABLE IF EXISTS ticks")
        spark.sql("DROP TABLE IF EXISTS everything")


def test_a_table_of_events_has_its_kinds_and_columns_alone(spark: "SparkSession", tmp_path: Path) -> None:
    events = made(3_000)
    write(tmp_path, events)
    names = [column.name for column in columns_of(TABLES["messages"].kinds)]
    kinds = set(TABLES["messages"].kinds)
    wanted = [{name: one[name] for name in names} for one in by_number(events) if one["kind"] in kinds]
    assert 0 < len(wanted) < events.num_rows
    reader = spark.read.format("trunkline").option("table", "messages")
    frame = reader.load(str(tmp_path))
    assert frame.columns == names
    assert by_number(frame.toArrow()) == wanted
    assert "value" in reader.option("kinds", "message.*,log.*").load(str(tmp_path)).columns
    try:
        spark.sql(f"CREATE TABLE deeds USING trunkline OPTIONS (path '{tmp_path}', table 'messages')")
        assert spark.table("deeds").columns == names
        assert by_number(spark.table("deeds").toArrow()) == wanted
    finally:
        spark.sql("DROP TABLE IF EXISTS deeds")


def test_several_logs_are_read_as_one(spark: "SparkSession", tmp_path: Path) -> None:
    events = [ticks("n1", 0, 3), ticks("n2", 0, 3)]
    places = [tmp_path / "a", tmp_path / "b, c"]
    for place, rows in zip(places, events, strict=True):
        write(place, rows)
    together = by_number(pa.concat_tables(events))
    assert by_number(spark.read.format("trunkline").load([*map(str, places), str(places[0])]).toArrow()) == together
    paths = json.dumps(list(map(str, places)))
    try:
        spark.sql(f"CREATE TABLE both USING trunkline OPTIONS (paths '{paths}')")
        assert by_number(spark.table("both").toArrow()) == together
    finally:
        spark.sql("DROP TABLE IF EXISTS both")


@needs("4.1", "pushFilters")
def test_conditions_of_a_query_reach_the_reader(spark: "SparkSession", tmp_path: Path) -> None:
    events = made(3_000)
    write(tmp_path, events)
    frame = (
        spark.read.format("trunkline")
        .option("pushFilters", "true")
        .load(str(tmp_path))
        .where((F.col("node") == "n2") & (F.col("time") >= F.lit(at(250))) & F.col("kind").isin("node.tick"))
    )
    plan = frame._jdf.queryExecution().executedPlan().toString()
    found = by_number(frame.toArrow())
    assert "Filter (" not in plan
    assert found == [
        one
        for one in by_number(events)
        if one["node"] == "n2" and one["kind"] == "node.tick" and one["time"] >= at(250)
    ]


def run(frame: "DataFrame", name: str, checkpoint: Path) -> list[dict[str, Any]]:
    """Reads all that is there; what the query says of its triggers."""
    query = (
        frame.writeStream.format("parquet")
        .option("path", str(checkpoint.parent / name))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
        return [json.loads(one.json) for one in query.recentProgress]
    finally:
        query.stop()


@needs("4.2", "streams")
def test_a_stream_goes_on_where_it_ended(spark: "SparkSession", tmp_path: Path) -> None:
    root, checkpoint = tmp_path / "log", tmp_path / "checkpoint"
    events = made(3_000)
    half = events.num_rows // 2

    def frame() -> "DataFrame":
        return (
            spark.readStream.format("trunkline")
            .options(maxRowsPerTrigger=600, consumer="copy", onCorrupt="skip")
            .load(str(root))
        )

    with Log(root) as log:
        log.write(events.slice(0, half))
        first = run(frame(), "copy", checkpoint)
        log.write(events.slice(half))
        second = run(frame(), "copy", checkpoint)
    inputs = [one["numInputRows"] for one in [*first, *second] if one["numInputRows"]]
    assert max(inputs) == 600
    assert sum(inputs) == events.num_rows
    copied = spark.read.parquet(str(tmp_path / "copy"))
    assert by_number(copied.toArrow()) == by_number(events)
    ends = {node: sum(one["node"] == node for one in events.to_pylist()) for node in ("n1", "n2")}
    assert Positions(root, "copy").read() == {N1: ends["n1"], N2: ends["n2"]}
    (source,) = second[-1]["sources"]
    assert source["latestOffset"] == {N1: ends["n1"], N2: ends["n2"]}


@needs("4.2", "streams")
def test_the_watermark_drops_nothing_of_a_node_that_is_behind(spark: "SparkSession", tmp_path: Path) -> None:
    root = tmp_path / "log"
    write(root, pa.concat_tables([ticks("n1", 0, 400), ticks("n2", 300, 100)]), rows=10)
    for align, is_late in (("true", False), ("false", True)):
        windows = (
            spark.readStream.format("trunkline")
            .options(maxRowsPerTrigger=170, alignEventTime=align)
            .schema("node string, time timestamp")
            .load(str(root))
            .withWatermark("time", "5 seconds")
            .groupBy(F.window("time", "10 seconds"))
            .count()
        )
        progress = run(windows, align, tmp_path / f"checkpoint-{align}")
        dropped = sum(state["numRowsDroppedByWatermark"] for one in progress for state in one["stateOperators"])
        assert sum(one["numInputRows"] for one in progress) == 500
        assert (dropped > 0) is is_late


def test_what_is_wrong_is_told_when_the_frame_is_made(spark: "SparkSession", tmp_path: Path) -> None:
    for options, complaint in (
        ({"maxRowsPerTriger": "5"}, "unknown option maxrowspertriger; did you mean maxRowsPerTrigger?"),
        ({"startingTimestamp": "noon"}, "option startingTimestamp='noon': expected a time such as"),
    ):
        with pytest.raises(AnalysisException, match=complaint):
            spark.read.format("trunkline").options(**options).load(str(tmp_path))
    with pytest.raises(AnalysisException, match="there is no such directory"):
        spark.readStream.format("trunkline").load(str(tmp_path / "none"))


def test_a_damaged_batch_is_a_row_of_its_own(spark: "SparkSession", tmp_path: Path) -> None:
    write(tmp_path, ticks("n1", 0, 1_000))
    (data,) = tmp_path.glob("node=*/*.arrows")
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 1
    data.write_bytes(content)
    frame = spark.read.format("trunkline").option("onCorrupt", "skip").load(str(tmp_path))
    assert {tuple(found) for found in frame.groupBy("kind").count().collect()} == {
        ("node.tick", 900),
        ("log.corrupt", 1),
    }
