"""A process of its own: it divides copies of a store anew, and each copy's process is killed at its next step.

    python killed_resharding.py STORE N FOLDER

makes FOLDER/0, FOLDER/1 and so on, until one is divided to its end.
"""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import rich.console
import rich.progress
from click.testing import CliRunner

import trunkline.broker.resharding.resharding
import trunkline.broker.row_check
from trunkline.management.cli import cli
from trunkline.store.sqlite import SqliteEngine

KILLED = 9
#: Modules that are imported when they are used: not in each child anew.
LOADED = (rich.console, rich.progress, trunkline.broker.resharding.resharding, trunkline.broker.row_check)
#: What changes the disk.
STEPS = [(os, name) for name in ("replace", "rename", "unlink", "remove", "mkdir", "rmdir", "fsync", "link")]
STEPS += [(SqliteEngine, name) for name in ("commit", "close")]


class Kill:
    """The process ends before step `at`."""

    def __init__(self, at: int) -> None:
        self._left = at

    def install(self) -> None:
        for owner, name in STEPS:
            setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, function: Any) -> Any:
        def call(*arguments: Any, **keywords: Any) -> Any:
            if not self._left:
                os._exit(KILLED)
            self._left -= 1
            return function(*arguments, **keywords)

        return call


def divide(store: Path, workers: str, at: int) -> int:
    """In a child. Returns how it ended."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    Kill(at).install()
    with suppress(BaseException):
        os._exit(CliRunner().invoke(cli, ["store", "reshard", workers, "--store", str(store)]).exit_code)
    os._exit(1)


def main(store: Path, workers: str, folder: Path) -> None:
    at, code = 0, KILLED
    while code == KILLED:
        copy = folder / str(at)
        shutil.copytree(store.parent, copy)
        code = divide(copy / store.name, workers, at)
        at += 1
    sys.exit(code)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
