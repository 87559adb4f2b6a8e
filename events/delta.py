"""Delta tables, written by the library deltalake: results of Spark, and the event log itself.

A writer puts rows into Parquet files, which are not part of the table yet, in one process or in many. One commit adds
them to the table, together with the name of the application and a number that says how far it has come (Delta's
application transactions). So a writer that goes on after a crash reads in the table itself where, and nothing is there
twice.
"""

import json
import os
import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote
from uuid import uuid4

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from trunkline.events.gathering import together
from trunkline.events.layout import LogError, NodeKey
from trunkline.events.schema import SCHEMA
from trunkline.events.target import Missing, Piece, Written

if TYPE_CHECKING:
    import deltalake

#: Columns of these types can be partitioned by, as Spark names them.
PARTITIONED: Final = frozenset(("string", "boolean", "byte", "short", "integer", "long", "date"))
#: Rows of a row group, at most.
_GROUP_ROWS: Final = 131_072
#: Rows that are gathered before any is written, or bytes of them in memory.
_GATHERED_ROWS: Final = 1 << 20
_GATHERED_BYTES: Final = 64 * 2**20
#: The most files that one writer has open.
_MAX_OPEN: Final = 64
#: Longer texts are not used as minimum or maximum of a file.
_MAX_BOUND: Final = 64

#: The values that a file's rows share, as text.
Values = tuple[str | None, ...]


class TableError(LogError):
    """Rows and table do not fit together, or the table cannot be written."""


def library() -> Any:
    """Raises TableError if deltalake is not installed."""
    try:
        import deltalake
    except ImportError:
        raise TableError("a Delta table needs deltalake: pip install 'trunkline[lake]'") from None
    return deltalake


@contextmanager
def _in_words(uri: str) -> Generator[None]:
    """Raises TableError instead of deltalake's own errors, which callers need not know: in one line, without its
    colours."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, OSError) as error:
        lines = re.sub(r"\x1b\[\d*m|↳", "", str(error)).splitlines()
        raise TableError(f"{uri}: {': '.join(line.strip() for line in lines if line.strip())}") from None


@dataclass(frozen=True)
class TablePlace:
    """Where a table is, or will be: a directory or a URI, with the storage options of deltalake."""

    uri: str
    storage_options: dict[str, str] = field(repr=False)

    def table(self) -> "deltalake.DeltaTable | None":
        """
        Raises:
            TableError: the table cannot be reached or understood.
        """
        lake = library()
        with _in_words(self.uri):
            if not lake.DeltaTable.is_deltatable(self.uri, self.storage_options):
                return None
            table: deltalake.DeltaTable = lake.DeltaTable(self.uri, storage_options=self.storage_options)
            return table

    def table_for(self, wanted: "deltalake.Schema", partition_by: Sequence[str]) -> "deltalake.DeltaTable":
        """The table, with all columns of the schema; it is created if it is missing.

        Raises:
            TableError: it has another type for one of them, or other partitions, or it cannot be made or reached.
        """
        table = self.table()
        if table is None:
            with _in_words(self.uri):
                library().DeltaTable.create(
                    self.uri,
                    wanted,
                    mode="ignore",
                    partition_by=list(partition_by),
                    storage_options=self.storage_options,
                )
            table = self.table()
        assert table is not None
        if partition_by and list(partition_by) != table.metadata().partition_columns:
            there = ", ".join(table.metadata().partition_columns) or "nothing"
            raise TableError(f"{self.uri}: the table is partitioned by {there}, not by {', '.join(partition_by)}")
        self._widen(table, wanted)
        return table

    def _widen(self, table: "deltalake.DeltaTable", wanted: "deltalake.Schema") -> None:
        """Give the table the columns that it lacks."""
        there = {one.name.lower(): one for one in table.schema().fields}
        missing: list[deltalake.Field] = []
        for one in wanted.fields:
            known = there.get(one.name.lower())
            if known is None:
                missing.append(one)
            elif known.name != one.name:
                raise TableError(
                    f"{self.uri}: the table has a column {known.name}, which differs from {one.name} only in case"
                )
            elif known.type != one.type:
                raise TableError(f"{self.uri}: column {one.name} is {known.type} in the table and {one.type} here")
        if missing:
            with _in_words(self.uri):
                table.alter.add_columns(missing)
                table.update_incremental()

    def files(self) -> pafs.FileSystem:
        """The table's folder as a file system: a local one is made, any other is reached as the table itself is."""
        if "://" in self.uri:
            from deltalake.fs import DeltaStorageHandler

            handler: Any = DeltaStorageHandler(self.uri, self.storage_options)
            return pafs.PyFileSystem(handler)
        os.makedirs(self.uri, exist_ok=True)
        return pafs.SubTreeFileSystem(self.uri, pafs.LocalFileSystem())


@dataclass(frozen=True)
class Added:
    """A written file, in the form of the table's log."""

    path: str
    size: int
    values: dict[str, str | None]
    #: Milliseconds since the epoch.
    written: int
    #: The number of its rows, and the minimum and maximum of each column.
    statistics: str


def commit(table: "deltalake.DeltaTable", application: str, number: int, files: Sequence[Added]) -> None:
    """Add the files to the table, and note the number under the application's name.

    Raises:
        TableError: another writer has committed under the same name since the table was opened. Nothing was added.
    """
    from deltalake.exceptions import CommitFailedError
    from deltalake.transaction import AddAction

    lake = library()
    actions: list[Any] = [
        AddAction(file.path, file.size, file.values, file.written, True, file.statistics) for file in files
    ]
    with _in_words(table.table_uri):
        try:
            table.create_write_transaction(
                actions,
                "append",
                table.schema(),
                table.metadata().partition_columns,
                commit_properties=lake.CommitProperties(app_transactions=[lake.Transaction(application, number)]),
            )
        except CommitFailedError as error:
            raise TableError(
                f"{table.table_uri}: {number} of {application} was not added: {error} Are there two writers?"
            ) from None


