"""`trunkline store`: what is in the broker's store, copies of it, its repair, and its division among workers."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import ExitStack, closing
from itertools import count as count_up
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from trunkline.config.store_place import make_store_folder, workers_path
from trunkline.config.units import MAX_WORKERS
from trunkline.management.command_line import BAD_USAGE, FAILED, fail
from trunkline.management.ctl_output import print_columns
from trunkline.management.logs import printable
from trunkline.management.resharding import import_store as import_into
from trunkline.management.resharding import reshard_store
from trunkline.management.store_checking import is_whole, lost_messages, messages, print_defects
from trunkline.management.store_export import NotAnExport, export_lines
from trunkline.management.store_files import expect_unused, locked, made_aside
from trunkline.management.store_place import of_store, progress_of
from trunkline.store.format import sync_folder
from trunkline.store.replacing import LOGS, beside, remove
from trunkline.store.salvage import salvage
from trunkline.store.sqlite import SqliteEngine

if TYPE_CHECKING:
    from collections.abc import Iterator, Sized

    from trunkline.management.store_place import Place, StorePart

#: Bytes that are given back between two steps of the progress.
COMPACTED: Final = 4 << 20


@click.group()
def store() -> None:
    """Look at the broker's store, copy it, repair it, and divide it among another number of workers.

    `info`, `check`, `backup` and `export` work while the broker runs. Where the store is divided among several workers,
    each command is for all parts; `--store …/NODE.0.db` names one.

    The exit code is 1 if a command fails or `check` finds something, and 2 if the command or the configuration is
    wrong.
    """


@store.command()
@of_store
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def info(place: Place, as_json: bool) -> None:
    """Show what is in the store, and how large it is."""
    found = list[dict[str, Any]]()
    code = place.for_each_part(lambda part: found.append(_info(part)), named=False)
    if not found:
        raise SystemExit(code)
    totals = dict[str, int]()
    for each in found:
        for name, rows in each["rows"].items():
            totals[name] = totals.get(name, 0) + rows
    size = sum(each["size"] for each in found)
    if as_json:
        whole = {"path": str(place.path), "size": size, "rows": totals, "parts": found}
        click.echo(json.dumps(whole if place.is_divided else found[0]))
    else:
        _print_info(place, found, totals, size)
    if code:
        raise SystemExit(code)


def _print_info(place: Place, found: list[dict[str, Any]], totals: dict[str, int], size: int) -> None:
    for each in found:
        click.echo(f"{printable(each['path'])}: format {each['format']}, {each['size']:,} bytes")
    if place.is_divided:
        click.echo(f"{printable(str(place.path))}: {_parts(place, found)}, {size:,} bytes")
    if totals:
        columns: list[dict[str, Any]] = [*(found if place.is_divided else ()), {"rows": totals}]
        heads = [each["part"] for each in columns[:-1]]
        rows = [[printable(name), *[f"{each['rows'].get(name, 0):,}" for each in columns]] for name in sorted(totals)]
        print_columns(["space", *heads, "rows"], rows, [])


def _parts(place: Place, done: Sized) -> str:
    """How many of its parts a sum is of."""
    every = len(place.parts)
    return f"{every} parts" if len(done) == every else f"{len(done)} of {every} parts"


def _info(part: StorePart) -> dict[str, Any]:
    with closing(part.open_to_read()) as engine:
        counts = {space.name: engine.count(space) for space in engine.spaces()}
        about = {"path": str(part.path), "format": engine.format, "size": engine.size(), "rows": counts}
        return {"part": part.name, **about} if part.name else about


@store.command()
@of_store
def check(place: Place) -> None:
    """Read the whole store and report what is damaged: then the exit code is 1."""
    found = list[tuple[int, int]]()
    code = place.for_each_part(lambda part: found.append(_checked(part)))
    if place.is_divided and found:
        click.echo(f"{_parts(place, found)}, {_rows_and_problems(*map(sum, zip(*found, strict=True)))}")
    if code or any(problems for _, problems in found):
        raise SystemExit(FAILED)


def _checked(part: StorePart) -> tuple[int, int]:
    """How many rows there are, and how many problems."""
    with closing(part.open_to_read()) as engine:
        problems = print_defects(engine)
        rows = sum(map(engine.count, engine.spaces()))
        counted = "" if problems else messages(engine)
    if not problems:
        part.open_to_read(verify=True).close()  # looks at the log too
    click.echo(_rows_and_problems(rows, problems))
    if counted:
        click.echo(counted)
    return rows, problems


def _rows_and_problems(rows: int, problems: int) -> str:
    return f"{rows:,} rows: {problems or 'no'} problem{'s' * (problems != 1)}"


@store.command()
@of_store
@click.argument("target", metavar="TARGET", type=click.Path(path_type=Path))
def backup(place: Place, target: Path) -> None:
    """Copy the store, as it is now, to a new file, and check the copy. That of several workers is copied to a new
    folder, a file for each.

    The copy is a store: `--store` takes it.
    """
    _expect_new(target)
    parts = place.parts
    with ExitStack() as stack:
        # all are opened before the first is copied: what each has is that of this moment
        engines = [stack.enter_context(closing(part.open_to_read())) for part in parts]
        if not place.is_divided:
            _copy(engines[0], target)
        else:
            _copy_parts(place, engines, target)
    if place.is_divided:
        size = sum(file.stat().st_size for file in target.iterdir())
        click.echo(f"{target}: {len(parts)} parts, {size:,} bytes, checked; `--store {target / place.path.name}`")
    else:
        click.echo(f"{target}: {target.stat().st_size:,} bytes, checked")


def _copy_parts(place: Place, engines: list[SqliteEngine], target: Path) -> None:
    """It has its name when it is whole."""
    new = beside(target, "-new")
    shutil.rmtree(new, ignore_errors=True)  # of a process that was killed
    new.mkdir(mode=0o700)
    try:
        for part, engine in zip(place.parts, engines, strict=True):
            _copy(engine, new / part.path.name, part.name)
        shutil.copy2(workers_path(place.path), new)
        sync_folder(new)
        os.rename(new, target)
        sync_folder(target.parent)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise


def _copy(engine: SqliteEngine, target: Path, name: str = "") -> None:
    """Checked."""
    with progress_of(f"Copying {name}".rstrip(), "pages") as progress:
        engine.backup(target, progress)
    copy = SqliteEngine(target, read_only=True, verify=False)
    try:
        found = print_defects(copy)
    finally:
        copy.close()
        remove(target, LOGS)  # what a reader leaves
    if found:
        target.unlink()
        what = f"{name} of the store" if name else "the store"
        fail([f"{what} is damaged, and {target} was not made: `trunkline store repair` keeps what is whole"], FAILED)


def _expect_new(target: Path) -> None:
    if os.path.lexists(target):
        fail([f"{target} is there already: name another"], FAILED)
    if not target.parent.is_dir():
        fail([f"no folder {target.parent}"], FAILED)


@store.command()
@of_store
def compact(place: Place) -> None:
    """Give room that is no longer needed back to the file system. The broker must not run."""
    sizes = list[tuple[int, int]]()
    code = place.for_each_part(lambda part: sizes.append(_compacted(part.path)))
    if place.is_divided and sizes:
        before, now = map(sum, zip(*sizes, strict=True))
        click.echo(f"{_parts(place, sizes)}: {before:,} bytes before, {now:,} now")
    if code:
        raise SystemExit(code)


def _compacted(path: Path) -> tuple[int, int]:
    """Bytes of the file before, and now."""
    if not path.exists():
        fail([f"there is no store {path}"], FAILED)
    before = path.stat().st_size
    engine = SqliteEngine(path)
    try:
        with progress_of("Compacting", "bytes") as progress:
            left = total = engine.compact(1)
            while left:
                left = engine.compact(COMPACTED)
                progress(total - left, total)
    finally:
        engine.close()
    now = path.stat().st_size
    click.echo(f"{path}: {before:,} bytes before, {now:,} now")
    return before, now


@store.command("export")
@of_store
@click.argument("target", metavar="FILE", type=click.Path(path_type=Path, allow_dash=True))
def export_store(place: Place, target: Path) -> None:
    """Write all rows as lines of JSON to a new FILE, or to standard output if it is `-`.

    `import` makes a store of them, on any machine, for a node of any number of workers.
    """
    if str(target) == "-":
        for line in _exported(place):
            click.echo(line)
        return
    _expect_new(target)
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{line}\n" for line in _exported(place))
            file.flush()
            os.fsync(descriptor)
    except BaseException:
        target.unlink()
        raise
    click.echo(f"{target}: {target.stat().st_size:,} bytes")


def _exported(place: Place) -> Iterator[str]:
    parts = place.parts
    with ExitStack() as stack:
        # all are opened before the first is read, as for a backup
        engines = [stack.enter_context(closing(part.open_to_read(verify=True))) for part in parts]
        for number, (part, engine) in enumerate(zip(parts, engines, strict=True)):
            with progress_of(f"Exporting {part.name}".rstrip(), "rows") as progress:
                yield from export_lines(engine, progress, (number, len(parts)) if place.is_divided else None)


@store.command("import")
@of_store
@click.argument("source", metavar="FILE", type=click.File(encoding="utf-8"))
def import_store(place: Place, source: Any) -> None:
    """Make a store of what `export` wrote; `-` is standard input. There must be none at that place yet.

    It is divided among as many workers as the configuration says.
    """
    make_store_folder(place.config.store, place.path)
    place.expect_settled()
    for path in (place.path, workers_path(place.path)):
        if path.exists():
            expect_unused(place.path)
            fail([f"{path} is there already: move it away, or name another place with --store"], FAILED)
    try:
        rows = import_into(place, source)
    except (NotAnExport, UnicodeDecodeError) as error:
        fail([f"{source.name}: {error}"], FAILED)
    click.echo(f"{place.path}: {rows:,} rows{_in_parts(place)}")


def _in_parts(place: Place) -> str:
    return f" in {len(place.parts)} parts" if place.is_divided else ""


@store.command()
@of_store
@click.argument("count", metavar="N", type=click.IntRange(1, MAX_WORKERS))
def reshard(place: Place, count: int) -> None:
    """Divide the store among N workers, as `node.workers` says from then on. The broker must not run.

    Every session goes to its worker with all that it has. The new store takes the place of the present one at once: a
    command that is interrupted leaves one of the two. Make a backup before.
    """
    if os.name == "nt" and count > 1:
        fail(["this system has one process for all"], BAD_USAGE)
    if place.is_part:
        fail([f"{place.path} is one part of a store: name the whole one"], BAD_USAGE)
    if reshard_store(place, count):
        click.echo(f"{place.path}: divided among {count} workers" if count > 1 else f"{place.path}: one store")
        click.echo(f"Set node.workers to {count}.")
    else:
        click.echo(f"{place.path}: it is that of {count} worker{'s' * (count > 1)}; nothing was changed")


@store.command()
@of_store
def repair(place: Place) -> None:
    """Make a new store of all that is whole in a damaged one, and say what is lost. The broker must not run.

    The damaged file stays beside it, as `FILE-damaged`.
    """
    if code := place.for_each_part(_repair):
        raise SystemExit(code)


def _repair(part: StorePart) -> None:
    path = part.path
    if not path.exists():
        fail([f"there is no store {path}"], FAILED)
    if not path.is_file():
        fail([f"{path} is no file"], FAILED)
    expect_unused(path)
    if is_whole(part):
        click.echo(f"{path}: nothing is damaged; nothing was changed")
        return
    damaged = next(
        name for number in count_up(1) if not (name := beside(path, f"-damaged{number if number > 1 else ''}")).exists()
    )
    with locked(path), made_aside(path, damaged) as engine, progress_of("Reading", "rows") as progress:
        # imported here: it needs the broker
        from trunkline.broker.mending import mend

        spaces, log_defect = salvage(path, engine, progress)
        lost = mend(engine)
        kept = {space: engine.count(space) for space, _, _ in spaces}
        counted = messages(engine)
    all_there = log_defect is None
    for space, _, former in spaces:
        rows = kept[space]
        missing = "how many there were cannot be told" if former is None else f"{former - rows:,} lost"
        all_there = all_there and former == rows
        click.echo(printable(f"{space.name}: {rows:,} rows kept, {missing}"))
    if counted:
        click.echo(counted)
    for line in lost_messages(lost):
        click.echo(printable(line))
    if log_defect:
        click.echo(printable(f"{path}: {log_defect}"))
    click.echo(f"{path}: made anew; what was there is {damaged}")
    if all_there:
        click.echo("All rows are there.")
