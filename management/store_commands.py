"""`trunkline store`: what is in the broker's store, copies of it, and its repair."""

from __future__ import annotations

import json
import os
import shutil
import sys
from contextlib import contextmanager, suppress
from functools import wraps
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from trunkline.config.errors import ConfigError
from trunkline.config.reader import Override, load
from trunkline.config.store_place import make_store_folder, shard_path, store_path, workers_path
from trunkline.management.command_line import BAD_USAGE, FAILED, config_option, fail
from trunkline.management.ctl_output import print_columns
from trunkline.management.logs import printable
from trunkline.management.store_export import NotAnExport, export_lines, import_lines
from trunkline.mqtt.explanations import quoted
from trunkline.store import StoreCorrupt, StoreError, StoreInUse
from trunkline.store.format import publish
from trunkline.store.lock import FileLock, give_to_owner
from trunkline.store.salvage import salvage
from trunkline.store.sqlite import SqliteEngine

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Generator, Iterator

    from trunkline.broker.mending import LostMessages
    from trunkline.config.node_settings import StoreSettings
    from trunkline.store import Defect, Progress

#: Clients that are named because they have lost most.
MAX_NAMED: Final = 10
#: Bytes that are given back between two steps of the progress.
COMPACTED: Final = 4 << 20


class Place(NamedTuple):
    """The store that a command is for."""

    path: Path
    settings: StoreSettings

    def open_to_read(self, *, verify: bool = False) -> SqliteEngine:
        """Beside a broker that runs."""
        return SqliteEngine(self.path, read_only=True, verify=verify)


def _of_store(command: Callable[..., None]) -> Callable[..., None]:
    """The command is given the place of the store that it is for; what the store refuses becomes a line."""

    @wraps(command)
    def run(path: Path | None, store: str | None, **parameters: Any) -> None:
        try:
            command(_place(path, store), **parameters)
        except BrokenPipeError:  # of `| head`: click ends without a word then
            raise
        except StoreInUse as error:
            fail([f"{error}: stop that broker first"], FAILED)
        except (StoreError, OSError) as error:
            fail([error], FAILED)

    return config_option(
        click.option("--store", metavar="FILE", help="The store's file. [default: what the configuration says]")(run)
    )


def _place(config: Path | None, file: str | None) -> Place:
    overrides = {} if file is None else {"store.path": Override("--store", file)}
    try:
        loaded = load(config, None, overrides, sections=("node", "store")).config
    except ConfigError as error:
        fail(error.problems, BAD_USAGE)
    if loaded.store.durability == "memory" and file is None:
        fail(['the broker keeps nothing: store.durability is "memory"'], BAD_USAGE)
    path = store_path(loaded.store, loaded.node).absolute()
    if workers_path(path).exists():
        part = shard_path(path, 0)
        fail(
            [f"the store {path} is divided among several workers: name the part of one with --store {part}"], BAD_USAGE
        )
    return Place(path, loaded.store)


@contextmanager
def _progress(words: str, unit: str) -> Generator[Progress]:
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


@click.group()
def store() -> None:
    """Look at the broker's store, copy it and repair it.

    `info`, `check`, `backup` and `export` work while the broker runs.

    The exit code is 1 if a command fails or `check` finds something, and 2 if the command or the configuration is
    wrong.
    """


@store.command()
@_of_store
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def info(place: Place, as_json: bool) -> None:
    """Show what is in the store, and how large it is."""
    engine = place.open_to_read()
    try:
        counts, size = {space.name: engine.count(space) for space in engine.spaces()}, engine.size()
    finally:
        engine.close()
    if as_json:
        click.echo(json.dumps({"path": str(place.path), "format": engine.format, "size": size, "rows": counts}))
        return
    click.echo(f"{printable(str(place.path))}: format {engine.format}, {size:,} bytes")
    if counts:
        print_columns(["space", "rows"], [[printable(name), f"{rows:,}"] for name, rows in counts.items()], [])


@store.command()
@_of_store
def check(place: Place) -> None:
    """Read the whole store and report what is damaged: then the exit code is 1."""
    engine = place.open_to_read()
    try:
        found = _check(engine)
        rows = sum(map(engine.count, engine.spaces()))
        messages = "" if found else _messages(engine)
    finally:
        engine.close()
    if not found:
        place.open_to_read(verify=True).close()  # looks at the log too
    click.echo(f"{rows:,} rows: {found or 'no'} problem{'s' * (found != 1)}")
    if found:
        raise SystemExit(FAILED)
    if messages:
        click.echo(messages)


