"""Finds the files of a log, in a directory or in an object store."""

import os
from collections.abc import Iterator

from pyarrow.fs import FileSelector, FileSystem, FileType

from trunkline.events.layout import NodeKey, SegmentName


def list_segments(filesystem: FileSystem, root: str) -> dict[NodeKey, dict[str, set[SegmentName]]]:
    """The files of each node, by their directory. What is not there has none. Raises OSError."""
    found: dict[NodeKey, dict[str, set[SegmentName]]] = {}
    for key, directory, names in _list_local(root) if filesystem.type_name == "local" else _list(filesystem, root):
        files = found.setdefault(key, {})
        if segments := {segment for name in names if (segment := SegmentName.parse(name))}:
            files.setdefault(directory, set()).update(segments)
    return found


def _list(filesystem: FileSystem, root: str) -> Iterator[tuple[NodeKey, str, list[str]]]:
    """Directories, and the names of files in them. Object stores answer best when they are asked for everything at
    once."""
    keys: dict[str, NodeKey | None] = {}
    for entry in filesystem.get_file_info(FileSelector(root, allow_not_found=True, recursive=True)):
        place, *rest = entry.path.removeprefix(root).lstrip("/").split("/")
        if place not in keys:
            keys[place] = NodeKey.of_directory(place)
        if (key := keys[place]) is not None and rest and entry.type == FileType.File:
            yield key, entry.path.removesuffix(f"/{rest[-1]}"), rest[-1:]


def _list_local(root: str) -> Iterator[tuple[NodeKey, str, list[str]]]:
    """The same without a look at each file, which is what takes long, and with directories that are empty."""
    try:
        places = os.listdir(root)
    except (FileNotFoundError, NotADirectoryError):
        return
    for place in places:
        if (key := NodeKey.of_directory(place)) is not None:
            for directory, _, names in os.walk(f"{root}/{place}"):
                yield key, directory, names
