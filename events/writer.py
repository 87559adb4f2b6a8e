"""Appends batches of rows to the log, so that a reader never sees half of one.

A batch goes to the data file first and gets its index record when it is whole there. A batch that could not be written
is truncated again, and its row numbers go to the next append. A writer begins a directory of its own and never goes on
with a file that another has left behind.
"""

import contextlib
import os
import threading
import zlib
from io import FileIO
from pathlib import Path
from typing import Final, Literal, NamedTuple, Self

import pyarrow as pa

from trunkline.events.layout import (
    BEATS,
    DATA,
    END_OF_STREAM,
    INDEX,
    LAST,
    RECORD_SIZE,
    SEALED,
    VERSION_KEY,
    Header,
    LogError,
    NodeKey,
    Record,
    SegmentName,
)
from trunkline.events.schema import STORED, VERSION

#: Finished segments that wait for `sync`; further ones are left to the operating system.
_UNSYNCED: Final = 4
#: Heartbeats of one index record: those are lost at most if the machine fails while it is overwritten.
_MAX_BEATS: Final = 3600
#: Microseconds by which a heartbeat's time may be another than it was: its row follows from those before it.
_JITTER: Final = 50_000
#: Batches with fewer rows are not compressed, which takes ten times as long as the rest of writing one. Those of a
#: quiet node are merged later.
_SHORT: Final = 128
#: Bytes of `roll_bytes` for which a segment that is not small has a row.
_SMALL: Final = 1024

_flush = getattr(os, "fdatasync", os.fsync)


class LogWriter:
    """Writes one incarnation of one node.

    All but `sync` belongs to one thread.

    Args:
        incarnation: milliseconds since the epoch. `key` has a later one if the directory holds such a one already, by a
            clock that was set back: the newest incarnation must be the one that is written.
        schema: the columns of the batches, some of `STORED`.
        roll_bytes: no segment gets longer, unless a single batch is.
        roll_age: seconds between the first and the last event of a segment, by the events' own times.
        roll_age_small: the same for one with few rows: fewer than one for each KiB of `roll_bytes`.

    Raises OSError if the directory cannot be made, and LogError for a name or a schema that cannot be.
    """

    def __init__(
        self,
        root: str | Path,
        node: str,
        incarnation: int,
        schema: pa.Schema = STORED,
        *,
        roll_bytes: int = 64 << 20,
        roll_age: float = 3600,
        roll_age_small: float = 6 * 3600,
        compression: Literal["none", "lz4", "zstd"] = "none",
    ) -> None:
        for field in schema:
            if field.name not in STORED.names or STORED.field(field.name).type != field.type:
                raise LogError(f"{field} is not a column of the event log")
        self.schema: Final = schema.with_metadata({VERSION_KEY: str(VERSION)})
        self._roll_bytes = roll_bytes
        self._roll_age = int(roll_age * 1_000_000)
        self._roll_age_small = max(self._roll_age, int(roll_age_small * 1_000_000))
        self._compression: Final = None if compression == "none" else compression
        self._head = self.schema.serialize().to_pybytes()
        self._segment: _Segment | None = None
        #: Segments begun so far.
        self.segments = 0
        #: Number of the next row if there is no segment.
        self._begins_at = 0
        self._closed = False
        #: Held for moments: `sync` flushes copies of the descriptors, so that appends go on meanwhile.
        self._lock = threading.Lock()
        self._unsynced: list[_Segment] = []
        #: Rows were appended that are not synced; heartbeats do not count.
        self._is_dirty = False
        self.key: Final = _new_key(Path(root), NodeKey(node, incarnation))
        self.directory: Final = Path(root) / self.key.directory

    @property
    def next_seq(self) -> int:
        """Number of the next row."""
        return self._begins_at if self._segment is None else self._segment.end

    def append(self, batch: pa.RecordBatch, min_time: int, max_time: int) -> None:
        """Numbers the batch's rows from `next_seq` on and writes them.

        The times are those of its oldest and newest row, in microseconds since the epoch.

        Raises OSError if there is no room or the disk fails: none of the batch is in the log then, and the same batch
        may be tried again. ValueError if the writer is closed or the batch has other columns than the writer.
        """
        self._check_open()
        if not batch.schema.equals(self.schema):
            raise ValueError(f"the batch has other columns than the log of {self.key}: {batch.schema.names}")
        if not batch.num_rows:
            return
        sink = pa.BufferOutputStream()
        compression = None if batch.num_rows < _SHORT else self._compression
        options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
        with pa.ipc.new_stream(sink, self.schema, options=options) as stream:
            stream.write_batch(batch)
        whole = sink.getvalue()
        # one stream a batch, of which the middle is kept: that is how pyarrow compresses a single batch
        data = whole.slice(len(self._head), whole.size - len(self._head) - len(END_OF_STREAM))
        self._room_for(data.size, min_time, max_time).append(data, batch.num_rows, min_time, max_time)
        self._is_dirty = True

    def beat(self, time: int, interval: int) -> None:
        """Numbers a row `node.tick` of this time, for which there is no batch: heartbeats that follow each other after
        `interval` share an index record, and get times at exactly this distance. Both are in microseconds.

        Raises OSError and ValueError as `append` does.
        """
        self._check_open()
        self._room_for(0, time, time).beat(time, interval)

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(f"the log of {self.key} is closed")

    def _room_for(self, size: int, min_time: int, max_time: int) -> "_Segment":
        """The segment that takes so many bytes more."""
        segment = self._segment
        if segment is not None and segment.is_deleted:  # rows written to it would be lost
            self._retire(segment)
        elif segment is not None and segment.rows and self._is_full(segment, size, max_time):
            self.roll()
        return self._segment or self._begin(min_time)

    def roll(self) -> None:
        """Ends the segment, so that others may ship it; the next append begins another.

        Raises OSError if that cannot be written; the segment goes on then.
        """
        if self._segment is not None and self._segment.rows:
            self._segment.seal(0)
            self._retire(self._segment)

    def sync(self) -> None:
        """Waits until all that was appended before is on the disk. May run in another thread while appends go on.

        Raises OSError: rows appended since the last sync may get lost if the machine fails.
        """
        with self._lock:
            over, self._unsynced = self._unsynced, []
            live = self._segment and self._is_dirty and self._segment.duplicate() or None
            self._is_dirty = False
        failures: list[OSError] = []
        for segment in (*over, live):
            if segment is not None:
                with contextlib.closing(segment):
                    try:
                        segment.sync()
                    except OSError as error:
                        failures.append(error)
        if failures:
            raise failures[0]

    def close(self) -> None:
        """Ends the segment and says that none follows.

        Raises OSError if that cannot be written; the writer is closed all the same, and no row is lost by it.
        """
        if self._closed:
            return
        self._closed = True
        try:
            if self._segment is not None:
                self._segment.seal(LAST)
        finally:
            if self._segment is not None:
                self._retire(self._segment)
            self.sync()

    def _is_full(self, segment: "_Segment", more: int, max_time: int) -> bool:
        age = max_time - segment.born
        small = segment.rows < self._roll_bytes // _SMALL
        return segment.size + more > self._roll_bytes or age >= (self._roll_age_small if small else self._roll_age)

    def _begin(self, min_time: int) -> "_Segment":
        self.directory.mkdir(parents=True, exist_ok=True)  # it may have been deleted
        segment = _Segment.create(self.directory, self.next_seq, self._head, min_time)
        with self._lock:
            self._segment = segment
        self.segments += 1
        return segment

    def _retire(self, segment: "_Segment") -> None:
        with self._lock:
            self._begins_at = segment.end
            self._segment = None
            self._unsynced.append(segment)
            left = self._unsynced.pop(0) if len(self._unsynced) > _UNSYNCED else None
        if left is not None:
            left.close()


