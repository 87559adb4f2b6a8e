"""What the reader knows of a file of rows, whichever its format."""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import pyarrow as pa

from trunkline.events.layout import NodeKey
from trunkline.events.projection import Projection


class Part(NamedTuple):
    """A batch, or a row group: what can be read by itself."""

    first: int
    end: int
    #: Microseconds since the epoch; None where they are lost.
    min_time: int | None
    max_time: int | None
    #: Bytes in the file.
    size: int


class Rows(NamedTuple):
    first: int
    batch: pa.RecordBatch

    @property
    def end(self) -> int:
        return self.first + self.batch.num_rows


class Damage(NamedTuple):
    """Rows that are there and cannot be read."""

    first: int
    end: int
    reason: str
    #: Microseconds since the epoch; None where it is lost.
    time: int | None


class Segment(Protocol):
    @property
    def path(self) -> str: ...

    @property
    def first(self) -> int: ...

    @property
    def end(self) -> int:
        """The number behind its last row, as of the last look."""
        ...

    @property
    def newest(self) -> int | None:
        """The newest row's time, microseconds since the epoch."""
        ...

    def parts(self, first: int, end: int) -> Iterator[Part]:
        """Those that have rows in [first, end)."""
        ...

    def read(
        self, key: NodeKey, first: int, end: int, projection: Projection, *, verify: bool
    ) -> Iterator[Rows | Damage]:
        """All rows of [first, end) in order, which must be in the segment."""
        ...

    def forget(self) -> None:
        """Drops what was read of the file's own description; it is read again when it is needed."""
        ...
