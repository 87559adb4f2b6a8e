"""A log file, which may be rotated while the broker runs."""

import logging
import os
from io import TextIOWrapper
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Final

from trunkline.management.logs import UnfailingHandler

#: For the broker's user and group alone: the log has clients' addresses and user names.
_MODE: Final = 0o640


def _opened(path: str, flags: int) -> int:
    """A new file is readable by the broker's user and group only. A pipe without a reader must not block the broker."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0), _MODE)


class _ToFile(UnfailingHandler, logging.FileHandler):
    def _open(self) -> TextIOWrapper:
        """Nothing stays in a buffer: bytes that do not fit on a full disk would keep the file from being closed."""
        file = open(self.baseFilename, "ab", buffering=0, opener=_opened)  # noqa: SIM115 - the returned object closes it
        return TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", write_through=True)


class _ToWatchedFile(_ToFile, WatchedFileHandler):
    pass


def to_file(path: Path) -> UnfailingHandler:
    if os.name == "nt":
        return _ToFile(path)
    # reopens the file after it has been moved
    return _ToWatchedFile(path)