class _Whole(NamedTuple):
    """How far a segment's files are whole."""

    #: Bytes of each.
    data_size: int
    index_size: int
    #: The number of the next row.
    end: int
    #: Microseconds since the epoch, of all rows.
    min_time: int
    max_time: int
    #: The last record, if it is one of heartbeats.
    beats: Record | None = None


class _Segment:
    """The two files of a segment."""

    def __init__(
        self, data: FileIO, index: FileIO, directory: Path, first: int, schema_crc: int, whole: _Whole
    ) -> None:
        self._data = data
        self._index = index
        self._directory = directory
        self._first = first
        self._schema_crc = schema_crc
        #: Replaced atomically, because Ctrl-C may come anywhere.
        self._whole = whole
        #: The files may be longer than their complete part.
        self._torn = False
        #: Time of the first row, microseconds since the epoch.
        self.born = whole.min_time

    @classmethod
    def create(cls, directory: Path, first: int, head: bytes, born: int) -> Self:
        schema_crc = zlib.crc32(head)
        paths = [directory / str(SegmentName(first, None, suffix)) for suffix in (DATA, INDEX)]
        made: list[FileIO] = []
        try:
            for path in paths:
                made.append(FileIO(path, "wb"))  # the rest of a failed attempt
            _write(made[0], head)
            _write(made[1], Header(first, len(head), schema_crc).pack())
        except OSError:
            for path, file in zip(paths, made, strict=False):
                with contextlib.suppress(OSError):
                    file.close()
                with contextlib.suppress(OSError):
                    path.unlink()
            raise
        return cls(made[0], made[1], directory, first, schema_crc, _Whole(len(head), RECORD_SIZE, first, born, born))

    @property
    def rows(self) -> int:
        return self._whole.end - self._first

    @property
    def end(self) -> int:
        return self._whole.end

    @property
    def size(self) -> int:
        return self._whole.data_size

    @property
    def is_deleted(self) -> bool:
        """Whether a file was deleted. Some file systems do not count links, so its name is checked as well."""
        return any(
            not os.fstat(file.fileno()).st_nlink and not os.path.exists(file.name) for file in (self._data, self._index)
        )

    def append(self, data: pa.Buffer, rows: int, min_time: int, max_time: int) -> None:
        whole = self._whole
        record = Record(whole.data_size, data.size, whole.end, rows, zlib.crc32(data), min_time, max_time)
        self._extend(data, record, min(whole.min_time, min_time), max(whole.max_time, max_time))

    def beat(self, time: int, interval: int) -> None:
        whole, beats = self._whole, self._whole.beats
        if not (beats and beats.rows < _MAX_BEATS and _follows(beats, time, interval)):
            low, high = min(whole.min_time, time), max(whole.max_time, time)
            self._extend(b"", Record(whole.data_size, 0, whole.end, 1, 0, time, time, BEATS), low, high)
            return
        # not `time`: the rows that readers have already would move
        record = beats._replace(rows=beats.rows + 1, max_time=beats.max_time + interval)
        if self._torn:
            self._cut_back()
        self._torn = True
        try:
            self._index.seek(whole.index_size - RECORD_SIZE)
            _write(self._index, record.pack())
        except OSError:
            with contextlib.suppress(OSError):
                self._cut_back()
            raise
        self._whole = whole._replace(end=record.end, max_time=max(whole.max_time, record.max_time), beats=record)
        self._torn = False

    def seal(self, flags: int) -> None:
        whole = self._whole
        size = len(END_OF_STREAM)
        times = whole.min_time, whole.max_time
        record = Record(whole.data_size, size, whole.end, 0, self._schema_crc, *times, SEALED | flags)
        self._extend(END_OF_STREAM, record, whole.min_time, whole.max_time)

    def _extend(self, data: pa.Buffer | bytes, record: Record, min_time: int, max_time: int) -> None:
        packed = record.pack()
        if self._torn:
            self._cut_back()
        # until both are written, the ends of the files are not valid
        self._torn = True
        try:
            _write(self._data, data)
            _write(self._index, packed)
        except OSError:
            with contextlib.suppress(OSError):
                self._cut_back()
            raise
        self._whole = _Whole(
            record.offset + record.size,
            self._whole.index_size + RECORD_SIZE,
            record.end,
            min_time,
            max_time,
            record if record.flags & BEATS else None,
        )
        self._torn = False

    def _cut_back(self) -> None:
        # the index first: no record may outlive its rows
        for file, size in ((self._index, self._whole.index_size), (self._data, self._whole.data_size)):
            file.truncate(size)
            file.seek(size)
        if self._whole.beats is not None:  # it may be half overwritten
            self._index.seek(self._whole.index_size - RECORD_SIZE)
            _write(self._index, self._whole.beats.pack())
        self._torn = False

    def duplicate(self) -> "_Segment":
        """The same files, by descriptors of their own."""
        data = FileIO(os.dup(self._data.fileno()), "r+b")
        try:
            index = FileIO(os.dup(self._index.fileno()), "r+b")
        except OSError:
            data.close()
            raise
        return _Segment(data, index, self._directory, self._first, self._schema_crc, self._whole)

    def sync(self) -> None:
        _flush(self._data.fileno())
        _flush(self._index.fileno())
        with contextlib.suppress(PermissionError, FileNotFoundError):  # Windows cannot; or it is deleted already
            directory = os.open(self._directory, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)

    def close(self) -> None:
        for file in (self._data, self._index):
            with contextlib.suppress(OSError):
                file.close()


def _follows(beats: Record, time: int, interval: int) -> bool:
    """Whether a heartbeat of this time comes where the next one of the record is due."""
    is_even = beats.max_time - beats.min_time == (beats.rows - 1) * interval
    return is_even and abs(time - beats.max_time - interval) <= min(_JITTER, interval // 10)


def _new_key(root: Path, key: NodeKey) -> NodeKey:
    """Makes the directory."""
    root.mkdir(parents=True, exist_ok=True)
    while True:
        others = [
            other for name in os.listdir(root) if (other := NodeKey.of_directory(name)) and other.name == key.name
        ]
        if others and (newest := max(others)) >= key:
            key = newest._replace(incarnation=newest.incarnation + 1)
        with contextlib.suppress(FileExistsError):  # another process was faster
            (root / key.directory).mkdir()
            return key


def _write(file: FileIO, data: pa.Buffer | bytes) -> None:
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[file.write(rest) :]
    except OSError as error:
        error.filename = str(file.name)
        raise