def _check(engine: SqliteEngine) -> int:
    found = 0
    for found, defect in enumerate(_defects(engine), 1):  # noqa: B007 - it is returned
        where = "" if defect.space is None or defect.key is None else f"{defect.space.name} {defect.key!r}: "
        click.echo(printable(f"{where}{defect.text}"))
    return found


def _defects(engine: SqliteEngine) -> Iterator[Defect]:
    # imported here: it needs the broker
    from trunkline.broker.row_check import malformed

    with _progress("Checking", "rows") as progress:
        yield from chain(engine.check(progress), _ignoring_damage(malformed(engine)))


def _messages(engine: SqliteEngine) -> str:
    """Nothing of a store that has none."""
    # imported here: they need the broker
    from trunkline.broker.mending import messages_in
    from trunkline.broker.stored_publications import MESSAGES

    count = engine.count(MESSAGES)
    return f"messages: {messages_in(engine):,} in {count:,} rows, each as it was published" if count else ""


def _is_whole(place: Place) -> bool:
    try:
        engine = place.open_to_read(verify=True)
    except StoreCorrupt:
        return False
    try:
        return next(_defects(engine), None) is None
    finally:
        engine.close()


def _ignoring_damage(defects: Iterator[Defect]) -> Iterator[Defect]:
    """Up to the first row that is damaged, which was found before."""
    with suppress(StoreCorrupt):
        yield from defects


def _expect_new(target: Path) -> None:
    if os.path.lexists(target):
        fail([f"{target} is there already: name a new file"], FAILED)
    if not target.parent.is_dir():
        fail([f"no folder {target.parent}"], FAILED)


@store.command()
@_of_store
@click.argument("target", metavar="FILE", type=click.Path(path_type=Path))
def backup(place: Place, target: Path) -> None:
    """Copy the store, as it is now, to a new file, and check the copy.

    The copy is a store: `--store` takes it.
    """
    _expect_new(target)
    engine = place.open_to_read()
    try:
        with _progress("Copying", "pages") as progress:
            engine.backup(target, progress)
    finally:
        engine.close()
    copy = SqliteEngine(target, read_only=True, verify=False)
    try:
        found = _check(copy)
    finally:
        copy.close()
        for suffix in ("-wal", "-shm"):  # what a reader leaves
            _beside(target, suffix).unlink(missing_ok=True)
    if found:
        target.unlink()
        fail([f"the store is damaged, and {target} was not made: `trunkline store repair` keeps what is whole"], FAILED)
    click.echo(f"{target}: {target.stat().st_size:,} bytes, checked")


@store.command()
@_of_store
def compact(place: Place) -> None:
    """Give room that is no longer needed back to the file system. The broker must not run."""
    if not place.path.exists():
        fail([f"there is no store {place.path}"], FAILED)
    before = place.path.stat().st_size
    engine = SqliteEngine(place.path)
    try:
        with _progress("Compacting", "bytes") as progress:
            left = total = engine.compact(1)
            while left:
                left = engine.compact(COMPACTED)
                progress(total - left, total)
    finally:
        engine.close()
    click.echo(f"{place.path}: {before:,} bytes before, {place.path.stat().st_size:,} now")


@store.command("export")
@_of_store
@click.argument("target", metavar="FILE", type=click.Path(path_type=Path, allow_dash=True))
def export_store(place: Place, target: Path) -> None:
    """Write all rows as lines of JSON to a new FILE, or to standard output if it is `-`.

    `import` makes a store of them, on any machine.
    """
    if str(target) != "-":
        _expect_new(target)
    engine = place.open_to_read(verify=True)
    try:
        with _progress("Exporting", "rows") as progress:
            lines = export_lines(engine, progress)
            if str(target) == "-":
                for line in lines:
                    click.echo(line)
                return
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                with open(descriptor, "w", encoding="utf-8", newline="\n") as file:
                    file.writelines(f"{line}\n" for line in lines)
                    file.flush()
                    os.fsync(descriptor)
            except BaseException:
                target.unlink()
                raise
    finally:
        engine.close()
    click.echo(f"{target}: {target.stat().st_size:,} bytes")


