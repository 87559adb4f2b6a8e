"""Logs to test with: what is in row n follows from n."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from trunkline.events.layout import NodeKey, SegmentName
from trunkline.events.reader import EventLog
from trunkline.events.schema import SCHEMA, STORED
from trunkline.events.writer import LogWriter

KEY = NodeKey("n1", 1763739192123)
NODE = str(KEY)
START = 1_763_739_192_500_000


def time(seq: int) -> int:
    """Microseconds since the epoch."""
    return START + 1000 * seq


def values(seq: int) -> dict[str, Any]:
    return {
        "time": time(seq),
        "kind": "message.delivered" if seq % 3 else "client.connected",
        "weight": 1,
        "client_id": f"device-{seq % 17}",
        "topic": f"plant/{seq}/temperature" if seq % 3 else None,
        "size": seq,
        "guid": seq.to_bytes(16) if seq % 3 else None,
        "value": seq / 2,
        "payload": b"\0" * (seq % 40),
        "user_properties": [{"key": "seq", "value": str(seq)}] if seq % 5 == 0 else None,
    }


def batch(first: int, end: int, schema: pa.Schema = STORED) -> pa.RecordBatch:
    rows = [values(seq) for seq in range(first, end)]
    return pa.record_batch(
        [pa.array([row.get(name) for row in rows], schema.field(name).type) for name in schema.names], schema=schema
    )


def expected(first: int, end: int, key: NodeKey = KEY, columns: Sequence[str] | None = None) -> pa.Table:
    """What a reader must give."""
    rows = batch(first, end)
    derived = {
        "node": [key.name] * (end - first),
        "incarnation": [key.incarnation] * (end - first),
        "seq": range(first, end),
    }
    names = SCHEMA.names if columns is None else list(columns)
    schema = pa.schema([SCHEMA.field(name) for name in names])
    return pa.table(
        [pa.array(derived[name], SCHEMA.field(name).type) if name in derived else rows.column(name) for name in names],
        schema=schema,
    )


#: Writers that a test has left open, as if they were killed: `close_logs` takes their files back.
_OPEN: list[LogWriter] = []


def opened(writer: LogWriter) -> LogWriter:
    _OPEN.append(writer)
    return writer


def close_logs() -> None:
    while _OPEN:
        with contextlib.suppress(OSError):
            _OPEN.pop().close()


def append(writer: LogWriter, rows: int) -> None:
    first = writer.next_seq
    writer.append(batch(first, first + rows, writer.schema), time(first), time(first + rows - 1))


def write(root: Path, sizes: Iterable[int], key: NodeKey = KEY, **options: Any) -> LogWriter:
    """A log with batches of these sizes, still open."""
    writer = opened(LogWriter(root, key.name, key.incarnation, **options))
    for rows in sizes:
        append(writer, rows)
    return writer


def write_parquet(root: Path, first: int, end: int, key: NodeKey = KEY, rows: int = 100, folder: str = "") -> Path:
    """A compacted segment, with this many rows a row group."""
    directory = root / key.directory / folder
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / str(SegmentName(first, end, ".parquet"))
    pq.write_table(expected(first, end, key), path, row_group_size=rows, write_page_checksum=True)
    return path


def table(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches)


def read(log: EventLog | Path, first: int, end: int, key: NodeKey = KEY, **options: Any) -> pa.Table:
    log = EventLog(log) if isinstance(log, Path) else log
    return table(log.read(str(key), first, end, **options))


def cuts(sizes: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The ranges of rows of batches of these sizes."""
    return pairwise(accumulate(sizes, initial=0))


def flip(path: Path, at: int, bit: int = 0x10) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= bit
    path.write_bytes(data)


def only(root: Path, suffix: str, key: NodeKey = KEY) -> Path:
    """The one file of that kind."""
    [path] = (root / key.directory).rglob(f"*{suffix}")
    return path


def event(kind: str, at: int, value: float | None = None) -> pa.RecordBatch:
    """A row; `at` is microseconds since the epoch."""
    row = {"time": at, "kind": kind, "weight": 1, "value": value}
    return pa.record_batch([pa.array([row.get(field.name)], field.type) for field in STORED], schema=STORED)


def corrected(root: Path, corrections: Sequence[float], before: Sequence[int]) -> LogWriter:
    """A log in which each correction of the clock begins a segment, after so many rows, one a second."""
    writer = opened(LogWriter(root, KEY.name, KEY.incarnation))
    at = time(0)
    for seconds, rows in zip(corrections, before, strict=True):
        for _ in range(rows):
            writer.append(event("node.tick", at), at, at)
            at += 1_000_000
        writer.roll()
        at += int(seconds * 1_000_000)
        writer.append(event("node.clock", at, seconds), at, at)
    return writer
