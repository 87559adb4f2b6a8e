"""A segment, finished or still being written: an Arrow stream and its index."""

import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa
from pyarrow.fs import FileSystem

from trunkline.events.index import Index
from trunkline.events.layout import BEATS, DATA, END_OF_STREAM, LogError, NodeKey, Record
from trunkline.events.listing import SegmentFiles
from trunkline.events.projection import Fit, Projection
from trunkline.events.schema import STORED
from trunkline.events.segment import Damage, Part, Rows

_new_array: Final[Any] = pa.array  # whose stubs know each type but not all of them

#: Bytes that are read at once, unless a single batch is longer.
_CHUNK: Final = 4 << 20


class ArrowSegment:
    """Its files may grow while it is read, and vanish: reading raises FileNotFoundError then."""

    def __init__(self, filesystem: FileSystem, files: SegmentFiles) -> None:
        self.files: Final = files
        self.first: Final = files.first
        self._filesystem = filesystem
        self._index_path, self.path = files.paths
        self._index = Index(files.first)
        #: The index may have grown since it was read.
        self._stale = True

    def mark_stale(self) -> None:
        self._stale = not self._index.sealed

    def forget(self) -> None:
        """Drop the index, which is read again when it is needed."""
        self._index = Index(self.first)
        self._stale = True

    @property
    def index(self) -> Index:
        """Raises LogError if a later version wrote it, and FileNotFoundError if it vanished before it was read."""
        if self._stale:
            try:
                with self._filesystem.open_input_file(self._index_path) as file:
                    file.seek(self._index.position)
                    self._index.feed(file.read())
            except FileNotFoundError:
                if not self._index.batches:
                    raise  # it is not without rows: they may be elsewhere now
            except LogError as error:
                raise LogError(f"{self._index_path}: {error}") from None
            self._stale = False
        return self._index

    @property
    def end(self) -> int:
        return self.index.end

    @property
    def newest(self) -> int | None:
        return self.index.newest

    def parts(self, first: int, end: int) -> Iterator[Part]:
        """The batches that have rows in [first, end)."""
        for batch in self.index.within(first, end):
            yield Part(batch.first, batch.end, batch.min_time, batch.max_time, batch.size)

    def read(
        self, key: NodeKey, first: int, end: int, projection: Projection, *, verify: bool
    ) -> Iterator[Rows | Damage]:
        """All rows of [first, end), which must be in the segment, in order."""
        index = self.index
        batches = index.within(first, end)
        with self._filesystem.open_input_file(self.path) as file:
            head = head_of(file, index, verify)
            for piece in self._pieces(file, head, batches, key, projection, verify):
                low, high = max(first, piece.first), min(end, piece.end)
                if isinstance(piece, Damage):
                    yield piece._replace(first=low, end=high)
                else:
                    yield Rows(low, piece.batch.slice(low - piece.first, high - low))

    def unindexed(self) -> int:
        """How many rows the data file has behind the last record of the index, although that is damaged or cut. A
        single batch is being written, or was when its writer was killed, unless the stream ends behind it."""
        index = self.index
        if index.sealed:
            return 0
        with self._filesystem.open_input_file(self.path) as file:
            head = head_of(file, index, verify=False)
            if head is None:
                return 0
            file.seek(max(index.behind, len(head)))
            rows = list(_rows_behind(file, pa.ipc.read_schema(pa.py_buffer(head))))
            is_ended = _ended(file)
        end = index.end
        self.mark_stale()
        is_written = self.index.end > end or self.index.sealed
        return sum(rows) if not is_written and (len(rows) > 1 or is_ended) else 0

    def _pieces(
        self,
        file: pa.NativeFile,
        head: bytes | None,
        batches: Sequence[Record],
        key: NodeKey,
        projection: Projection,
        verify: bool,
    ) -> Iterator[Rows | Damage]:
        if head is None:
            for batch in batches:
                yield _damage(batch, "the segment's schema is damaged")
            return
        fit = projection.fit(pa.ipc.read_schema(pa.py_buffer(head)), self.path)
        for run in _runs(batches):
            if isinstance(run, Damage):
                yield run
                continue
            whole: list[pa.RecordBatch] = []
            first = run[0].first
            for batch, decoded in _decode(file, head, run, fit, verify):
                if not isinstance(decoded, str):
                    whole.append(decoded)
                    continue
                if whole:
                    yield Rows(first, projection.apply(_together(whole), fit, key, first))
                yield _damage(batch, decoded)
                whole, first = [], batch.end
            if whole:
                yield Rows(first, projection.apply(_together(whole), fit, key, first))


