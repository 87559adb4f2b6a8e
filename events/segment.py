"""The interface of a segment for readers, for both file formats."""

from typing import NamedTuple

import pyarrow as pa


class Part(NamedTuple):
    """A batch or row group, which can be read separately."""

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
    """Rows that exist but cannot be read."""

    first: int
    end: int
    reason: str
    #: Microseconds since the epoch; None where it is lost.
    time: int | None
