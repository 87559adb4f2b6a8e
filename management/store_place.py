"""The store that a command is for: that of a node, with the part of each worker."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from trunkline.config.errors import ConfigError
from trunkline.config.reader import Override, load
from trunkline.config.store_place import shard_path, store_path, whole_path, workers_path
from trunkline.management.command_line import BAD_USAGE, FAILED, config_option, fail
from trunkline.management.workers.terms import read_workers
from trunkline.store import StoreError, StoreInUse, StoreUnavailable
from trunkline.store.replacing import is_ready
from trunkline.store.sqlite import SqliteEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from trunkline.config.config import Config
    from trunkline.store import Progress


class StorePart(NamedTuple):
    """A store of its own: what one worker has, or all of it where there is one process."""

    path: Path
    #: For people; empty where it is all of the store.
    name: str = ""

    def open_to_read(self, *, verify: bool = False) -> SqliteEngine:
        """Beside a broker that runs."""
        return SqliteEngine(self.path, read_only=True, verify=verify)


class Place(NamedTuple):
    #: Where the store would lie if it were that of one process.
    path: Path
    config: Config

    @property
    def is_divided(self) -> bool:
        return workers_path(self.path).exists()

    @property
    def is_part(self) -> bool:
        """Whether it is what one of several workers has, named by itself."""
        whole = whole_path(self.path)
        return whole is not None and workers_path(whole).exists()

    @property
    def parts(self) -> list[StorePart]:
        """In order.

        Raises:
            StoreError: how many there are cannot be told.
        """
        self.expect_settled()
        recorded = read_workers(workers_path(self.path))
        if recorded is None:
            return [StorePart(self.path)]
        return [StorePart(shard_path(self.path, number), f"part {number}") for number in range(recorded[0])]

    def expect_settled(self) -> None:
        """
        Raises:
            StoreUnavailable: another store is about to take its place.
        """
        if is_ready(self.path):
            raise StoreUnavailable(
                f"the store {self.path} is about to be replaced, and that was interrupted: go on with `trunkline store"
                " reshard N`, or start the broker"
            )

    def for_each_part(self, command: Callable[[StorePart], object], *, named: bool = True) -> int:
        """One part that fails keeps no other from its turn. Each is `named` before what is said of it. Returns the
        worst exit code of all."""
        code = 0
        for part in self.parts:
            if named and part.name:
                click.echo(f"{part.name}:")
            try:
                with _explained():
                    command(part)
            except SystemExit as ended:
                code = max(code, int(ended.code or 0))
        return code


def of_store(command: Callable[..., None]) -> Callable[..., None]:
    """The command is given the place of the store that it is for; what the store refuses becomes a line."""

    @wraps(command)
    def run(path: Path | None, store: str | None, **parameters: Any) -> None:
        place = _place(path, store)
        with _explained():
            command(place, **parameters)

    return config_option(
        click.option("--store", metavar="FILE", help="The store's file. [default: what the configuration says]")(run)
    )


@contextmanager
def _explained() -> Generator[None]:
    try:
        yield
    except BrokenPipeError:  # of `| head`: click ends without a word then
        raise
    except StoreInUse as error:
        fail([f"{error}: stop that broker first"], FAILED)
    except (StoreError, OSError) as error:
        fail([error], FAILED)


def _place(config: Path | None, file: str | None) -> Place:
    overrides = {} if file is None else {"store.path": Override("--store", file)}
    try:
        loaded = load(config, None, overrides, sections=("node", "store", "session")).config
    except ConfigError as error:
        fail(error.problems, BAD_USAGE)
    if loaded.store.durability == "memory" and file is None:
        fail(['the broker keeps nothing: store.durability is "memory"'], BAD_USAGE)
    return Place(store_path(loaded.store, loaded.node).absolute(), loaded)


@contextmanager
def progress_of(words: str, unit: str) -> Generator[Progress]:
    """A bar at a terminal."""
    # imported here: it takes as long as all the rest
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn(words), BarColumn(), TaskProgressColumn())
    counted = TextColumn("{task.completed:,} of {task.total:,} " + unit)
    with Bar(*columns, counted, console=Console(stderr=True), disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("", total=0)
        yield lambda done, total: bar.update(task, completed=done, total=total)
