from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.cloudpickle import dumps, loads
from pyspark.sql.types import ByteType, DateType, IntegerType, LongType, StringType, StructField, StructType

from tests.analytics.events_made import INCARNATION, made, row, table
from tests.analytics.source.logs import Log, schema_of, settings, ticks, write
from trunkline.analytics.options import OptionError
from trunkline.analytics.source import rows
from trunkline.analytics.source.planning import Range
from trunkline.analytics.source.rows import RowReader, arrow_schema
from trunkline.events import arrow_segment
from trunkline.events.layout import LogError
from trunkline.events.schema import SCHEMA

NODE = f"n1@{INCARNATION}"


def test_types_may_be_others_that_hold_the_values(tmp_path: Path) -> None:
    write(tmp_path, table([row("message.publish", 0, size=100, qos=1), row("message.publish", 1, size=7)]))
    schema = StructType(
        [
            StructField("size", IntegerType(), nullable=False),
            StructField("qos", LongType()),
            StructField("seq", LongType()),
        ]
    )
    (batch,) = RowReader(settings(tmp_path), schema).read(Range(NODE, ((0, 2),)))
    assert batch.schema == pa.schema(
        [pa.field("size", pa.int32(), nullable=False), ("qos", pa.int64()), ("seq", pa.int64())]
    )
    assert batch.to_pydict() == {"size": [100, 7], "qos": [1, None], "seq": [0, 1]}


def test_a_value_that_does_not_fit_is_told(tmp_path: Path) -> None:
    write(tmp_path, table([row("message.publish", 0, size=300)]))
    reader = RowReader(settings(tmp_path), StructType([StructField("size", ByteType())]))
    with pytest.raises(LogError, match="column size: does not become int8"):
        list(reader.read(Range(NODE, ((0, 1),))))


@pytest.mark.parametrize(
    ("field", "complaint"),
    [
        (StructField("kind", IntegerType()), "column kind is string, which does not become int32"),
        (StructField("clientid", StringType()), "events have no column 'clientid', perhaps client_id?"),
        (StructField("zzz", StringType()), "events have no column 'zzz'"),
        (StructField("guid", DateType()), "column guid is binary, which does not become date32"),
    ],
)
def test_a_schema_that_events_do_not_have_is_refused(field: StructField, complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        arrow_schema(StructType([field]))


def test_all_columns_have_the_types_of_spark() -> None:
    assert arrow_schema(schema_of()) == SCHEMA


def test_small_batches_are_put_together(tmp_path: Path) -> None:
    events = made(12_000, duration=30)
    own = events.filter(pa.compute.equal(events.column("node"), "n1"))
    write(tmp_path, own, rows=50)
    batches = list(RowReader(settings(tmp_path), schema_of("seq")).read(Range(NODE, ((0, own.num_rows),))))
    assert len(batches) < own.num_rows / 4_000
    assert [seq for batch in batches for seq in batch.column("seq").to_pylist()] == list(range(own.num_rows))


def test_batches_of_long_payloads_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_TOGETHER_BYTES", 100_000)
    events = table([row("message.publish", number, payload=b"x" * 10_000) for number in range(100)])
    write(tmp_path, events, rows=5)
    monkeypatch.setattr(arrow_segment, "_CHUNK", 50_000)
    found = list(RowReader(settings(tmp_path), schema_of("seq", "payload")).read(Range(NODE, ((0, 100),))))
    assert [batch.num_rows for batch in found] == [10] * 10


def test_only_what_the_runs_name_is_read(tmp_path: Path) -> None:
    write(tmp_path, table([row("node.tick", number) for number in range(30)]), rows=10)
    reader = loads(dumps(RowReader(settings(tmp_path), schema_of("seq"))))
    found = [seq for batch in reader.read(Range(NODE, ((3, 6), (25, 27)))) for seq in batch.column("seq").to_pylist()]
    assert found == [3, 4, 5, 25, 26]


def test_a_log_that_goes_on_is_seen_by_a_process_that_has_it_open(tmp_path: Path) -> None:
    with Log(tmp_path) as log:
        log.write(ticks("n1", 0, 1))
        reader = RowReader(settings(tmp_path), schema_of("seq"))
        assert sum(batch.num_rows for batch in reader.read(Range(NODE, ((0, 1),)))) == 1
        log.write(ticks("n1", 1, 2))
        assert sum(batch.num_rows for batch in reader.read(Range(NODE, ((1, 3),)))) == 2


def test_a_part_of_a_run_without_rows_of_the_kind_gives_no_batch(tmp_path: Path) -> None:
    write(tmp_path, table([row("node.tick", 0)]))
    assert list(RowReader(settings(tmp_path, kinds="message.*"), schema_of()).read(Range(NODE, ((0, 1),)))) == []
