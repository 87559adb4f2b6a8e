"""Columns that a segment lacks, has in another type, or has besides."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest

from tests.events.logs import KEY
from trunkline.events.layout import LogError
from trunkline.events.projection import Projection
from trunkline.events.schema import SCHEMA


def apply(columns: list[str] | None, stored: dict[str, pa.Array[Any]], first: int = 0) -> pa.RecordBatch:
    batch = pa.record_batch(list(stored.values()), names=list(stored))
    projection = Projection(columns)
    fit = projection.fit(batch.schema, "the.file")
    return projection.apply(batch.select(fit.names), fit, KEY, first)


def test_all_columns_in_their_order() -> None:
    batch = apply(None, {"kind": pa.array(["a", "b"])}, first=7)
    assert batch.schema == SCHEMA
    row = batch.to_pylist()[1]
    assert {name: value for name, value in row.items() if value is not None} == {
        "node": "n1",
        "incarnation": KEY.incarnation,
        "seq": 8,
        "kind": "b",
    }


def test_only_what_is_asked_for_and_in_that_order() -> None:
    batch = apply(["topic", "seq", "kind"], {"kind": pa.array(["a"]), "size": pa.array([5])})
    assert batch.to_pydict() == {"topic": [None], "seq": [0], "kind": ["a"]}


def test_a_segment_with_none_of_the_columns_has_its_rows_all_the_same() -> None:
    assert apply(["seq", "node"], {"kind": pa.array(["a", "b"])}).to_pydict() == {"seq": [0, 1], "node": ["n1", "n1"]}


@pytest.mark.parametrize("rows", [0, 1, 1023, 1024, 1025, 5000])
def test_numbers(rows: int) -> None:
    first = 2**40
    assert apply(["seq"], {"qos": pa.array([0] * rows, pa.int32())}, first).column("seq").to_pylist() == list(
        range(first, first + rows)
    )


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("qos", pa.array([1], pa.int64())),
        ("qos", pa.array([1], pa.uint32())),
        ("size", pa.array([1], pa.uint64())),
        ("size", pa.array(["1"])),
        ("kind", pa.array([b"a"])),
        ("value", pa.array([1], pa.int64())),
        ("size", pa.array([1], pa.int32())),
        ("kind", pa.array(["a"], pa.large_string())),
        ("kind", pa.array([1]).dictionary_encode()),
        ("time", pa.array([1], pa.timestamp("us"))),
        ("time", pa.array([1], pa.timestamp("ns", "UTC"))),
        ("user_properties", pa.array(["a"])),
    ],
)
def test_other_types_are_refused(name: str, stored: pa.Array[Any]) -> None:
    with pytest.raises(LogError, match=f"the.file: column {name} is .*, which cannot be read as"):
        apply(None, {name: stored})
    apply(["seq"], {name: stored})  # what is not wanted does not matter


def test_a_column_that_is_there_twice_is_refused() -> None:
    schema = pa.schema([("kind", pa.string()), ("kind", pa.string())])
    with pytest.raises(LogError, match="kind occurs twice"):
        Projection(None).fit(schema, "the.file")


def test_columns_that_no_event_has() -> None:
    with pytest.raises(LogError, match="no column 'colour'; they have node, incarnation, seq, time"):
        Projection(["kind", "colour"])
    for columns in ([], ["kind", "kind"]):
        with pytest.raises(LogError, match="only once"):
            Projection(columns)


def test_a_row_for_what_is_missing() -> None:
    row = Projection(None).placeholder(KEY, "log.lost", 5, 3, 1_000_001).to_pylist()[0]
    assert {name: value for name, value in row.items() if value is not None} == {
        "node": "n1",
        "incarnation": KEY.incarnation,
        "seq": 5,
        "time": datetime.datetime(1970, 1, 1, 0, 0, 1, 1, datetime.UTC),
        "kind": "log.lost",
        "weight": 1,
        "value": 3.0,
    }
    assert Projection(["value"]).placeholder(KEY, "log.lost", 5, 3, 0).to_pydict() == {"value": [3.0]}
