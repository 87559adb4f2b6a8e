"""Logs for the tests of the source, written as the exporter writes them."""

from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tests.analytics.events_made import microseconds, row, table
from trunkline.analytics.source.options import Mode, SourceSettings, understood
from trunkline.events.schema import SCHEMA, STORED
from trunkline.events.writer import LogWriter

Events = list[dict[str, Any]]


def settings(root: Path | str, mode: Mode | None = None, **options: object) -> SourceSettings:
    return understood({"path": str(root), **{name: str(value) for name, value in options.items()}}, mode)


def schema_of(*names: str) -> StructType:
    """Spark's, of the columns that are named, or of all."""
    return from_arrow_schema(pa.schema([SCHEMA.field(name) for name in names or SCHEMA.names]))


def append(writer: LogWriter, events: pa.Table, rows: int = 100) -> None:
    """Batches of so many rows."""
    for batch in events.select(STORED.names).combine_chunks().to_batches(max_chunksize=rows):
        times = pc.min_max(batch.column("time"))
        writer.append(
            pa.RecordBatch.from_arrays(batch.columns, schema=writer.schema),
            microseconds(times["min"].as_py()),
            microseconds(times["max"].as_py()),
        )


class Log:
    """A log of which each node may be written on, until the end of the block."""

    def __init__(self, root: Path, *, rows: int = 100, roll_bytes: int = 64 << 20) -> None:
        self.root = root
        self._rows = rows
        self._roll_bytes = roll_bytes
        self.writers: dict[str, LogWriter] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self.writers.values():
            writer.close()

    def write(self, events: pa.Table) -> None:
        """Each node's rows in their order."""
        for name in events.column("node").unique().to_pylist():
            own = events.filter(pc.equal(events.column("node"), name))
            key = f"{name}@{own.column('incarnation')[0].as_py()}"
            if key not in self.writers:
                incarnation = own.column("incarnation")[0].as_py()
                self.writers[key] = LogWriter(self.root, name, incarnation, roll_bytes=self._roll_bytes)
            append(self.writers[key], own, self._rows)


def write(root: Path, events: pa.Table, *, rows: int = 100, roll_bytes: int = 64 << 20) -> None:
    """A log of these events, to which nothing is added."""
    with Log(root, rows=rows, roll_bytes=roll_bytes) as log:
        log.write(events)


def ticks(node: str, first: float, count: int, *, step: float = 1.0) -> pa.Table:
    """`count` rows of a node, one each `step` seconds."""
    return table([row("node.tick", first + number * step, node=node) for number in range(count)])


def read(reader: Any, parts: Any) -> pa.Table:
    batches = [batch for part in parts for batch in reader.read(part)]
    return pa.Table.from_batches(batches) if batches else pa.table({})


def by_number(events: pa.Table) -> Events:
    return events.sort_by([("node", "ascending"), ("incarnation", "ascending"), ("seq", "ascending")]).to_pylist()
