"""Changes a file atomically: neither a broker nor a crash ever leaves half of it."""

import errno
import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path

from trunkline.config.folder_lock import alone


def rewrite(file: Path, change: Callable[[str], str], *, private: bool) -> None:
    """Replace the file by the changed text. Its line endings and its owner stay, a byte order mark does not.

    A `private` file becomes readable by its owner only; any other keeps its permissions.

    Raises:
        OSError: the file is unchanged.
    """
    file = file.resolve()  # the target of a link is replaced, not the link
    with alone(file.parent):
        _rewrite(file, change, private)


def read(file: Path) -> tuple[os.stat_result | None, str]:
    """What there is to change; None if the file is to be made."""
    try:
        former = file.stat()
        if not stat.S_ISREG(former.st_mode):  # reading a pipe would block, and a device would be replaced
            raise OSError(errno.EINVAL, "is not a regular file")
        with file.open(encoding="utf-8-sig", newline="") as stream:
            return former, stream.read()
    except FileNotFoundError:
        if not file.absolute().parent.is_dir():
            raise
        return None, ""
    except UnicodeDecodeError as error:
        raise OSError(errno.EINVAL, "is not UTF-8 text") from error


def _rewrite(file: Path, change: Callable[[str], str], private: bool) -> None:
    former, text = read(file)
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
    """Owner and permissions: an administrator may change a file that the broker's user reads."""
    if private:
        if former.st_uid != os.geteuid():
            os.chown(draft, former.st_uid, former.st_gid)
        return
    now = draft.stat()
    if (now.st_uid, now.st_gid) != (former.st_uid, former.st_gid):
        os.chown(draft, former.st_uid, former.st_gid)
    draft.chmod(stat.S_IMODE(former.st_mode))
