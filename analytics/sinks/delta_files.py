"""Parquet files of a Delta table, as the tasks of a batch write them. They are part of it once the driver says so."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote
from uuid import uuid4

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.fs as pafs
    import pyarrow.parquet as pq

#: Columns of these types can be partitioned by, as Spark names them.
PARTITIONED: Final = frozenset(("string", "boolean", "byte", "short", "integer", "long", "date"))
#: What is written together: rows of a partition, bytes of all of them.
_GROUP_ROWS: Final = 131_072
_GROUP_BYTES: Final = 64 * 2**20
#: Files that one task has open.
_OPEN: Final = 64
#: Longer texts are no bounds of a file.
_BOUND: Final = 64

#: The values that a file's rows share, as text.
Values = tuple[str | None, ...]


@dataclass(frozen=True)
class Added:
    """A file that was written, as the table's log has it."""

    path: str
    size: int
    values: dict[str, str | None]
    #: Milliseconds since the epoch.
    written: int
    #: How many rows it has, and between which values they lie.
    statistics: str

    @property
    def rows(self) -> int:
        return int(json.loads(self.statistics)["numRecords"])


@dataclass(frozen=True)
class FileWriter:
    """Writes a task's rows; made in the driver, used in the tasks."""

    table: str
    #: What the table's files hold, as Arrow writes schemas: all columns but those that it is partitioned by.
    schema: bytes
    partition_by: tuple[str, ...]
    storage_options: dict[str, str] = field(repr=False)
    rows_per_file: int

    def __call__(self, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        """As `mapInArrow` calls it: rows come in, and what became of them comes out, a file a row."""
        import pyarrow as pa

        added = [json.dumps(asdict(one)) for one in self.write(batches)]
        yield pa.record_batch({"added": pa.array(added, pa.string())})

    def write(self, batches: "Iterator[pa.RecordBatch]") -> list[Added]:
        """All rows, in files of their partitions."""
        import pyarrow as pa

        files = _Files(self, pa.ipc.read_schema(pa.py_buffer(self.schema)))
        for batch in batches:
            for values, rows in _by_values(batch, self.partition_by):
                files.take(values, rows)
        return files.finish()


def _by_values(batch: "pa.RecordBatch", columns: Sequence[str]) -> "Iterator[tuple[Values, pa.RecordBatch]]":
    """The rows of each partition."""
    if not batch.num_rows:
        return
    if not columns:
        yield (), batch
        return
    found: dict[tuple[Any, ...], list[int]] = {}
    for number, row in enumerate(zip(*(batch.column(name).to_pylist() for name in columns), strict=True)):
        found.setdefault(row, []).append(number)
    for row, numbers in found.items():
        yield tuple(as_text(value) for value in row), batch.take(numbers)


def as_text(value: Any) -> str | None:
    """A value as the log of a table has it. Delta does not tell an empty text from null."""
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, date) else str(value)


def folder(columns: Sequence[str], values: Values) -> str:
    """Where rows with these values lie, below the table; empty or with a slash behind it."""
    return "".join(
        f"{quote(name, safe='')}={'__HIVE_DEFAULT_PARTITION__' if value is None else quote(value, safe='')}/"
        for name, value in zip(columns, values, strict=True)
    )


class _File:
    def __init__(self, writer: FileWriter, system: "pafs.FileSystem", schema: "pa.Schema", values: Values) -> None:
        import pyarrow.parquet as pq

        self.values = dict(zip(writer.partition_by, values, strict=True))
        below = folder(writer.partition_by, values)
        self.path = f"{below}part-{uuid4()}.zstd.parquet"
        if below:
            system.create_dir(below, recursive=True)
        self._system = system
        self._collected: list[pq.FileMetaData] = []
        self._writer = pq.ParquetWriter(
            self.path, schema, filesystem=system, compression="zstd", metadata_collector=self._collected
        )
        self.rows = 0

    def write(self, batches: "list[pa.RecordBatch]") -> None:
        import pyarrow as pa

        table = pa.Table.from_batches(batches)
        self._writer.write_table(table, row_group_size=_GROUP_ROWS)
        self.rows += table.num_rows

    def close(self) -> Added:
        self._writer.close()
        size = self._system.get_file_info(self.path).size
        now = int(datetime.now(UTC).timestamp() * 1000)
        (metadata,) = self._collected
        return Added(self.path, size, self.values, now, json.dumps(statistics(metadata)))


