"""Rows become messages as the options say, and a row that cannot is named."""

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
    VarcharType,
)

from trunkline.analytics.sinks.messages import Outgoing, plan
from trunkline.analytics.sinks.settings import SinkError, parse

ALERTS = (
    StructType()
    .add("client_id", StringType())
    .add("at", TimestampType())
    .add("count", LongType())
    .add("raw", BinaryType())
)
NOON = datetime(2026, 3, 1, 12, 0, 0, 5000, tzinfo=UTC)
BATCH = pa.record_batch(
    {
        "client_id": pa.array(["a", "b/é"]),
        "at": pa.array([NOON, None], pa.timestamp("us", tz="Europe/Berlin")),
        "count": pa.array([3, None], pa.int64()),
        "raw": pa.array([b"\0\xff", None]),
    }
)


def made(options: dict[str, str], schema: StructType = ALERTS, batch: pa.RecordBatch = BATCH) -> list[Outgoing | None]:
    return list(plan(parse(options), schema).messages(batch, 4, 10))


def test_a_row_is_json_without_what_is_null() -> None:
    first, second = made({"topic": "alerts/{client_id}/{count}"}, batch=BATCH.slice(0, 1)) + made({"topic": "all"})[1:]
    assert first is not None
    assert second is not None
    assert first[:2] == ("4/10", "alerts/a/3")
    assert first.payload == b'{"client_id":"a","at":"2026-03-01T12:00:00.005000Z","count":3,"raw":"AP8="}'
    assert second == ("4/11", "all", '{"client_id":"b/é"}'.encode())


def test_only_the_columns_that_are_named_are_in_it() -> None:
    first, second = made({"topic": "t", "columns": "count,client_id"})
    assert first is not None
    assert second is not None
    assert first.payload == b'{"count":3,"client_id":"a"}'
    assert json.loads(second.payload) == {"client_id": "b/é"}


def test_a_column_can_be_the_payload_and_null_is_none() -> None:
    assert [row and row.payload for row in made({"topic": "t", "payload": "raw"})] == [b"\0\xff", b""]
    assert [row and row.payload for row in made({"topic": "t", "payload": "client_id"})] == [b"a", "b/é".encode()]


def test_columns_topic_and_payload_need_no_options() -> None:
    schema = StructType().add("topic", VarcharType(9)).add("payload", BinaryType()).add("n", IntegerType())
    batch = pa.record_batch({"topic": ["x/y"], "payload": [b"1"], "n": [7]})
    assert made({}, schema, batch) == [("4/10", "x/y", b"1")]
    assert made({"columns": "n"}, schema, batch) == [("4/10", "x/y", b'{"n":7}')]
    without = StructType().add("topic", StringType()).add("n", IntegerType())
    assert made({}, without, batch) == [("4/10", "x/y", b'{"n":7}')]
    assert made({"topic": "{{{n}}}"}, without, batch) == [("4/10", "{7}", b'{"topic":"x/y","n":7}')]


@pytest.mark.parametrize(
    ("value", "kind", "written"),
    [
        (True, pa.bool_(), True),
        (1.5, pa.float64(), 1.5),
        (float("nan"), pa.float64(), "NaN"),
        (float("-inf"), pa.float32(), "-Infinity"),
        (Decimal("2.50"), pa.decimal128(9, 2), 2.5),
        (Decimal(12345678901234567890), pa.decimal128(20, 0), 12345678901234567890),
        (date(2026, 3, 1), pa.date32(), "2026-03-01"),
        (datetime(2026, 3, 1, 1), pa.timestamp("us"), "2026-03-01T01:00:00.000000"),
        (timedelta(minutes=1), pa.duration("us"), 60.0),
        ([b"a", None], pa.list_(pa.binary()), ["YQ==", None]),
        ({"x": None, "y": [1]}, pa.struct([("x", pa.int8()), ("y", pa.list_(pa.int8()))]), {"y": [1]}),
        ([(1, "one"), (2, None)], pa.map_(pa.int32(), pa.string()), {"1": "one"}),
        (
            [[("k", NOON)]],
            pa.list_(pa.map_(pa.string(), pa.timestamp("us", "UTC"))),
            [{"k": "2026-03-01T12:00:00.005000Z"}],
        ),
    ],
)
def test_every_type_has_its_form_in_json(value: Any, kind: pa.DataType, written: Any) -> None:
    batch = pa.record_batch({"v": pa.array([value], kind)})
    (message,) = made({"topic": "t"}, StructType().add("v", StringType()), batch)
    assert message is not None
    assert json.loads(message.payload) == {"v": written}