@dataclass(frozen=True)
class FileWriter:
    """Writes rows into files of their partitions. Spark sends it to its tasks."""

    place: TablePlace
    #: The columns in the table's files: all but the partition columns.
    schema: pa.Schema
    partition_by: tuple[str, ...] = ()
    rows_per_file: int = 2_000_000

    def write(self, batches: Iterable[pa.RecordBatch]) -> list[Added]:
        """All rows; they are gathered until writing them is worth it."""
        system = self.place.files()
        files: dict[Values, _File] = {}
        added: list[Added] = []
        for table in together(batches, min(_GATHERED_ROWS, self.rows_per_file), _GATHERED_BYTES):
            for values, rows in _by_values(table, self.partition_by):
                if values not in files:
                    if len(files) >= _MAX_OPEN:
                        added.append(files.pop(next(iter(files))).close())
                    files[values] = _File(self, system, values)
                file = files[values]
                file.write(rows.select(self.schema.names).cast(self.schema))
                if file.rows >= self.rows_per_file:
                    added.append(files.pop(values).close())
        return added + [file.close() for file in files.values()]


def _by_values(table: pa.Table, columns: Sequence[str]) -> Iterator[tuple[Values, pa.Table]]:
    """The rows of each partition."""
    if not columns:
        yield (), table
        return
    found: dict[Values, list[int]] = {}
    for number, row in enumerate(zip(*(table.column(name).to_pylist() for name in columns), strict=True)):
        found.setdefault(tuple(map(as_text, row)), []).append(number)
    for values, numbers in found.items():
        yield values, table.take(numbers) if len(found) > 1 else table


def as_text(value: Any) -> str | None:
    """A value as the log of a table has it. Delta does not distinguish an empty text from null."""
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
    def __init__(self, writer: FileWriter, system: pafs.FileSystem, values: Values) -> None:
        self._values = dict(zip(writer.partition_by, values, strict=True))
        below = folder(writer.partition_by, values)
        if below:
            system.create_dir(below, recursive=True)
        self._path = f"{below}part-{uuid4()}.zstd.parquet"
        self._system = system
        self._footers: list[pq.FileMetaData] = []
        self._writer = pq.ParquetWriter(
            self._path, writer.schema, filesystem=system, compression="zstd", metadata_collector=self._footers
        )
        self.rows = 0

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(table, row_group_size=_GROUP_ROWS)
        self.rows += table.num_rows

    def close(self) -> Added:
        self._writer.close()
        size = self._system.get_file_info(self._path).size
        now = int(datetime.now(UTC).timestamp() * 1000)
        return Added(self._path, size, self._values, now, json.dumps(statistics(self._footers[0])))


def statistics(footer: pq.FileMetaData) -> dict[str, Any]:
    """The statistics by which readers skip a file: the number of its rows, and minimum and maximum of its columns.
    There are none for floats (NaN has no order), long texts, and nested columns.
    """
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for column in range(footer.num_columns):
        parts = [footer.row_group(group).column(column) for group in range(footer.num_row_groups)]
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
    return {"numRecords": footer.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}


def bound(value: Any, *, up: bool) -> Any:
    """A value in the form of the table's log, if it can be there: times are rounded outwards to milliseconds."""
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
        return value if len(value) <= _MAX_BOUND else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


#: The column by which the table of events is partitioned: the day of `time`, by UTC.
DATE: Final = "date"
_EVENTS: Final = SCHEMA.append(pa.field(DATE, pa.date32()))


class DeltaTarget:
    """The event log as a table, made when it is first written to."""

    def __init__(self, uri: str, storage_options: Mapping[str, str] | None = None) -> None:
        """Raises TableError if deltalake is not installed."""
        library()
        self.uri: Final = uri
        self._place = TablePlace(uri, dict(storage_options or {}))

    def next_seq(self, key: NodeKey) -> int | None:
        table = self._place.table()
        return None if table is None else table.transaction_version(application(key))

    def write(self, key: NodeKey, first: int, end: int, pieces: Iterator[Piece]) -> Written:
        """All of it, in one commit. In place of missing rows the table gets the row that stands for them.

        Raises:
            TableError: the table cannot be written, or another writer has added rows of this node; nothing was added.
        """
        # exactly the state that was examined: a later commit of another writer makes this one fail
        table = self._place.table_for(library().Schema.from_arrow(_EVENTS), [DATE])
        known = table.transaction_version(application(key))
        if known is not None and known > first:
            raise TableError(f"{self.uri}: another writer has added rows of {key}, up to {known}")
        rows = missing = 0

        def batches() -> Iterator[pa.RecordBatch]:
            nonlocal rows, missing
            for piece in pieces:
                if isinstance(piece, Missing):
                    missing += piece.rows
                    batch = piece.placeholder
                else:
                    rows += piece.num_rows
                    batch = piece
                days = batch.column("time").cast(pa.date32())
                yield pa.RecordBatch.from_arrays([*batch.columns, days], schema=_EVENTS)

        files = FileWriter(self._place, SCHEMA, (DATE,)).write(batches())
        commit(table, application(key), end, files)
        return Written(end, rows, 1, 0, missing)


def application(key: NodeKey) -> str:
    """The name under which the table keeps the number of a node's next row."""
    return f"trunkline-events {key}"