class _Files:
    """The files of one task: rows are gathered until writing them is worth it."""

    def __init__(self, writer: FileWriter, schema: "pa.Schema") -> None:
        self._writer = writer
        self._schema = schema
        self._system = file_system(writer.table, writer.storage_options)
        self._open: dict[Values, _File] = {}
        self._gathered: dict[Values, list[pa.RecordBatch]] = {}
        self._rows: dict[Values, int] = {}
        self._bytes = 0
        self._added: list[Added] = []

    def take(self, values: Values, batch: "pa.RecordBatch") -> None:
        rows = batch.select(self._schema.names).cast(self._schema)
        self._gathered.setdefault(values, []).append(rows)
        self._rows[values] = self._rows.get(values, 0) + rows.num_rows
        self._bytes += rows.nbytes
        if self._rows[values] >= _GROUP_ROWS:
            self._write(values)
        while self._bytes >= _GROUP_BYTES:
            self._write(max(self._rows, key=self._rows.__getitem__))

    def _write(self, values: Values) -> None:
        batches = self._gathered.pop(values)
        del self._rows[values]
        self._bytes -= sum(batch.nbytes for batch in batches)
        file = self._open.get(values)
        if file is None:
            if len(self._open) >= _OPEN:
                self._close(next(iter(self._open)))
            file = self._open[values] = _File(self._writer, self._system, self._schema, values)
        file.write(batches)
        if file.rows >= self._writer.rows_per_file:
            self._close(values)

    def _close(self, values: Values) -> None:
        self._added.append(self._open.pop(values).close())

    def finish(self) -> list[Added]:
        for values in list(self._gathered):
            self._write(values)
        for values in list(self._open):
            self._close(values)
        return self._added


def file_system(table: str, storage_options: Mapping[str, str]) -> "pafs.FileSystem":
    """The table's folder as a file system: a local one is made, any other is reached as the table itself is."""
    import os

    import pyarrow.fs as pafs

    if "://" in table:
        from deltalake.fs import DeltaStorageHandler

        handler: Any = DeltaStorageHandler(table, dict(storage_options))
        return pafs.PyFileSystem(handler)
    os.makedirs(table, exist_ok=True)
    return pafs.SubTreeFileSystem(table, pafs.LocalFileSystem())


def statistics(metadata: "pq.FileMetaData") -> dict[str, Any]:
    """What readers need to leave a file alone: how many rows it has, and between which values they lie.

    Nothing is said of floats (NaN is nowhere between), of long texts, and of what lies within other columns.
    """
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for column in range(metadata.num_columns):
        parts = [metadata.row_group(group).column(column) for group in range(metadata.num_row_groups)]
        name = parts[0].path_in_schema if parts else "."
        found: list[Any] = [part.statistics for part in parts]
        if "." in name or any(one is None or not one.has_null_count for one in found):
            continue
        nulls[name] = sum(one.null_count for one in found)
        filled = [one for one in found if one.num_values]
        if filled and all(one.has_min_max for one in filled):
            low = bound(min(one.min for one in filled), up=False)
            high = bound(max(one.max for one in filled), up=True)
            if low is not None and high is not None:
                least[name], greatest[name] = low, high
    return {"numRecords": metadata.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}


def bound(value: Any, *, up: bool) -> Any:
    """A value as the table's log has it, if it can stand there: times have no more than milliseconds, and are rounded
    outwards."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return None
        whole = value.astimezone(UTC).replace(microsecond=value.microsecond // 1000 * 1000, tzinfo=None)
        if up and value.microsecond % 1000:
            whole += timedelta(milliseconds=1)
        return whole.isoformat(timespec="milliseconds") + "Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, str):
        return value if len(value) <= _BOUND else None
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return None
