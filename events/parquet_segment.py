"""A merged or compacted segment: one Parquet file, complete from the moment it exists."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import accumulate, pairwise
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from trunkline.events.layout import NodeKey
from trunkline.events.listing import SegmentFiles
from trunkline.events.projection import Projection
from trunkline.events.schema import DERIVED
from trunkline.events.segment import Damage, Part, Rows
from trunkline.events.times import to_microseconds

_BATCH_ROWS: Final = 16384
#: Bytes in which footers are, mostly.
_END: Final = 65_536


class ParquetSegment:
    """Its name says which rows it has, and its footer where they are. Reading raises FileNotFoundError if it has
    vanished."""

    def __init__(self, filesystem: FileSystem, files: SegmentFiles) -> None:
        assert files.end is not None
        self.files: Final = files
        self.path: Final = files.paths[0]
        self.first: Final = files.first
        self.end: Final = files.end
        self._filesystem = filesystem
        self._footer: pq.FileMetaData | None = None
        self._is_last: bool | None = None

    def mark_stale(self) -> None:
        """Such a file does not change."""

    def forget(self) -> None:
        self._footer = None

    @property
    def newest(self) -> int | None:
        return max(
            (part.max_time for part in self.parts(self.first, self.end) if part.max_time is not None), default=None
        )

    def parts(self, first: int, end: int) -> Iterator[Part]:
        with self._filesystem.open_input_file(self.path) as file:
            footer = self._read_footer(file)
            if isinstance(footer, str):
                yield Part(self.first, self.end, None, None, file.size())
                return
            for group, (low, high) in enumerate(self._groups(footer)):
                if low < end and high > first:
                    times: tuple[int | None, int | None] = _times(footer, group) or (None, None)
                    yield Part(low, high, *times, footer.row_group(group).total_byte_size)

    def read(
        self, key: NodeKey, first: int, end: int, projection: Projection, *, verify: bool
    ) -> Iterator[Rows | Damage]:
        with self._filesystem.open_input_file(self.path) as file:
            footer = self._read_footer(file)
            if isinstance(footer, str):
                yield Damage(first, end, footer, None)
                return
            reader = pq.ParquetFile(file, metadata=footer, page_checksum_verification=verify, pre_buffer=True)
            fit = projection.fit(reader.schema_arrow, self.path)
            for group, (low, high) in enumerate(self._groups(footer)):
                if low >= end or high <= first:
                    continue
                at = low
                try:
                    for batch in reader.iter_batches(_BATCH_ROWS, row_groups=[group], columns=fit.names):
                        begin, at = at, at + batch.num_rows
                        if (skip := max(first - begin, 0)) < batch.num_rows and begin < end:
                            part = batch.slice(skip, min(at, end) - begin - skip)
                            yield Rows(begin + skip, projection.apply(part, fit, key, begin + skip))
                    wrong = f"it has {at - low} rows instead of {high - low}"
                except (pa.ArrowException, OSError) as error:
                    _read_raw(file, footer, group, fit.names)
                    wrong = f"it cannot be decoded: {error}"
                if (behind := max(at, first)) < min(high, end):
                    times = _times(footer, group)
                    yield Damage(behind, min(high, end), wrong, times and times[0])

    def is_readable(self) -> bool:
        """Whether its footer is, and has the rows of its name."""
        with self._filesystem.open_input_file(self.path) as file:
            return not isinstance(self._read_footer(file), str)

    def groups_with(self, kind: str) -> Iterator[tuple[int, int]]:
        """First row and the one behind the last, of the row groups that have a row of the kind."""
        with self._filesystem.open_input_file(self.path) as file:
            footer = self._read_footer(file)
            if isinstance(footer, str):
                return
            reader = pq.ParquetFile(file, metadata=footer, read_dictionary=["kind"], page_checksum_verification=True)
            for group, (low, high) in enumerate(self._groups(footer)):
                try:
                    kinds: Any = reader.read_row_group(group, columns=["kind"]).column(0)
                except (pa.ArrowException, OSError):
                    continue  # reading the rows will report it
                if any(kind in chunk.dictionary.to_pylist() for chunk in kinds.chunks):
                    yield low, high

    @property
    def is_last(self) -> bool:
        """Whether nothing follows, as the exporter says in the last row of an incarnation that ended in order."""
        if self._is_last is None:
            self._is_last = self._ends_with("exporter.stopped")
        return self._is_last

    def _ends_with(self, kind: str) -> bool:
        with self._filesystem.open_input_file(self.path) as file:
            footer = self._read_footer(file)
            if isinstance(footer, str) or not footer.num_row_groups:
                return False
            reader = pq.ParquetFile(file, metadata=footer, page_checksum_verification=True)
            try:
                kinds = reader.read_row_group(footer.num_row_groups - 1, columns=["kind"])
            except (pa.ArrowException, OSError):
                return False  # reading the rows will report it
            return kinds.num_columns == 1 and kinds.column(0)[-1].as_py() == kind

    def misplaced(self, key: NodeKey) -> str | None:
        """What is wrong if the file's own columns say that its rows belong elsewhere. Readers go by its path, and other
        programs by the columns."""
        with self._filesystem.open_input_file(self.path) as file:
            reader = pq.ParquetFile(file)
            names = [name for name in DERIVED if name in reader.schema_arrow.names]
            of_key: dict[str, list[str | int]] = {"node": [key.name], "incarnation": [key.incarnation]}
            at = self.first
            for batch in reader.iter_batches(_BATCH_ROWS, columns=names) if names else ():
                for name in names:
                    column = batch.column(name)
                    if name == "seq" and column.to_pylist() != list(range(at, at + batch.num_rows)):
                        return f"its column seq does not continue from {at}"
                    if name != "seq" and column.unique().to_pylist() != of_key[name]:
                        return f"its column {name} is not {of_key[name][0]} everywhere"
                at += batch.num_rows
        return None

    def _read_footer(self, file: pa.NativeFile) -> pq.FileMetaData | str:
        """The footer, or the error in it."""
        if self._footer is None:
            try:
                footer = pq.ParquetFile(file).metadata
            except (pa.ArrowException, EOFError, OSError, UnicodeDecodeError) as error:
                _read_end(file)
                return f"its footer cannot be read: {error}"
            if footer.num_rows != self.end - self.first:
                return f"it has {footer.num_rows} rows, but its name says {self.end - self.first}"
            self._footer = footer
        return self._footer

    def _groups(self, footer: pq.FileMetaData) -> list[tuple[int, int]]:
        """First row and the one behind the last, of each row group."""
        rows = [footer.row_group(group).num_rows for group in range(footer.num_row_groups)]
        ends = list(accumulate(rows, initial=self.first))
        return list(pairwise(ends))


def _times(footer: pq.FileMetaData, group: int) -> tuple[int, int] | None:
    """Oldest and newest, microseconds since the epoch, if its writer has noted them."""
    for number in range(footer.num_columns):
        column = footer.row_group(group).column(number)
        if column.path_in_schema == "time":
            statistics = column.statistics
            if statistics is None or not statistics.has_min_max:
                return None
            oldest, newest = statistics.min, statistics.max
            if isinstance(oldest, datetime) and isinstance(newest, datetime):
                return to_microseconds(oldest), to_microseconds(newest)
    return None


def _read_end(file: pa.NativeFile) -> None:
    """Raises OSError as `_read_raw` does."""
    file.seek(max(0, file.size() - _END))
    file.read()


def _read_raw(file: pa.NativeFile, footer: pq.FileMetaData, group: int, names: Sequence[str]) -> None:
    """Raises OSError if the bytes cannot be read at all: then the storage fails, and no row is damaged."""
    for number in range(footer.num_columns):
        column = footer.row_group(group).column(number)
        if column.path_in_schema.split(".")[0] in names:
            begin = column.dictionary_page_offset or column.data_page_offset
            file.seek(begin)
            file.read(column.total_compressed_size)
