"""Converts the columns of a segment to those that a reader requests."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from trunkline.events.layout import LogError, NodeKey
from trunkline.events.schema import DERIVED, SCHEMA

if TYPE_CHECKING:
    from collections.abc import Sequence


class Fit(NamedTuple):
    """How the columns of one segment become those of the projection."""

    #: The segment's columns that are needed, in its own order; never empty unless it has none.
    names: list[str]
    #: And their places.
    places: list[int]


class Projection:
    """The requested columns, in the reader's order; None means all of `SCHEMA`. Raises LogError for an unknown name."""

    def __init__(self, columns: Sequence[str] | None) -> None:
        names = SCHEMA.names if columns is None else list(columns)
        for name in names:
            if name not in SCHEMA.names:
                raise LogError(f"events have no column {name!r}; they have {', '.join(SCHEMA.names)}")
        if not names or len(set(names)) < len(names):
            raise LogError(f"name at least one column, and each only once: {', '.join(names)}")
        self.schema: Final = pa.schema([SCHEMA.field(name) for name in names])

    def fit(self, stored: pa.Schema, path: str) -> Fit:
        """Raises LogError: a column of the segment has another type than the table of events."""
        names: list[str] = []
        for field in stored:
            if field.name not in self.schema.names or field.name in DERIVED:
                continue
            if field.name in names:
                raise LogError(f"{path}: column {field.name} occurs twice")
            wanted = self.schema.field(field.name).type
            if field.type != wanted:
                raise LogError(f"{path}: column {field.name} is {field.type}, which cannot be read as {wanted}")
            names.append(field.name)
        # a reader that requests no column would read all of them
        names = names or stored.names[:1]
        return Fit(names, [stored.names.index(name) for name in names])

    def apply(self, batch: pa.RecordBatch, fit: Fit, key: NodeKey, first: int) -> pa.RecordBatch:
        """The batch's row 0 gets the number `first`."""
        rows = batch.num_rows
        columns: list[pa.Array[Any]] = []
        for field in self.schema:
            name = field.name
            if name == "seq":
                column = _numbers(first, rows)
            elif name == "node":
                column = pa.repeat(key.name, rows)
            elif name == "incarnation":
                column = pa.repeat(pa.scalar(key.incarnation, pa.int64()), rows)
            elif name not in fit.names:
                column = pa.nulls(rows, field.type)
            else:
                column = batch.column(name)
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def placeholder(self, key: NodeKey, kind: str, first: int, rows: int, time: int) -> pa.RecordBatch:
        """One row instead of `rows` that are missing from `first` on."""
        values = {
            "node": key.name,
            "incarnation": key.incarnation,
            "seq": first,
            "time": time,
            "kind": kind,
            "weight": 1,
            "value": float(rows),
        }
        columns = [pa.array([values.get(field.name)], field.type) for field in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _numbers(first: int, rows: int) -> pa.Array[Any]:
    return pc.add(_counting(max(rows, 1024).bit_length()).slice(0, rows), first)


@cache
def _counting(bits: int) -> pa.Array[Any]:
    return pa.array(range(1 << bits), pa.int64())
