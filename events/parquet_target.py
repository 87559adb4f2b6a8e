"""Compacted segments: Parquet files that exist completely or not at all.

`ROOT/node_key=<key>/date=YYYY-MM-DD/<first>-<end>.parquet` holds rows [first, end) of one node and one day, by UTC. The
names alone say what has been compacted, so there is no other state that could be lost or wrong.
"""

import contextlib
import os
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from trunkline.events.layout import PARQUET, VERSION_KEY, NodeKey, SegmentName
from trunkline.events.listing import SegmentFiles, list_segments
from trunkline.events.schema import SCHEMA, VERSION
from trunkline.events.target import Missing, Piece, Written

#: A row group is what a reader reads at once: so many rows, or so many bytes in memory.
_GROUP_ROWS: Final = 65_536
_GROUP_BYTES: Final = 32 << 20

#: A folder of compacted files; merged ones are beside the segments.
_DATE: Final = "date="
#: How the names of files end that are not complete.
_HALF: Final = f"{PARQUET}.half"

_FILE_SCHEMA: Final = SCHEMA.with_metadata({VERSION_KEY: str(VERSION)})
#: Columns that go up by nearly equal steps: their differences take a few bits a row.
_COUNTING: Final = ("seq", "time")
#: All others, as Parquet calls them.
_OTHERS: Final = [
    *(name for name in SCHEMA.names if name not in (*_COUNTING, "user_properties")),
    *(f"user_properties.list.element.{name}" for name in ("key", "value")),
]
#: The day of rows without a time, which no exporter writes.
_NO_DAY: Final = date(1970, 1, 1)


class ParquetTarget:
    """Files below a directory, or below a path of another file system."""

    def __init__(self, root: str, filesystem: FileSystem, *, bytes_per_file: int = 512 << 20) -> None:
        """A file that has `bytes_per_file` is ended, however few rows it has."""
        self.root: Final = root
        self.filesystem: Final = filesystem
        self._bytes_per_file = bytes_per_file

    def next_seq(self, key: NodeKey) -> int | None:
        """The number behind the last row of a node; None if it has no rows here."""
        return max((end for _, end in self.files(key)), default=None)

    def files(self, key: NodeKey) -> list[tuple[int, int]]:
        """First row and the one behind the last, of each file of a node."""
        listed = list_segments(self.filesystem, self.root, key).get(key, ())
        return [(files.first, files.end) for files in listed if files.end is not None and is_compacted(files)]

    def write(self, key: NodeKey, first: int, end: int, pieces: Iterator[Piece]) -> Written:
        """One file, of rows of one day and without a hole. Holes before it are skipped: no file has their rows, so
        every reader sees that they are missing."""
        at = first
        file: PendingFile | None = None
        day: date | None = None
        try:
            for piece in pieces:
                if isinstance(piece, Missing):
                    if file is not None:
                        break
                    at = piece.first + piece.rows
                    continue
                before = day
                day, count = _first_day(piece, before)
                if file is None:
                    folder = f"{self.root}/{key.compacted_directory}/{_DATE}{day.isoformat()}"
                    file = PendingFile(self.filesystem, folder, at)
                elif day != before:
                    break
                file.add(piece.slice(0, count))
                if count < piece.num_rows or file.size >= self._bytes_per_file:
                    break
            if file is None:
                return Written(at, 0, 0, 0, at - first)
            size = file.commit()
            return Written(file.end, file.end - file.first, 1, size, file.first - first)
        except BaseException:
            if file is not None:
                file.discard()
            raise


def is_compacted(files: SegmentFiles) -> bool:
    """Whether it is a file of this module, and not a segment of the exporter, merged or not."""
    return files.paths[0].rsplit("/", 2)[-2].startswith(_DATE)


def _first_day(batch: pa.RecordBatch, before: date | None) -> tuple[date, int]:
    """The day of the first row, and how many rows in a row have it. A row without time has that of those before."""
    days = batch.column("time").cast(pa.date32())
    found: date | None = days[0].as_py()
    day = found or before or next((one for one in days.to_pylist() if one is not None), _NO_DAY)
    other = pc.index(pc.not_equal(days, pa.scalar(day, pa.date32())), True).as_py()
    return day, batch.num_rows if other < 0 else other


def sweep(folder: Path) -> None:
    """Delete what is left there of files that were never completed, because their writer was killed."""
    for half in folder.glob(f".*{_HALF}"):
        half.unlink(missing_ok=True)


class PendingFile:
    """A file under a temporary name, until it is complete."""

    def __init__(self, filesystem: FileSystem, directory: str, first: int) -> None:
        self.first: Final = first
        self.end = first
        self._filesystem = filesystem
        self._directory = directory
        # the same in the next try, which so takes the place of what this one may leave
        self._half = f"{self._directory}/.{first:020d}{_HALF}"
        self._local = filesystem.type_name == "local"
        if self._local:
            filesystem.create_dir(self._directory, recursive=True)
        self._stream = filesystem.open_output_stream(self._half)
        self._writer = pq.ParquetWriter(
            self._stream,
            _FILE_SCHEMA,
            compression="zstd",
            use_dictionary=_OTHERS,  # type: ignore[arg-type]  # the stubs know only bool
            column_encoding=dict.fromkeys(_COUNTING, "DELTA_BINARY_PACKED"),
            write_page_checksum=True,
            sorting_columns=[pq.SortingColumn(_FILE_SCHEMA.get_field_index("seq"))],
        )
        self._gathered: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0

    @property
    def size(self) -> int:
        """Bytes that were written, without what is gathered."""
        return self._stream.tell()

    def add(self, batch: pa.RecordBatch) -> None:
        self._gathered.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        self.end += batch.num_rows
        if self._rows >= _GROUP_ROWS or self._bytes >= _GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._gathered:
            self._writer.write_table(pa.Table.from_batches(self._gathered), row_group_size=max(_GROUP_ROWS, self._rows))
            self._gathered.clear()
            self._rows = self._bytes = 0

    def commit(self, written: float | None = None) -> int:
        """Give it its name, and the time of the last write if that is not now. Returns its bytes."""
        self._flush()
        self._writer.close()
        size = self._stream.tell()
        self._stream.close()
        path = f"{self._directory}/{SegmentName(self.first, self.end, PARQUET)}"
        if written is not None:
            os.utime(self._half, (written, written))
        if self._local:
            _sync(self._half)
        self._filesystem.move(self._half, path)
        if self._local:
            folder = self._directory
            for _ in range(3):  # the folders of day and node may be new
                _sync(folder)
                folder = os.path.dirname(folder)
        return size

    def discard(self) -> None:
        with contextlib.suppress(OSError, pa.ArrowException):
            self._writer.close()
            self._stream.close()
        with contextlib.suppress(OSError, pa.ArrowException):
            self._filesystem.delete_file(self._half)


def _sync(path: str) -> None:
    with contextlib.suppress(PermissionError):  # Windows cannot open folders
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
