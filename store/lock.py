"""A lock that ends with its process: one process at a time opens a store.

A file of its own beside the store, since a second descriptor for the store's file would drop SQLite's locks when it is
closed. File systems that do not lock, as some NFS do not, are not supported.
"""

import os
import sys
import time
from io import FileIO
from pathlib import Path

from trunkline.store.errors import StoreInUse, StoreUnavailable

#: Where Windows locks: what is locked there cannot be read.
_FAR = 1 << 30

#: How often a lock is tried for that others hold for a moment.
TRIES = 10

if sys.platform == "win32":
    import msvcrt

    def _lock(file: FileIO) -> None:
        file.seek(_FAR)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        file.seek(0)

    _look = _lock
else:
    import fcntl

    def _lock(file: FileIO) -> None:
        for _ in range(TRIES):  # somebody may look whether it is locked
            try:
                return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(0.01)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _look(file: FileIO) -> None:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)


class FileLock:
    def __init__(self, store: Path) -> None:
        """
        Raises:
            StoreInUse: another process has it.
            StoreUnavailable: there is no file to lock, and none can be made.
        """
        path = store.with_name(f"{store.name}-lock")
        try:
            self._file = FileIO(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600), "a+")
            give_to_owner(path, store)
        except OSError as error:
            raise StoreUnavailable(f"{path} cannot be opened: {error.strerror}") from error
        try:
            _lock(self._file)
        except OSError as error:
            self._file.seek(0)
            holder = self._file.read(20).strip()
            self._file.close()
            pid = int(holder) if holder.isdigit() else None
            who = "another process" if pid is None else "this process" if pid == os.getpid() else f"process {pid}"
            raise StoreInUse(f"the store {store} is in use by {who}", pid) from error
        self._file.truncate(0)
        self._file.write(b"%d\n" % os.getpid())

    def release(self) -> None:
        self._file.close()


def is_locked(store: Path) -> bool:
    """Whether a process has it, as far as this one may know."""
    try:
        with FileIO(store.with_name(f"{store.name}-lock"), "r") as file:
            _look(file)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def give_to_owner(path: Path, of: Path) -> None:
    """An administrator may run a command over the store of the broker's user, who has to open the file later."""
    if hasattr(os, "geteuid") and os.geteuid() == 0 and of.exists():
        owner = of.stat()
        os.chown(path, owner.st_uid, owner.st_gid)
