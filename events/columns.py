"""Columns of tables, declared as text: of the events, and of the results of jobs."""

from collections.abc import Iterable
from inspect import cleandoc
from typing import Final, NamedTuple

import pyarrow as pa

#: Arrow's types by Spark's words for them.
ARROW: Final[dict[str, pa.DataType]] = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "array<struct<key:string,value:string>>": pa.list_(
        pa.struct([pa.field("key", pa.string()), pa.field("value", pa.string())])
    ),
}


class Column(NamedTuple):
    name: str
    #: As Spark writes it.
    type: str
    #: With its unit.
    meaning: str


def columns(table: str) -> tuple[Column, ...]:
    """Columns from lines of name, type and meaning. An indented line continues the one before."""
    found: list[Column] = []
    for line in cleandoc(table).splitlines():
        if line.startswith(" "):
            found[-1] = found[-1]._replace(meaning=f"{found[-1].meaning} {line.strip()}")
        else:
            found.append(Column(*line.split(maxsplit=2)))
    return tuple(found)


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    return pa.schema([pa.field(column.name, ARROW[column.type]) for column in columns])


def spark_schema(columns: Iterable[Column]) -> str:
    """As Spark reads it from text."""
    return ", ".join(f"`{column.name}` {column.type}" for column in columns)
