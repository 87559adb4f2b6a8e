"""One process at a time changes a folder."""

import errno
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

#: Seconds to wait for other processes. A suspended process, or any that may read the folder, could hold the lock for
#: ever.
LOCK_TIMEOUT: Final = 10.0


@contextmanager
def alone(folder: Path) -> Generator[None]:
    """One process of this machine at a time changes the folder; others that use this lock wait for their turn.

    Raises:
        OSError: the folder does not exist, or the lock is not free within `LOCK_TIMEOUT`.
    """
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        _lock(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    assert fcntl is not None
    until = time.monotonic() + LOCK_TIMEOUT
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= until:
                text = f"another process holds the folder {folder} locked"
                raise TimeoutError(errno.ETIMEDOUT, text) from None
            time.sleep(0.02)
