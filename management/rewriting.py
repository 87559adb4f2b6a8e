"""Changes a file so that a broker, or a crash, never finds half of it."""

import errno
import os
import secrets
import stat
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

#: Seconds to wait for other processes. One that was suspended, or any that may read the folder, could keep it for ever.
LOCK_TIMEOUT: Final = 10.0


def rewrite(file: Path, change: Callable[[str], str], *, private: bool) -> None:
    """Put the changed text into the place of the file. Its line endings and its owner stay, a byte order mark
    does not.

    A `private` file may be read by nobody but its owner from then on; any other keeps its permissions.

    Raises:
        OSError: the file is as it was.
    """
    file = file.resolve()  # what a link leads to is replaced, not the link
    with alone(file.parent):
        _rewrite(file, change, private)


@contextmanager
def alone(folder: Path) -> Generator[None]:
    """While one process of this machine changes something in the folder, others that ask so wait for their turn.

    Raises:
        OSError: the folder is not there, or the turn does not come within `LOCK_TIMEOUT`.
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


def _rewrite(file: Path, change: Callable[[str], str], private: bool) -> None:
    try:
        former = file.stat()
        if not stat.S_ISREG(former.st_mode):  # a pipe would be waited for, and a device replaced
            raise OSError(errno.EINVAL, "is no regular file")
        with file.open(encoding="utf-8-sig", newline="") as stream:
            text = stream.read()
    except FileNotFoundError:
        former, text = None, ""
    except UnicodeDecodeError as error:
        raise OSError(errno.EINVAL, "is not UTF-8 text") from error
    newline = "\r\n" if "\r\n" in text else "\n"
    changed = change(text.replace("\r\n", "\n"))
    draft = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private or former else 0o666)
    try:
        with open(descriptor, "w", encoding="utf-8", newline=newline) as stream:
            stream.write(changed)
            stream.flush()
            os.fsync(descriptor)
        if former is not None and os.name != "nt":
            _take_over(draft, former, private)
        os.replace(draft, file)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _take_over(draft: Path, former: os.stat_result, private: bool) -> None:
    """Owner and permissions: an administrator changes what the broker's user reads."""
    if private:
        if former.st_uid != os.geteuid():
            os.chown(draft, former.st_uid, former.st_gid)
        return
    now = draft.stat()
    if (now.st_uid, now.st_gid) != (former.st_uid, former.st_gid):
        os.chown(draft, former.st_uid, former.st_gid)
    draft.chmod(stat.S_IMODE(former.st_mode))
