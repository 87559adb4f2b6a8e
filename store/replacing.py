"""Files that take the place of others together: all of them, or none, whenever the process ends.

They are made in a folder beside these, `NAME-next`. Renamed to `NAME-ready` it stands for what it holds, and only to
move that is left: whoever finds it there does it before anything else. Each step can be done twice.
"""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Final

from trunkline.store.errors import StoreUnavailable
from trunkline.store.format import sync_file, sync_folder
from trunkline.store.lock import FileLock, give_to_owner

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

#: What the name of the folder ends with.
_NEXT: Final = "-next"
_READY: Final = "-ready"
#: In the folder: the names of the files that go, and of those that come.
_LIST: Final = "files.json"
#: What SQLite has beside a file that is open, and what must not be there when another takes its name.
LOGS: Final = ("-wal", "-shm")
LOCK: Final = "-lock"


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(f"{path.name}{suffix}")


def next_folder(path: Path) -> Path:
    """Where the files are made that take the place of those of the store `path`."""
    return beside(path, _NEXT)


def begin(path: Path) -> Path:
    """The same, new and empty. The lock of the store is held."""
    discard(path)
    folder = next_folder(path)
    folder.mkdir(mode=0o700)
    return folder


def discard(path: Path) -> None:
    """What was begun and is not to be. Nothing, if there is nothing."""
    folder = next_folder(path)
    if folder.exists():
        shutil.rmtree(folder)


def replace(path: Path, former: Collection[str]) -> None:
    """All files of the folder, which are stores that were closed, take their places, and the `former` ones, by name,
    are gone.

    Raises:
        StoreUnavailable: it cannot be done. Once it is begun, whoever uses the store next goes on with it.
    """
    folder = next_folder(path)
    try:
        new = _tidied(folder)
        (folder / _LIST).write_text(json.dumps({"former": sorted(former), "new": new}), encoding="utf-8")
        owner = next((each for name in former if (each := path.parent / name).exists()), path.parent)
        give_to_owner(folder, owner)
        for file in folder.iterdir():
            give_to_owner(file, owner)
            sync_file(file)
        sync_folder(folder)
        os.replace(folder, beside(path, _READY))
        sync_folder(path.parent)
    except OSError as error:
        raise StoreUnavailable(f"the files in {folder} cannot be made ready: {error.strerror or error}") from error
    finish(path)


def _tidied(folder: Path) -> list[str]:
    """The names of the files, without what was beside them."""
    for file in list(folder.iterdir()):
        if file.name.endswith(LOGS) and file.stat().st_size:
            raise StoreUnavailable(f"{file} is there still: the disk may be full")
        if file.name.endswith((*LOGS, LOCK)):
            file.unlink()
    return sorted(file.name for file in folder.iterdir())


def is_ready(path: Path) -> bool:
    """Whether files are to take their places before the store `path` is used."""
    return beside(path, _READY).exists()


def finish(path: Path) -> None:
    """Go on with what was begun, if anything is ready. The lock of the store is held.

    Raises:
        StoreUnavailable: it cannot be done.
    """
    folder = beside(path, _READY)
    try:
        if folder.exists():
            _finish(path, folder)
    except OSError as error:
        raise StoreUnavailable(f"the files in {folder} cannot take their places: {error.strerror or error}") from error


def _finish(path: Path, folder: Path) -> None:
    listed = folder / _LIST
    if listed.exists():  # else all was moved
        names = json.loads(listed.read_bytes())
        for name in names["new"]:
            if (folder / name).exists():
                remove(path.with_name(name), LOGS)
                os.replace(folder / name, path.with_name(name))
        sync_folder(path.parent)
        for name in sorted(set(names["former"]) - set(names["new"])):
            remove(path.with_name(name), ("", *LOGS))
            if name != path.name:  # its lock is held, and is that of the new store
                remove(path.with_name(name), (LOCK,))
        sync_folder(path.parent)
        listed.unlink()
    folder.rmdir()


def remove(path: Path, suffixes: Sequence[str]) -> None:
    """What is beside a file, by what its name has more, if it is there."""
    for suffix in suffixes:
        beside(path, suffix).unlink(missing_ok=True)


def finish_what_was_begun(path: Path) -> None:
    """The same, by whoever is about to lock the store.

    Raises:
        StoreInUse: another process has it.
        StoreUnavailable: it cannot be done.
    """
    if is_ready(path):
        with FileLock(path):
            finish(path)
