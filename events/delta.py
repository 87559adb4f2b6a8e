"""The log as a Delta table, partitioned by `date` (the day of `time`, by UTC).

What is added to the table, and up to which row of its node that goes, is one commit: whoever goes on after a crash reads
in the table itself where.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from trunkline.events.layout import LogError, NodeKey
from trunkline.events.schema import SCHEMA
from trunkline.events.target import Missing, Piece, Written

if TYPE_CHECKING:
    import deltalake

DATE: Final = "date"
#: What the table holds.
TABLE_SCHEMA: Final = SCHEMA.append(pa.field(DATE, pa.date32()))


class DeltaTarget:
    """A table in a directory or at a URI, made when it is first written to."""

    def __init__(self, uri: str | Path, storage_options: Mapping[str, str] | None = None) -> None:
        """`storage_options` are those of deltalake.

        Raises:
            LogError: deltalake is not installed.
        """
        try:
            import deltalake
            from deltalake.exceptions import DeltaError
        except ImportError:
            raise LogError("a Delta table needs deltalake: pip install 'trunkline[lake]'") from None
        self._lake = deltalake
        self._error = DeltaError
        self.uri: Final = str(uri)
        self._storage_options = dict(storage_options or {})

    def next_seq(self, key: NodeKey) -> int | None:
        table = self._table()
        return None if table is None else _next_seq(table, key)

    def write(self, key: NodeKey, first: int, end: int, pieces: Iterator[Piece]) -> Written:
        """All of it, in one commit. For rows that are missing the table has the row that stands for them.

        Raises:
            LogError: the table cannot be written, or somebody else has added rows of this node; nothing was added.
        """
        lake = self._lake
        rows = _Rows(pieces)
        # the very state that was looked at: a commit of others that came after it makes this one fail
        table = self._table()
        known = None if table is None else _next_seq(table, key)
        if known is not None and known > first:
            raise LogError(f"{self.uri}: somebody else has added rows of {key}, up to {known}")
        try:
            lake.write_deltalake(
                self.uri if table is None else table,
                pa.RecordBatchReader.from_batches(TABLE_SCHEMA, iter(rows)),
                partition_by=[DATE],
                mode="append",
                schema_mode="merge",
                storage_options=self._storage_options,
                commit_properties=lake.CommitProperties(app_transactions=[lake.Transaction(application(key), end)]),
            )
        except Exception as error:
            if rows.error is not None:
                raise rows.error from None
            if isinstance(error, self._error):
                raise LogError(f"{self.uri}: {error}") from None
            raise
        return Written(end, rows.rows, 1, 0, rows.missing)

    def _table(self) -> "deltalake.DeltaTable | None":
        if not self._lake.DeltaTable.is_deltatable(self.uri, self._storage_options):
            return None
        return self._lake.DeltaTable(self.uri, storage_options=self._storage_options)


def _next_seq(table: "deltalake.DeltaTable", key: NodeKey) -> int | None:
    return table.transaction_version(application(key))


def application(key: NodeKey) -> str:
    """The name under which the table keeps the number of a node's next row."""
    return f"trunkline-events {key}"


class _Rows:
    """The pieces as the table has them."""

    def __init__(self, pieces: Iterator[Piece]) -> None:
        self._pieces = pieces
        self.rows = 0
        self.missing = 0
        #: Why there were no more: the library that pulls the rows tells it in words of its own.
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            for piece in self._pieces:
                if isinstance(piece, Missing):
                    self.missing += piece.rows
                    batch = piece.stand_in
                else:
                    self.rows += piece.num_rows
                    batch = piece
                days = batch.column("time").cast(pa.date32())
                yield pa.RecordBatch.from_arrays([*batch.columns, days], schema=TABLE_SCHEMA)
        except Exception as error:
            self.error = error
            raise