@store.command("import")
@_of_store
@click.argument("source", metavar="FILE", type=click.File(encoding="utf-8"))
def import_store(place: Place, source: Any) -> None:
    """Make a store of what `export` wrote; `-` is standard input. There must be none at that place yet."""
    make_store_folder(place.settings, place.path)
    if place.path.exists():
        _expect_unused(place.path)
        fail([f"{place.path} is there already: move it away, or name another place with --store"], FAILED)
    try:
        with _lock(place.path), _made_aside(place.path) as engine, _progress("Importing", "rows") as progress:
            counts = import_lines(source, engine, progress)
    except (NotAnExport, UnicodeDecodeError) as error:
        fail([f"{source.name}: {error}"], FAILED)
    click.echo(f"{place.path}: {sum(counts.values()):,} rows")


@store.command()
@_of_store
def repair(place: Place) -> None:
    """Make a new store of all that is whole in a damaged one, and say what is lost. The broker must not run.

    The damaged file stays beside it, as `FILE-damaged`.
    """
    path = place.path
    if not path.exists():
        fail([f"there is no store {path}"], FAILED)
    if not path.is_file():
        fail([f"{path} is no file"], FAILED)
    _expect_unused(path)
    if _is_whole(place):
        click.echo(f"{path}: nothing is damaged; nothing was changed")
        return
    damaged = next(
        name for number in count(1) if not (name := _beside(path, f"-damaged{number if number > 1 else ''}")).exists()
    )
    with _lock(path), _made_aside(path, damaged) as engine, _progress("Reading", "rows") as progress:
        # imported here: it needs the broker
        from trunkline.broker.mending import mend

        spaces, log_defect = salvage(path, engine, progress)
        lost = mend(engine)
        kept = {space: engine.count(space) for space, _, _ in spaces}
        messages = _messages(engine)
    all_there = log_defect is None
    for space, _, former in spaces:
        rows = kept[space]
        missing = "how many there were cannot be told" if former is None else f"{former - rows:,} lost"
        all_there = all_there and former == rows
        click.echo(printable(f"{space.name}: {rows:,} rows kept, {missing}"))
    if messages:
        click.echo(messages)
    for line in lost_messages(lost):
        click.echo(printable(line))
    if log_defect:
        click.echo(printable(f"{path}: {log_defect}"))
    click.echo(f"{path}: made anew; what was there is {damaged}")
    if all_there:
        click.echo("All rows are there.")


def lost_messages(lost: LostMessages) -> Iterator[str]:
    if lost.by_client:
        yield f"lost: {lost.by_client.total():,} messages that waited, of {_most(lost.by_client)}"
    if lost.of_filters:
        yield f"lost: {lost.of_filters:,} messages that waited for filters that are lost"
    if lost.by_stream:
        yield f"lost: {lost.by_stream.total():,} messages in streams, of {_most(lost.by_stream)}"


def _most(losers: Counter[str]) -> str:
    named = [f"{quoted(name)} {count:,}" for name, count in losers.most_common(MAX_NAMED)]
    return ", ".join(named) + (f" and {len(losers) - len(named):,} others" if len(losers) > len(named) else "")


def _set_aside(path: Path, damaged: Path) -> None:
    """The file keeps its name until the new one takes it: at no moment there is none, and a broker would begin anew."""
    log = _beside(path, "-wal")
    if log.exists():
        os.replace(log, _beside(damaged, "-wal"))
    try:
        os.link(path, damaged)
    except OSError:  # the file system has no links
        shutil.copy2(path, damaged)


@contextmanager
def _lock(path: Path) -> Generator[None]:
    lock = FileLock(path)
    try:
        if path.exists():
            lock.lock_store()
        yield
    finally:
        lock.discard()


def _expect_unused(path: Path) -> None:
    with _lock(path):
        pass


@contextmanager
def _made_aside(path: Path, damaged: Path | None = None) -> Generator[SqliteEngine]:
    """A store under another name, which takes its place when it is done, and is gone when it is not. What was there
    becomes `damaged`."""
    aside = _beside(path, "-made")
    _remove(aside)
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
        _beside(path, "-shm").unlink(missing_ok=True)
    finally:
        _remove(aside)


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-lock"):
        _beside(path, suffix).unlink(missing_ok=True)


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
