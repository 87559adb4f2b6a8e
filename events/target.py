"""What compaction writes to, whichever its format."""

from collections.abc import Iterator
from typing import NamedTuple, Protocol, TypeAlias

import pyarrow as pa

from trunkline.events.layout import NodeKey


class Missing(NamedTuple):
    """Rows of the log that cannot be had, and the row that stands for them."""

    first: int
    rows: int
    placeholder: pa.RecordBatch


#: Rows in order, each batch with all of the table's columns.
Piece: TypeAlias = pa.RecordBatch | Missing


class Written(NamedTuple):
    """What one call of `write` has done."""

    #: The number of the next row to write.
    end: int
    rows: int
    #: Or commits of a table.
    files: int
    bytes: int
    #: Rows that were missing before `end`.
    missing: int


class Target(Protocol):
    """Keeps by itself how far each node has come: what was written, and up to where, is there in the same moment."""

    def next_seq(self, key: NodeKey) -> int | None:
        """The number behind the last row of a node; None if there is none of it."""
        ...

    def write(self, key: NodeKey, first: int, end: int, pieces: Iterator[Piece]) -> Written:
        """Takes the pieces, which are rows [first, end), or some of them: at least one row or hole."""
        ...
