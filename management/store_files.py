"""Files of stores that no broker may have open: locked, and made under other names until they are whole."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from trunkline.store.format import publish
from trunkline.store.lock import FileLock, give_to_owner
from trunkline.store.replacing import LOCK, LOGS, beside, remove
from trunkline.store.sqlite import SqliteEngine

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

#: A store, and all that may be beside it.
_ALL: Final = ("", *LOGS, LOCK)


@contextmanager
def locked(path: Path) -> Generator[None]:
    lock = FileLock(path)
    try:
        if path.exists():
            lock.lock_store()
        yield
    finally:
        lock.discard()


def expect_unused(path: Path) -> None:
    with locked(path):
        pass


@contextmanager
def made_aside(path: Path, damaged: Path | None = None) -> Generator[SqliteEngine]:
    """A store under another name, which takes its place when it is done, and is gone when it is not. What was there
    becomes `damaged`."""
    aside = beside(path, "-made")
    remove(aside, _ALL)
    try:
        engine = SqliteEngine(aside)
        try:
            yield engine
        finally:
            engine.close()
        if damaged is not None:
            _set_aside(path, damaged)
        give_to_owner(aside, path if path.exists() else path.parent)
        publish(aside, path)
        remove(path, ("-shm",))
    finally:
        remove(aside, _ALL)


def _set_aside(path: Path, damaged: Path) -> None:
    """The file keeps its name until the new one takes it: at no moment there is none, and a broker would begin anew."""
    log = beside(path, "-wal")
    if log.exists():
        os.replace(log, beside(damaged, "-wal"))
    try:
        os.link(path, damaged)
    except OSError:  # the file system has no links
        shutil.copy2(path, damaged)
