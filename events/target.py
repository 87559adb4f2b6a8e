"""The interface between compaction and its targets, for all formats."""

from typing import NamedTuple, TypeAlias

import pyarrow as pa


class Missing(NamedTuple):
    """Rows of the log that cannot be read, and the row that stands for them."""

    first: int
    rows: int
    placeholder: pa.RecordBatch


#: Rows in order, each batch with all of the table's columns.
Piece: TypeAlias = pa.RecordBatch | Missing


class Written(NamedTuple):
    """The result of one call of `write`."""

    #: The number of the next row to write.
    end: int
    rows: int
    #: Or commits of a table.
    files: int
    bytes: int
    #: Rows that were missing before `end`.
    missing: int
