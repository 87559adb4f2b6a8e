"""Retention: keeps a node's part of the log small by deleting its oldest segments.

Only from the front, so that what is left has no holes, and never the segment that is being written.
"""

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from pyarrow.fs import LocalFileSystem

from trunkline.events.index import Index
from trunkline.events.layout import DEAD_LETTERS, INDEX, LogError, NodeKey
from trunkline.events.listing import SegmentFiles, list_segments
from trunkline.events.positions import Positions, consumers

#: Rows that are kept behind the slowest consumer. A position follows some batches late, and readers go back when they
#: fail.
MARGIN: Final = 100_000
#: Seconds after its last write during which a writer is not considered dead.
ALIVE: Final = 600
#: Segments that one call deletes at most.
_MAX_DELETED: Final = 256


class Deleted(NamedTuple):
    segments: int
    rows: int
    bytes: int
    #: Rows among them that the consumer with the largest loss had not read.
    unread: int
    #: Files that could not be read or deleted, and why.
    problems: tuple[str, ...]


@dataclass(slots=True, eq=False)
class _Segment:
    key: NodeKey
    files: SegmentFiles
    first: int
    end: int
    size: int = 0
    #: Seconds since the epoch.
    written: float = 0
    #: It is the last one, and its writer has not ended it, so the writer may continue.
    open: bool = False


def enforce(
    root: str | Path,
    node: str,
    now: int,
    *,
    max_bytes: int | None,
    max_age: float | None,
    delete_read: bool = False,
    margin: int = MARGIN,
) -> Deleted:
    """Delete the oldest segments of a node: those above `max_bytes` in all, those that were not written to for
    `max_age` seconds, and with `delete_read` those that all consumers have read, but for `margin` rows.

    `now` is in microseconds since the epoch. One call deletes a bounded number; the next goes on.

    Raises:
        OSError: the directory cannot be read.
    """
    problems: list[str] = []
    positions = _positions(root, problems)
    listed = list_segments(LocalFileSystem(), str(root))
    incarnations = sorted(key for key in listed if key.name == node)
    segments = [segment for key in incarnations for segment in _segments(key, listed[key], problems)]
    total = sum(segment.size for segment in segments)
    gone: list[_Segment] = []
    for segment in segments:
        if segment.open and (segment.key == incarnations[-1] or now / 1e6 - segment.written < ALIVE):
            # another node by the same name may write too, by mistake; at least its heartbeats show that it does
            continue
        too_old = max_age is not None and now / 1e6 - segment.written > max_age
        too_big = max_bytes is not None and total > max_bytes
        read = (
            delete_read and positions and all(segment.end + margin <= at.get(str(segment.key), 0) for at in positions)
        )
        if len(gone) >= _MAX_DELETED or not (too_old or too_big or read) or not _delete(segment, problems):
            break
        gone.append(segment)
        total -= segment.size
    left = [segment for segment in segments if segment not in gone]
    for key in incarnations[:-1]:
        if not any(segment.key == key for segment in left):
            _delete_directory(Path(root), key)
    rows, unread = _cost(gone, left, positions)
    return Deleted(len(gone), rows, sum(segment.size for segment in gone), unread, tuple(problems))


def _segments(key: NodeKey, listed: Sequence[SegmentFiles], problems: list[str]) -> list[_Segment]:
    """Oldest first; the rest of a half-deleted segment counts as one without rows."""
    segments = [_Segment(key, files, files.first, files.end or files.first) for files in listed]
    for segment in segments:
        for path in segment.files.paths:
            with contextlib.suppress(FileNotFoundError):  # compaction deletes too
                status = os.stat(path)
                segment.size += status.st_size
                segment.written = max(segment.written, status.st_mtime)
    raw = [segment for segment in segments if segment.files.end is None]
    for segment, after in pairwise(raw):
        segment.end = after.first
    if raw:
        index = Index(raw[-1].first)
        path = raw[-1].files.paths[0]
        try:
            index.feed(Path(path).read_bytes() if path.endswith(INDEX) else b"")
        except (LogError, OSError) as error:
            problems.append(f"{path}: {error}")
        raw[-1].end = index.end
        raw[-1].open = not index.last
    return segments


def _positions(root: str | Path, problems: list[str]) -> list[dict[str, int]]:
    """Of a consumer whose file cannot be read: none, so that nothing is deleted on its account."""
    found: list[dict[str, int]] = []
    try:
        names = consumers(root)
    except OSError as error:
        problems.append(str(error))
        return [{}]
    for consumer in names:
        try:
            found.append(Positions(root, consumer).read())
        except (LogError, OSError) as error:
            problems.append(str(error))
            found.append({})
    return found


def _delete(segment: _Segment, problems: list[str]) -> bool:
    try:
        segment.files.delete()
    except OSError as error:
        problems.append(str(error))
        return False
    return True


def _delete_directory(root: Path, key: NodeKey) -> None:
    for directory in key.directories:
        for folder, _, _ in os.walk(root / directory, topdown=False):
            with contextlib.suppress(OSError):  # the folder has other files
                os.rmdir(folder)
    with contextlib.suppress(OSError):
        (root / DEAD_LETTERS / f"{key.encoded}.jsonl").unlink()


def _cost(gone: Sequence[_Segment], left: Sequence[_Segment], positions: Sequence[dict[str, int]]) -> tuple[int, int]:
    """How many rows are there no longer, and how many of them the consumer with the largest loss had not read."""
    rows = 0
    unread = [0] * len(positions)
    for key in dict.fromkeys(segment.key for segment in gone):
        first = min(segment.first for segment in gone if segment.key == key)
        end = max(segment.end for segment in gone if segment.key == key)
        end = min([end, *(segment.first for segment in left if segment.key == key)])
        rows += max(0, end - first)
        for number, at in enumerate(positions):
            unread[number] += max(0, end - max(first, at.get(str(key), 0)))
    return rows, max(unread, default=0)
