"""A lock that ends with its process: one process at a time opens a store.

It is on a file of its own beside the store, which says by which process, as there may be no store yet. On Linux it is
on the store's file as well, so that it holds when somebody deletes the other file. File systems that do not lock, as
some NFS do not, are not supported.
"""

import os
import struct
import sys
import time
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Self

from trunkline.store.errors import StoreInUse, StoreUnavailable

#: Where Windows locks the file beside the store: what is locked there cannot be read.
_FAR = 1 << 30
#: Where Linux locks the store's file: behind what SQLite locks.
_BEHIND = 1 << 62

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


if sys.platform == "linux" and struct.calcsize("P") == 8:

    def _lock_range(descriptor: int) -> None:
        """For as long as the descriptor is open, whatever SQLite does with others."""
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, _BEHIND, 1, 0))

else:

    def _lock_range(descriptor: int) -> None:
        """There is no such lock."""


class FileLock:
    def __init__(self, store: Path) -> None:
        """
        Raises:
            StoreInUse: another process has it.
            StoreUnavailable: there is no file to lock, and none can be made.
        """
        self._store = store
        self._path = store.with_name(f"{store.name}-lock")
        self._file = self._locked()
        self._descriptor: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """An error means that there is no store to lock."""
        if kind is None:
            self.release()
        else:
            self.discard()

    def _locked(self) -> FileIO:
        while True:
            file = self._lock_file()
            if is_same(self._path, os.fstat(file.fileno())):
                break
            file.close()  # its holder has discarded it meanwhile
        with suppress(OSError):  # of a full disk: the lock holds all the same
            file.truncate(0)
            file.write(b"%d\n" % os.getpid())
        return file

    def _lock_file(self) -> FileIO:
        try:
            #: Whether the file was not there before.
            self._is_new = not self._path.exists()
            file = FileIO(os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600), "a+")
            give_to_owner(self._path, self._store)
        except OSError as error:
            raise StoreUnavailable(f"{self._path} cannot be opened: {error.strerror}") from error
        try:
            _lock(file)
        except OSError as error:
            file.seek(0)
            holder = file.read(20).strip()
            file.close()
            pid = int(holder) if holder.isdigit() else None
            who = "another process" if pid is None else "this process" if pid == os.getpid() else f"process {pid}"
            raise StoreInUse(f"the store {self._store} is in use by {who}") from error
        return file

    def lock_store(self) -> None:
        """The store's file, too, once it is there.

        Raises:
            StoreInUse: another process has it, and the other file was deleted.
        """
        # not closed if it is in use: this process would lose SQLite's locks, if it is the one that has it
        descriptor = os.open(self._store, os.O_RDWR)
        try:
            _lock_range(descriptor)
        except OSError as error:
            raise StoreInUse(f"the store {self._store} is in use by another process") from error
        self._descriptor = descriptor

    def renew(self) -> None:
        """Make the file beside the store anew if somebody has deleted it.

        Raises:
            StoreInUse: another process was quicker.
        """
        if not is_same(self._path, os.fstat(self._file.fileno())):
            former, self._file = self._file, self._locked()
            former.close()

    def release(self) -> None:
        """After SQLite has closed the store's file."""
        self._file.close()
        if self._descriptor is not None:
            os.close(self._descriptor)

    def discard(self) -> None:
        """Release it, and leave no file that was not there before."""
        if self._is_new:
            with suppress(OSError):  # Windows deletes no file that is open
                self._path.unlink()
        self.release()


def is_same(path: Path, file: os.stat_result) -> bool:
    """Whether this file still has this path. No other one gets its number while it is open."""
    try:
        return os.path.samestat(path.stat(), file)
    except FileNotFoundError:
        return False


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
