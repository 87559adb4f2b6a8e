"""Files that settings name, and how they are read: as a whole, and never an endless one."""

import os
import stat
from collections.abc import Iterator
from errno import EFBIG, EINVAL
from math import inf
from pathlib import Path
from typing import Final, cast

from pydantic import BaseModel

from trunkline.config.key_path import KeyPath

#: The one variable that does not set a key: the configuration file's path (`trunkline.management.command_line`).
FILE_VARIABLE: Final = "TRUNKLINE_CONFIG"

NO_FILE: Final = "is not a regular file, so it cannot be read again at a reload"


def files_in(value: object, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Path]]:
    """The keys that name files, and the files; not folders, which are created when they are missing."""
    if isinstance(value, Path):
        yield path, value
    elif isinstance(value, BaseModel):
        for key, field in type(value).model_fields.items():
            if field.annotation is not Path:
                yield from files_in(getattr(value, key), (*path, key))
    elif isinstance(value, tuple):
        for index, entry in enumerate(cast("tuple[object, ...]", value)):
            yield from files_in(entry, (*path, index))


def file_problem(file: Path) -> str:
    """Why a file cannot be read, now and at each reload; empty if it can."""
    if file.is_dir():
        return f"{file} is a folder"
    if not file.exists():
        return f"no file {file}"
    return "" if _ends(file.stat()) else f"{file} {NO_FILE}"


def _ends(status: os.stat_result) -> bool:
    """Reading a pipe would block, and a device may be endless. The null device is an empty file."""
    return stat.S_ISREG(status.st_mode) or os.path.samestat(status, os.stat(os.devnull))


def read_text(file: Path, max_size: float = inf) -> str:
    """The text of a file. Editors of Windows write a byte order mark, which is skipped.

    Raises:
        OSError: it cannot be read, is not a regular file, or has more bytes than `max_size`.
        UnicodeDecodeError: it is not UTF-8 text.
    """
    status = file.stat()
    if not (_ends(status) or stat.S_ISDIR(status.st_mode)):
        raise OSError(EINVAL, NO_FILE, str(file))
    if status.st_size > max_size:
        raise OSError(EFBIG, f"is larger than {max_size:,} bytes", str(file))
    return file.read_text(encoding="utf-8-sig")
