"""A lock that ends with its process: one process at a time opens a store.

A file of its own beside the store, since a second descriptor for the store's file would drop SQLite's locks when it is
closed. File systems that do not lock, as some NFS do not, are not supported.
"""

import os
import sys
from io import FileIO
from pathlib import Path

from trunkline.store.errors import StoreInUse, StoreUnavailable

#: Where Windows locks: what is locked there cannot be read.
_FAR = 1 << 30

if sys.platform == "win32":
    import msvcrt

    def _lock(file: FileIO) -> None:
        file.seek(_FAR)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        file.seek(0)
else:
    import fcntl

    def _lock(file: FileIO) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


class FileLock:
    def __init__(self, path: Path) -> None:
        try:
            self._file = FileIO(path, "a+")
        except OSError as error:
            raise StoreUnavailable(f"{path} cannot be opened: {error.strerror}") from error
        try:
            _lock(self._file)
        except OSError as error:
            self._file.seek(0)
            holder = self._file.read(20).decode("ascii", "replace").strip()
            self._file.close()
            raise StoreInUse(f"{path} is locked by process {holder}: two cannot open a store") from error
        self._file.truncate(0)
        self._file.write(b"%d\n" % os.getpid())

    def release(self) -> None:
        self._file.close()
