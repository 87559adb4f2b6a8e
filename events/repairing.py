"""Makes an index again from the rows of its segment, where it is gone or ends before them.

The number of a row is in the index alone, and so are heartbeats. A number that somebody has read must stay the row's.
So rows get numbers where only one way is possible: they fill all numbers up to the next segment; or none follows, and
no consumer has come further than the index.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.fs import LocalFileSystem

from trunkline.events.arrow_segment import ArrowSegment, head_of, rows_of_half
from trunkline.events.file_lock import locked
from trunkline.events.index import Index
from trunkline.events.layout import (
    BEATS,
    DATA,
    END_OF_STREAM,
    INDEX,
    LAST,
    SEALED,
    Header,
    LogError,
    NodeKey,
    Record,
)
from trunkline.events.listing import SegmentFiles, covers, list_segments
from trunkline.events.positions import Positions, consumers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Repaired(NamedTuple):
    #: The data file.
    path: str
    #: Rows that no reader found.
    rows: int
    #: Why they cannot be numbered; empty if they are read again.
    problem: str


def repair(root: Path) -> Iterator[Repaired]:
    """All segments of a log whose rows no index leads to. A repair that is killed has changed nothing of the segment at
    which it was, and may be run again.

    Raises:
        LogError: a broker writes there.
        OSError: files cannot be read or written.
    """
    listed = list_segments(LocalFileSystem(), str(root))
    for name in sorted({key.name for key in listed}):
        try:
            lock = locked(root / f".{NodeKey(name, 0).encoded}.lock")
        except BlockingIOError:
            raise LogError(f"a broker records as node {name!r} in {root}: stop it first") from None
        with lock:
            for key in sorted(key for key in listed if key.name == name):
                yield from _of_node(root, key)


def _of_node(root: Path, key: NodeKey) -> Iterator[Repaired]:
    listed = list_segments(LocalFileSystem(), str(root), key).get(key, [])
    moved = [(files.first, files.end) for files in listed if files.end is not None]
    read = max((Positions(root, name).read().get(str(key), 0) for name in consumers(root)), default=0)
    for files in listed:
        if files.end is not None or not files.paths[-1].endswith(DATA):
            continue
        behind = ArrowSegment(LocalFileSystem(), files).unindexed() if files.is_whole else _alone(files)
        if not behind or covers(moved, files.first, files.first + behind):
            continue
        following = min((other.first for other in listed if other.first > files.first), default=None)
        yield _repaired(Path(files.paths[-1]), files.first, following, read)


def _alone(files: SegmentFiles) -> int:
    return rows_of_half(LocalFileSystem(), files)


def _repaired(data: Path, first: int, following: int | None, read: int) -> Repaired:
    """`following` is the first row of the next segment, `read` is how far consumers have come."""
    path = data.with_suffix(INDEX)
    index = Index(first)
    index.feed(path.read_bytes() if path.exists() else b"")
    with LocalFileSystem().open_input_file(str(data)) as file:
        head = head_of(file, index, verify=False)
        if head is None:
            return Repaired(str(data), 0, "its schema is damaged")
        file.seek(max(index.behind, len(head)))
        found, last_kind = _batches(file, pa.ipc.read_schema(pa.py_buffer(head)), index.end)
        end = file.tell()
        is_ended = file.read(len(END_OF_STREAM)) == END_OF_STREAM
    rows = sum(each.rows for each in found)
    if following is not None and index.end + rows != following:
        lacking = following - index.end - rows
        why = f"heartbeats were among them ({lacking})" if lacking > 0 else "the next segment begins before their end"
        return Repaired(str(data), rows, f"their numbers are not known: {why}")
    if following is None and read > index.end:
        return Repaired(str(data), rows, f"a consumer has read up to row {read - 1}, with numbers that are not known")
    kept = [each for each in index.batches if each.size or each.flags & BEATS]
    records = [*kept, *found]
    if is_ended:
        ends = LAST if following is None and last_kind == "exporter.stopped" else 0
        times = min(each.min_time for each in records), max(each.max_time for each in records)
        size = len(END_OF_STREAM)
        records.append(Record(end, size, index.end + rows, 0, zlib.crc32(head), *times, SEALED | ends))
    _write(path, [Header(first, len(head), zlib.crc32(head)).pack(), *(each.pack() for each in records)])
    return Repaired(str(data), rows, "")


def _batches(file: pa.NativeFile, schema: pa.Schema, first: int) -> tuple[list[Record], str]:
    """The whole batches from where the file is on, to whose end it goes, and the kind of the last row."""
    found: list[Record] = []
    kind = ""
    at, newest = file.tell(), 0
    while True:
        try:
            batch = pa.ipc.read_record_batch(pa.ipc.read_message(file), schema)
        except (pa.ArrowException, EOFError, OSError):
            file.seek(at)
            return found, kind
        end = file.tell()
        file.seek(at)
        crc = zlib.crc32(file.read(end - at))
        times = batch.column("time").cast(pa.int64())
        low, newest = pc.min(times).as_py() or newest, pc.max(times).as_py() or newest
        found.append(Record(at, end - at, first, batch.num_rows, crc, low, newest))
        kind = batch.column("kind")[-1].as_py()
        first, at = first + batch.num_rows, end


def _write(path: Path, parts: Sequence[bytes]) -> None:
    """As a whole or not at all."""
    half = path.with_name(f".{path.name}.half")
    with half.open("wb") as file:
        file.write(b"".join(parts))
        file.flush()
        os.fsync(file.fileno())
    half.replace(path)
