"""Appends batches of rows to the log, so that a reader never sees half of one.

A batch goes to the data file first and gets its index record when it is whole there. A batch that could not be written
is truncated again, and its row numbers go to the next append. A writer begins a directory of its own and never goes on
with a file that another has left behind.
"""

import contextlib
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

import pyarrow as pa

from trunkline.events.layout import END_OF_STREAM, LAST, VERSION_KEY, LogError, NodeKey
from trunkline.events.open_segment import OpenSegment
from trunkline.events.schema import STORED, VERSION

#: Finished segments that wait for `sync`; further ones are left to the operating system.
_UNSYNCED: Final = 4
#: Batches with fewer rows are not compressed, which takes ten times as long as the rest of writing one. Those of a
#: quiet node are merged later.
_SHORT: Final = 128
#: Bytes of `roll_bytes` for which a segment that is not small has a row.
_SMALL: Final = 1024
#: Errors that another file would have, too.
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


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
        self._segment: OpenSegment | None = None
        #: Segments begun so far.
        self.segments = 0
        #: Number of the next row if there is no segment.
        self._begins_at = 0
        self._closed = False
        #: Held for moments: `sync` flushes copies of the descriptors, so that appends go on meanwhile.
        self._lock = threading.Lock()
        self._unsynced: list[OpenSegment] = []
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

        A segment whose files take no more, for another reason than a full disk, is given up for the next one.

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
        rows = batch.num_rows
        self._put(data.size, min_time, max_time, lambda segment: segment.append(data, rows, min_time, max_time))
        self._is_dirty = True

    def beat(self, time: int, interval: int) -> None:
        """Numbers a row `node.tick` of this time, for which there is no batch: heartbeats that follow each other after
        `interval` share an index record, and get times at exactly this distance. Both are in microseconds.

        Raises OSError and ValueError as `append` does.
        """
        self._check_open()
        self._put(0, time, time, lambda segment: segment.beat(time, interval))

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(f"the log of {self.key} is closed")

    def _put(self, size: int, min_time: int, max_time: int, write: Callable[[OpenSegment], None]) -> None:
        segment = self._room_for(size, min_time, max_time)
        try:
            write(segment)
        except OSError as error:
            if error.errno in _FULL:
                raise
            self._give_up(segment)
            if not segment.rows:  # the next file would be no other than this one
                raise
            write(self._begin(min_time))

    def _room_for(self, size: int, min_time: int, max_time: int) -> OpenSegment:
        """The segment that takes so many bytes more."""
        segment = self._segment
        if segment is not None and segment.is_gone:  # nobody would find rows that are written to it
            self._retire(segment)
        elif segment is not None and segment.rows and self._is_full(segment, size, max_time):
            self.roll()
        return self._segment or self._begin(min_time)

    def roll(self) -> None:
        """Ends the segment, so that others may ship it; the next append begins another.

        Raises OSError if the disk is full; the segment goes on then.
        """
        if self._segment is not None and self._segment.rows:
            try:
                self._segment.seal(0)
            except OSError as error:
                if error.errno in _FULL:
                    raise
            self._retire(self._segment)

    def sync(self) -> None:
        """Waits until all that was appended before is on the disk. May run in another thread while appends go on.

        Raises OSError: rows appended since the last sync may get lost if the machine fails.
        """
        with self._lock:
            # first of all: it fails where a process may open no more files, and the others wait for the next try then
            live = self._segment.duplicate() if self._segment and self._is_dirty else None
            over, self._unsynced = self._unsynced, []
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

    def _is_full(self, segment: OpenSegment, more: int, max_time: int) -> bool:
        age = max_time - segment.born
        small = segment.rows < self._roll_bytes // _SMALL
        return segment.size + more > self._roll_bytes or age >= (self._roll_age_small if small else self._roll_age)

    def _begin(self, min_time: int) -> OpenSegment:
        self.directory.mkdir(parents=True, exist_ok=True)  # it may have been deleted
        segment = OpenSegment.create(self.directory, self.next_seq, self._head, min_time)
        with self._lock:
            self._segment = segment
        self.segments += 1
        return segment

    def _give_up(self, segment: OpenSegment) -> None:
        with contextlib.suppress(OSError):  # its rows can be read without
            segment.seal(0)
        self._retire(segment)

    def _retire(self, segment: OpenSegment) -> None:
        with self._lock:
            self._begins_at = segment.end
            self._segment = None
            self._unsynced.append(segment)
            left = self._unsynced.pop(0) if len(self._unsynced) > _UNSYNCED else None
        if left is not None:
            left.close()


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
