"""Makes the columns that a reader wants of those that a segment has."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from trunkline.events.layout import LogError, NodeKey
from trunkline.events.schema import DERIVED, SCHEMA

if TYPE_CHECKING:
    from collections.abc import Sequence

_WIDER: Final[dict[pa.DataType, set[pa.DataType]]] = {
    pa.int64(): {pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32()},
    pa.int32(): {pa.int8(), pa.int16(), pa.uint8(), pa.uint16()},
    pa.float64(): {
        *(pa.float16(), pa.float32()),
        *(pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32()),
    },
    pa.string(): {pa.large_string(), pa.string_view()},
    pa.binary(): {pa.large_binary(), pa.binary_view()},
}


class Fit(NamedTuple):
    """How the columns of one segment become those of the projection."""

    #: The segment's columns that are needed, in its own order; never empty unless it has none.
    names: list[str]
    #: And their places.
    places: list[int]
    #: Those among them whose type is narrower.
    casts: frozenset[str]


class Projection:
    """The columns that a reader wants, in its order; None is all of `SCHEMA`. Raises LogError if there is none of a
    name."""

    def __init__(self, columns: Sequence[str] | None) -> None:
        names = SCHEMA.names if columns is None else list(columns)
        for name in names:
            if name not in SCHEMA.names:
                raise LogError(f"events have no column {name!r}; they have {', '.join(SCHEMA.names)}")
        if not names or len(set(names)) < len(names):
            raise LogError(f"columns are to be named once each, and at least one: {', '.join(names)}")
        self.schema: Final = pa.schema([SCHEMA.field(name) for name in names])

    def fit(self, stored: pa.Schema, path: str) -> Fit:
        """Raises LogError if a column of the segment has a type from which nothing leads to the wanted one."""
        names: list[str] = []
        casts: set[str] = set()
        for field in stored:
            if field.name not in self.schema.names or field.name in DERIVED:
                continue
            if field.name in names:
                raise LogError(f"{path}: column {field.name} is there twice")
            wanted = self.schema.field(field.name).type
            if field.type != wanted:
                if not _leads_to(field.type, wanted):
                    raise LogError(f"{path}: column {field.name} is {field.type}, which cannot be read as {wanted}")
                casts.add(field.name)
            names.append(field.name)
        # a reader that gets no column at all reads all of them
        names = names or stored.names[:1]
        return Fit(names, [stored.names.index(name) for name in names], frozenset(casts))

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
            elif name in fit.casts:
                column = batch.column(name).cast(field.type)
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


def _leads_to(stored: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_null(stored):
        return True
    if pa.types.is_dictionary(stored):
        return stored.value_type == wanted or _leads_to(stored.value_type, wanted)
    if pa.types.is_timestamp(stored) and pa.types.is_timestamp(wanted):
        return stored.tz == wanted.tz and stored.unit in ("s", "ms")
    return stored in _WIDER.get(wanted, ())


def _numbers(first: int, rows: int) -> pa.Array[Any]:
    return pc.add(_counting(max(rows, 1024).bit_length()).slice(0, rows), first)


@cache
def _counting(bits: int) -> pa.Array[Any]:
    return pa.array(range(1 << bits), pa.int64())