def test_a_row_can_have_a_name_in_place_of_its_number() -> None:
    assert [row and row.row for row in made({"topic": "t", "id": "of {client_id}"})] == ["of a", "of b/é"]


@pytest.mark.parametrize(
    ("topic", "options", "words"),
    [
        (None, {}, "row 10 of partition 4: column topic is null"),
        (None, {"topic": "t/{topic}"}, "row 10 of partition 4: topic: column topic is null"),
        (None, {"topic": "t", "id": "{topic}"}, "row 10 of partition 4: id: column topic is null"),
        ("a/#", {}, "row 10 of partition 4: topic name 'a/#' holds a wildcard"),
        ("a/+/b", {"topic": "x/{topic}"}, "holds a wildcard"),
        ("", {}, "the topic name is empty"),
        ("é" * 40_000, {}, "the topic has 80000 bytes; MQTT allows 65535"),
        ("a\0b", {}, r"holds U\+0000"),
        ("a\nb", {}, r"holds U\+000A"),
        ("a\0b", {"topic": "t", "id": "{topic}"}, "cannot be a text of MQTT"),
    ],
)
def test_a_row_that_cannot_be_a_message_is_named_or_skipped(
    topic: str | None, options: dict[str, str], words: str
) -> None:
    schema = StructType().add("topic", StringType()).add("n", IntegerType())
    batch = pa.record_batch({"topic": pa.array([topic, "good"]), "n": [1, 2]})
    with pytest.raises(SinkError, match=words):
        made(options, schema, batch)
    bad, good = made(options | {"invalid": "skip"}, schema, batch)
    assert bad is None
    assert good is not None
    assert good.row in ("4/11", "good")


def test_what_clients_call_themselves_can_be_escaped() -> None:
    schema = StructType().add("client_id", StringType())
    batch = pa.record_batch({"client_id": ["50%", "a+b#", "x/y\n"]})
    topics = [row and row.topic for row in made({"topic": "t/{client_id}", "escape": "true"}, schema, batch)]
    assert topics == ["t/50%25", "t/a%2Bb%23", "t/x/y%0A"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "there is no column topic"),
        ({"topic": "a/{clientid}"}, "option topic: there is no column clientid; there are client_id, at, count, raw"),
        ({"topic": "a/{raw}"}, "option topic: column raw is binary; it can be "),
        ({"topic": "a/{}"}, "option topic: .*a column's name"),
        ({"topic": "a/{at!r}"}, "option topic: .*a column's name"),
        ({"topic": "a/{at"}, "option topic: "),
        ({"topic": "a/#"}, "option topic: topic name 'a/#' holds a wildcard"),
        ({"topic": "t", "payload": "count"}, "option payload: column count is bigint; it can be binary, char, string"),
        ({"topic": "t", "payload": "nothing"}, "option payload: there is no column nothing"),
        ({"topic": "t", "columns": "count,nothing"}, "option columns: there is no column nothing"),
        ({"topic": "t", "id": "{nothing}"}, "option id: there is no column nothing"),
    ],
)
def test_columns_are_looked_for_before_anything_is_sent(options: dict[str, str], words: str) -> None:
    with pytest.raises(SinkError, match=words):
        plan(parse(options), ALERTS)


def test_something_must_be_the_payload() -> None:
    with pytest.raises(SinkError, match="no column beside topic"):
        plan(parse({}), StructType().add("topic", StringType()))


def test_the_column_topic_must_be_text() -> None:
    with pytest.raises(SinkError, match="the topic: column topic is array<string>"):
        plan(parse({}), StructType().add("topic", ArrayType(StringType())))
