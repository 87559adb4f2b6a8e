"""A lock on a file that ends with its process, however that ends."""

import os
from io import FileIO
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def locked(path: Path) -> FileIO:
    """Make the file, with its folder, and lock it until it is closed. Windows locks nothing.

    Raises:
        BlockingIOError: it is locked already, by another process or by this one.
        OSError: the file cannot be made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    file = FileIO(path, "a")
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise
    return file


def shared(lock: FileIO) -> FileIO:
    """Another file with the same lock, which ends when both are closed."""
    return FileIO(lock.name, "a", opener=lambda _name, _flags: os.dup(lock.fileno()))


def is_deleted(lock: FileIO) -> bool:
    """Whether the file of a lock is not the one of this name any more, so that others may lock that."""
    try:
        return not os.path.samestat(os.fstat(lock.fileno()), os.stat(lock.name))
    except OSError:
        return True
