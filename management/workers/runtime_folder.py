"""The folder of a node with several workers: control sockets, and those that join the workers.

It is `NODE.workers` where the control socket of a single process would be, for its user alone. It is locked, and the
workers have the lock from their supervisor: as long as one of them runs, the folder, and with it addresses and stores,
are not free.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from trunkline.management.control_place import (
    MAX_SOCKET_PATH,
    WORKERS,
    PlaceError,
    check_folder,
    default_path,
    make_private_folder,
)
from trunkline.store.lock import is_same

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trunkline.config.config import Config

#: The lock of all, and the supervisor's alone.
COMMON_LOCK: Final = "workers.lock"
OWN_LOCK: Final = "supervisor.lock"
#: The longest name of a socket in it.
_LONGEST: Final = "255.link"
#: Nodes of one user with one name.
MAX_SAME_NAME: Final = 16
#: Seconds between two looks whether it is free.
LOOK: Final = 0.05


class RuntimeFolder:
    def __init__(self, path: Path, descriptor: int, own: int) -> None:
        self.path = path
        #: Of the lock that workers have, too: it is held until nobody has it open.
        self.descriptor = descriptor
        #: The supervisor's alone.
        self._own = own

    @classmethod
    def claim(cls, config: Config, patience: float, waiting: Callable[[Path], None]) -> RuntimeFolder:
        """If a supervisor has ended and its workers have not, wait for them, for so many seconds: `waiting` is told of
        the folder first.

        Raises:
            PlaceError: there is none that is free and can be trusted.
        """
        given = config.control.path
        if given is not None:
            check_folder(given.absolute().parent)
            paths = [given.absolute().with_name(given.stem + WORKERS)]
        else:
            name = config.node.name
            names = [name, *[f"{name}-{number}" for number in range(2, MAX_SAME_NAME + 1)]]
            paths = [default_path(each, WORKERS).absolute() for each in names]
            make_private_folder(paths[0].parent)
        for path in paths:
            if len(os.fsencode(path / _LONGEST)) > MAX_SOCKET_PATH:
                raise PlaceError(f"{path} is too long for Unix sockets in it: set control.path to another place")
            try:
                found = cls._lock(path, patience, waiting)
            except OSError as error:
                raise PlaceError(f"{path}: {error.strerror or error}") from error
            if found is not None:
                return found
        raise PlaceError(f"{paths[-1]} belongs to a running broker")

    @classmethod
    def _lock(cls, path: Path, patience: float, waiting: Callable[[Path], None]) -> RuntimeFolder | None:
        """None if a supervisor has it."""
        until, told = time.monotonic() + patience, False
        while True:
            make_private_folder(path)
            lock = path / COMMON_LOCK
            try:
                descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
            except FileNotFoundError:
                continue  # the folder was removed by who had it
            if _locked(descriptor) and is_same(lock, os.fstat(descriptor)):
                break
            os.close(descriptor)
            if time.monotonic() >= until or _is_locked(path / OWN_LOCK):
                return None
            if not told:
                waiting(path)
                told = True
            time.sleep(LOOK)
        for left in path.iterdir():  # of workers that were killed
            if left != lock:
                left.unlink()
        own = os.open(path / OWN_LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(own, fcntl.LOCK_EX)
        return cls(path, descriptor, own)

    def release(self) -> None:
        """When all workers have ended."""
        with suppress(OSError):
            for left in self.path.iterdir():
                left.unlink()
            self.path.rmdir()
        os.close(self._own)
        os.close(self.descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_locked(path: Path) -> bool:
    """A lock file that is not there yet, or not any more, says nothing."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        return not _locked(descriptor)
    finally:
        os.close(descriptor)
