"""Puts small batches together."""

from collections.abc import Iterable, Iterator

import pyarrow as pa


def together(batches: Iterable[pa.RecordBatch], rows: int, size: int) -> Iterator[pa.Table]:
    """Tables of at least so many rows, or bytes in memory, but for the last one."""
    gathered: list[pa.RecordBatch] = []
    count = held = 0
    for batch in batches:
        gathered.append(batch)
        count += batch.num_rows
        held += batch.nbytes
        if count >= rows or held >= size:
            yield pa.Table.from_batches(gathered)
            gathered, count, held = [], 0, 0
    if count:
        yield pa.Table.from_batches(gathered)
