"""Merges the batches of finished segments where they are small: a quiet broker writes one for every few rows, each of
which takes kilobytes.

The rows of a segment become one Parquet file, by the same numbers, and the segment is deleted when the file is there.
Who is killed in between leaves both, or half a file; the next run clears that up.
"""

import errno
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyarrow.fs import LocalFileSystem

from trunkline.events.arrow_segment import ArrowSegment, rows_of_half
from trunkline.events.layout import BEATS, LogError, NodeKey
from trunkline.events.listing import SegmentFiles, covers, list_segments
from trunkline.events.parquet_target import PendingFile, sweep
from trunkline.events.projection import Projection
from trunkline.events.retention import ALIVE
from trunkline.events.segment import Damage

#: Segments with fewer rows in a batch, on average, are merged.
SMALL: Final = 256
#: Errors that all segments would have.
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class Merger:
    """Works on the segments of one node, which no other process may write meanwhile."""

    def __init__(self, root: str | Path, node: str) -> None:
        self._root = str(root)
        self._node = node
        #: Segments that are better left as they are: their batches are large, or some of their rows are damaged.
        self._left: set[str] = set()
        self._is_swept = False

    def run(self, check: Callable[[], object] = lambda: None) -> int:
        """Merge what can be merged; returns the number of segments. `check` is called every few milliseconds, and ends
        the run if it raises.

        Raises OSError: files cannot be read or written. Nothing is lost then, and the other segments are merged.
        """
        listed = {key: files for key, files in list_segments(LocalFileSystem(), self._root).items() if self._owns(key)}
        if not self._is_swept:
            for key in listed:
                sweep(Path(self._root, key.directory))
            self._is_swept = True
        self._left &= {files.paths[-1] for all_files in listed.values() for files in all_files}
        merged = 0
        failed: OSError | None = None
        for key, all_files in listed.items():
            moved = [(files.first, files.end) for files in all_files if files.end is not None]
            for files in all_files:
                try:
                    merged += self._tidy(key, files, moved, key != max(listed), check)
                except FileNotFoundError:  # compaction deletes, too
                    pass
                except OSError as error:
                    failed = failed or error
                    if error.errno in _FULL:
                        raise
        if failed is not None:
            raise failed
        return merged

    def _owns(self, key: NodeKey) -> bool:
        return key.name == self._node

    def _tidy(
        self,
        key: NodeKey,
        files: SegmentFiles,
        moved: Sequence[tuple[int, int]],
        over: bool,
        check: Callable[[], object],
    ) -> bool:
        """Whether they are merged; `moved` are the rows that are in Parquet files already."""
        ends = dict(moved)
        if not files.is_whole and files.first in ends:
            if covers(moved, files.first, files.first + rows_of_half(LocalFileSystem(), files)):
                files.delete()  # what is left of a segment that was being deleted
        elif files.end is None and files.is_whole and files.paths[-1] not in self._left:
            segment = ArrowSegment(LocalFileSystem(), files)
            return self._merge(key, segment, ends.get(files.first), over, check)
        return False

    def _merge(
        self, key: NodeKey, segment: ArrowSegment, merged: int | None, over: bool, check: Callable[[], object]
    ) -> bool:
        """`merged` is the end of the file that has its rows already; `over`: a later incarnation has begun."""
        try:
            index = segment.index
            # another broker by the same name may write to it, by mistake
            if not (index.sealed or (over and time.time() - os.path.getmtime(segment.files.paths[0]) > ALIVE)):
                return False
            sizes = [batch.rows for batch in index.batches if not batch.flags & BEATS]
            is_small = sum(sizes) < SMALL * len(sizes) and not segment.unindexed()
            if is_small and (segment.end == merged or self._write(key, segment, check)):
                segment.files.delete()
                return True
        except (LogError, pa.ArrowException):  # of a later version, or damaged in a way of its own
            pass
        self._left.add(segment.path)
        return False

    def _write(self, key: NodeKey, segment: ArrowSegment, check: Callable[[], object]) -> bool:
        """False if not all rows can be read."""
        file = PendingFile(LocalFileSystem(), os.path.dirname(segment.path), segment.first)
        try:
            for piece in segment.read(key, segment.first, segment.end, Projection(None), verify=True):
                check()
                if isinstance(piece, Damage):
                    file.discard()
                    return False
                file.add(piece.batch)
            file.commit(written=os.path.getmtime(segment.path))
        except BaseException:
            file.discard()
            raise
        return True