def _rows_behind(file: pa.NativeFile, schema: pa.Schema) -> Iterator[int]:
    with suppress(pa.ArrowException, EOFError, OSError):
        while True:
            yield pa.ipc.read_record_batch(pa.ipc.read_message(file), schema).num_rows


def _ended(file: pa.NativeFile) -> bool:
    file.seek(max(0, file.size() - len(END_OF_STREAM)))
    return file.read() == END_OF_STREAM


def rows_of_half(filesystem: FileSystem, files: SegmentFiles) -> int:
    """The rows of a data file whose index is gone, or of an index whose data file is gone."""
    [path] = files.paths
    try:
        with filesystem.open_input_file(path) as file:
            if path.endswith(DATA):
                return sum(_rows_behind(file, pa.ipc.read_schema(pa.ipc.read_message(file))))
            index = Index(files.first)
            index.feed(file.read())
            return index.end - index.first
    except (LogError, pa.ArrowException, EOFError, FileNotFoundError):
        return 0


def head_of(file: pa.NativeFile, index: Index, verify: bool) -> bytes | None:
    """The Arrow schema as it is in the file. None if it is damaged."""
    header = index.header
    if header is None:  # the stream itself says where its schema ends
        try:
            pa.ipc.read_message(file)
        except (pa.ArrowException, EOFError, OSError):
            return None
        length = file.tell()
    else:
        length = header.offset
    file.seek(0)
    head = file.read(length)
    if verify and zlib.crc32(head) != index.schema_crc:
        return None
    try:
        pa.ipc.read_schema(pa.py_buffer(head))
    except (pa.ArrowException, EOFError, OSError):
        return None
    return head


def _runs(batches: Sequence[Record]) -> Iterator[list[Record] | Damage]:
    """Batches that are read at once."""
    run: list[Record] = []
    size = 0
    for batch in batches:
        is_lost = not (batch.size or batch.flags & BEATS)
        if run and (is_lost or size + batch.size > _CHUNK):
            yield run
            run, size = [], 0
        if is_lost:
            yield _damage(batch, "its index record is damaged")
        else:
            run.append(batch)
            size += batch.size
    if run:
        yield run


def _decode(
    file: pa.NativeFile, head: bytes, run: Sequence[Record], fit: Fit, verify: bool
) -> Iterator[tuple[Record, pa.RecordBatch | str]]:
    """Each batch, or the error in it."""
    begin = run[0].offset
    # the schema goes before the batches once more, so that they are a stream
    data = memoryview(bytearray(len(head) + run[-1].offset + run[-1].size - begin))
    data[: len(head)] = head
    file.seek(begin)
    read = file.readinto(data[len(head) :])
    stream: pa.RecordBatchStreamReader | None = None
    for batch in run:
        if batch.flags & BEATS:
            yield batch, _beats(batch, fit)
            continue
        start = batch.offset - begin
        end = start + batch.size
        body = data[len(head) + start : len(head) + end]
        if end > read:
            wrong = "the file ends before it does"
        elif verify and zlib.crc32(body) != batch.crc:
            wrong = "its checksum is wrong"
        else:
            try:
                stream = stream or _open(head, data, start, fit)
                decoded = stream.read_next_batch()
                if not verify:
                    decoded.validate()
                if decoded.num_rows == batch.end - batch.first:
                    yield batch, decoded
                    continue
                wrong = f"it has {decoded.num_rows} rows instead of {batch.end - batch.first}"
            except (pa.ArrowException, StopIteration, OSError) as error:
                wrong = f"it cannot be decoded: {error}"
        stream = None
        yield batch, wrong


def _beats(record: Record, fit: Fit) -> pa.RecordBatch:
    """The rows that the record stands for."""
    rows, length = record.rows, record.max_time - record.min_time
    values = {
        "time": [record.min_time + length * row // max(1, rows - 1) for row in range(rows)],
        "kind": ["node.tick"] * rows,
        "weight": [1] * rows,
    }
    columns = [_new_array(values.get(name, [None] * rows), STORED.field(name).type) for name in fit.names]
    return pa.RecordBatch.from_arrays(columns, names=fit.names)


def _together(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def _open(head: bytes, data: memoryview, start: int, fit: Fit) -> pa.RecordBatchStreamReader:
    if start:
        data = memoryview(b"".join((head, data[len(head) + start :])))
    return pa.ipc.open_stream(pa.py_buffer(data), options=pa.ipc.IpcReadOptions(included_fields=fit.places))


def _damage(batch: Record, reason: str) -> Damage:
    return Damage(batch.first, batch.end, reason, batch.min_time)
