"""The segment that a writer appends to: its two files, and how far they are whole."""

import contextlib
import os
import zlib
from io import FileIO
from pathlib import Path
from typing import Final, NamedTuple, Self

import pyarrow as pa

from trunkline.events.layout import BEATS, DATA, END_OF_STREAM, INDEX, RECORD_SIZE, SEALED, Header, Record, SegmentName

#: Heartbeats of one index record: those are lost at most if the machine fails while it is overwritten.
_MAX_BEATS: Final = 3600
#: Microseconds by which a heartbeat's time may be another than it was: its row follows from those before it.
_JITTER: Final = 50_000

_flush = getattr(os, "fdatasync", os.fsync)


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


class OpenSegment:
    """The two files of a segment that may grow. What could not be written is cut off before the next is."""

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
    def is_gone(self) -> bool:
        """Whether a file was deleted, or moved with its folder, or its file system was taken away."""
        try:
            for file in (self._data, self._index):
                os.stat(file.name)
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:  # writing will tell
            pass
        return False

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

    def duplicate(self) -> "OpenSegment":
        """The same files, by descriptors of their own."""
        data = FileIO(os.dup(self._data.fileno()), "r+b")
        try:
            index = FileIO(os.dup(self._index.fileno()), "r+b")
        except OSError:
            data.close()
            raise
        return OpenSegment(data, index, self._directory, self._first, self._schema_crc, self._whole)

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


def _write(file: FileIO, data: pa.Buffer | bytes) -> None:
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[file.write(rest) :]
    except OSError as error:
        error.filename = str(file.name)
        raise
