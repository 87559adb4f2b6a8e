"""Finds the files of a log, in a directory or in an object store."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem

from trunkline.events.layout import INDEX, LogError, NodeKey, SegmentName, local_root, matching


class SegmentFiles(NamedTuple):
    """The files of a segment. One of them is missing while a segment is made, or deleted."""

    first: int
    #: The number behind the last row, of Parquet files only.
    end: int | None
    #: In the order in which they are to be deleted: without its index, a segment is none.
    paths: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        return self.end is not None or len(self.paths) == 2

    def delete(self) -> None:
        """From this machine, whoever has deleted a part of it.

        Raises:
            OSError: one of the files cannot be deleted (on Windows, while it is being read), and those after it stay.
        """
        for path in self.paths:
            Path(path).unlink(missing_ok=True)


def located(root: str | Path) -> tuple[FileSystem, str]:
    """The file system of a directory or URI, and the path in it. Raises LogError for what pyarrow does not know."""
    if (local := local_root(root)) is not None:
        return LocalFileSystem(), local.absolute().as_posix()
    try:
        return FileSystem.from_uri(str(root))
    except (pa.ArrowException, ValueError) as error:
        raise LogError(f"{root}: {error}") from None


def list_logs(filesystem: FileSystem, roots: Sequence[str]) -> dict[NodeKey, list[SegmentFiles]]:
    """The segments of each node of several logs; a directory that is named twice counts once.

    Raises: LogError, if a node is in two of them. OSError.
    """
    found: dict[NodeKey, list[SegmentFiles]] = {}
    homes: dict[str, str] = {}
    for root in _distinct(roots) if isinstance(filesystem, LocalFileSystem) else dict.fromkeys(roots):
        listed = list_segments(filesystem, root)
        for key in listed:
            if homes.setdefault(key.name, root) != root:
                cure = "give each broker a node.name of its own, or read one of the two"
                raise LogError(f"node {key.name!r} is in {homes[key.name]} and in {root}: {cure}")
        found |= listed
    return found


def _distinct(roots: Iterable[str]) -> Iterable[str]:
    there: dict[str, str] = {}
    for root in roots:
        for place in matching(root):
            there.setdefault(os.path.realpath(place), place)
    return there.values()


def list_segments(filesystem: FileSystem, root: str, only: NodeKey | None = None) -> dict[NodeKey, list[SegmentFiles]]:
    """The segments of each node, or of one, by their first rows. What is not there has none. Raises OSError."""
    found: dict[NodeKey, dict[tuple[int, int, str], list[str]]] = {}
    listed = _list_local(root, only) if filesystem.type_name == "local" else _list(filesystem, root, only)
    for key, directory, names in listed:
        segments = found.setdefault(key, {})
        for name in names:
            if (segment := SegmentName.parse(name)) is not None:
                segments.setdefault((segment.first, segment.end or 0, directory), []).append(f"{directory}/{name}")
    return {
        key: [
            SegmentFiles(first, end or None, tuple(sorted(paths, key=lambda path: not path.endswith(INDEX))))
            for (first, end, _), paths in sorted(segments.items())
        ]
        for key, segments in found.items()
    }


def covers(files: Iterable[tuple[int, int]], first: int, end: int) -> bool:
    """Whether all of [first, end) is in files, which are sorted."""
    at = first
    for low, high in files:
        if low > at:
            break
        at = max(at, high)
    return at >= end


def _list(filesystem: FileSystem, root: str, only: NodeKey | None) -> Iterator[tuple[NodeKey, str, list[str]]]:
    """Directories, and the names of files in them. Object stores are fastest with one request for everything."""
    keys: dict[str, NodeKey | None] = {}
    for base in [root] if only is None else [f"{root}/{name}" for name in only.directories]:
        for entry in filesystem.get_file_info(FileSelector(base, allow_not_found=True, recursive=True)):
            place, *rest = entry.path.removeprefix(root).lstrip("/").split("/")
            if place not in keys:
                keys[place] = NodeKey.of_directory(place)
            if (key := keys[place]) is not None and rest and entry.type == FileType.File:
                yield key, entry.path.removesuffix(f"/{rest[-1]}"), rest[-1:]


def _list_local(root: str, only: NodeKey | None) -> Iterator[tuple[NodeKey, str, list[str]]]:
    """The same without reading each file's metadata, which is slow, and with empty directories."""
    try:
        places = os.listdir(root) if only is None else only.directories
    except (FileNotFoundError, NotADirectoryError):
        return
    for place in places:
        if (key := NodeKey.of_directory(place)) is not None:
            for directory, _, names in os.walk(f"{root}/{place}", onerror=_unless_gone):
                yield key, directory, names


def _unless_gone(error: OSError) -> None:
    """What may not be looked into must not pass for empty."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error
