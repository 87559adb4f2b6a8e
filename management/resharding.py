"""The store of a node, divided among another number of workers. The new parts are made in a folder beside it, and take
its place together."""

from __future__ import annotations

import shutil
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from trunkline.config.store_place import shard_path, workers_path
from trunkline.management.command_line import FAILED, fail
from trunkline.management.store_checking import is_whole
from trunkline.management.store_export import import_lines
from trunkline.management.store_files import locked
from trunkline.management.store_place import progress_of
from trunkline.management.workers.terms import content, read_workers
from trunkline.store import StoreCorrupt, StoreFull, StoreUnavailable
from trunkline.store.replacing import begin, beside, discard, finish, next_folder, replace
from trunkline.store.sqlite import SqliteEngine

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Sequence
    from pathlib import Path

    from trunkline.management.store_place import Place, StorePart


def reshard_store(place: Place, count: int) -> bool:
    """Returns whether there was something to do.

    Raises:
        StoreError: it cannot be done. The store is as it was.
    """
    path = place.path
    with locked(path):
        finish(path)
    former = place.parts
    if len(former) == count:
        return False
    _expect_undamaged(former)
    with ExitStack() as locks:
        for each in {path, *[part.path for part in former]}:
            locks.enter_context(locked(each))
        recorded = read_workers(workers_path(path))
        try:
            cure = f"start the node once with node.workers = {len(former)}, and stop it"
            with _advising(cure), _opened_to_read([part.path for part in former]) as engines:
                _make_parts(place, engines, count)
            _put_in_place(path, count, _names(path, len(former)), 0 if recorded is None else recorded[1])
        except StoreFull as error:
            raise StoreFull(f"{error}; nothing was changed") from error
        finally:
            discard(path)
    return True


def import_store(place: Place, lines: Iterable[str]) -> int:
    """Make a store of an export, of as many parts as the node has workers. Returns how many rows it has.

    Raises:
        NotAnExport: there is something else.
        StoreError: it cannot be done. There is no store.
    """
    # imported here: it needs the broker
    from trunkline.broker.shards.outbox import OUTBOX

    path, count = place.path, 1 if place.is_part else place.config.node.worker_count
    aside = beside(path, "-imported")
    files: list[Path] = []

    def engine_for(number: int, parts: int) -> SqliteEngine:
        if number == 0:
            if place.is_part and parts > 1:
                fail([f"{path} is one part, and the export is that of {parts}"], FAILED)
            files.append(begin(path if parts == count else aside))
        files.append(files[0] / part_path(path, number, parts).name)
        engine = SqliteEngine(files[-1])
        engines.callback(engine.close)
        return engine

    with locked(path):
        try:
            with ExitStack() as engines, progress_of("Importing", "rows") as progress:
                rows = import_lines(lines, engine_for, progress)
            if len(files) == 2 and not place.is_part and (unsent := rows.get(OUTBOX.name)):
                what = f"{unsent:,} rows of {OUTBOX.name}, publications that others have not got yet"
                fail([f"the export is that of one part of several, with {what}: export the whole store"], FAILED)
            if len(files) - 1 != count:
                cure = f"import it with node.workers = {len(files) - 1}, start the node once, and divide its store then"
                with _advising(cure), _opened_to_read(files[1:]) as former:
                    _make_parts(place, former, count)
            _put_in_place(path, count, (), 0)
        finally:
            discard(path)
            discard(aside)
    return sum(rows.values())


def _expect_undamaged(parts: Sequence[StorePart]) -> None:
    """Before they are locked: a log is looked at that nobody writes."""
    for part in parts:
        if not is_whole(part):
            raise StoreCorrupt(
                f"{part.path} is damaged, and nothing was changed: `trunkline store check` says how, and `trunkline"
                " store repair` keeps what is whole"
            )


def part_path(path: Path, number: int, count: int) -> Path:
    """Of one of so many parts of the store that would lie at this path."""
    return path if count == 1 else shard_path(path, number)


def _names(path: Path, count: int) -> list[str]:
    """Of all files of a store."""
    names = [part_path(path, number, count).name for number in range(count)]
    return names if count == 1 else [*names, workers_path(path).name]


@contextmanager
def _opened_to_read(files: Sequence[Path]) -> Generator[list[SqliteEngine]]:
    with ExitStack() as stack:
        engines = list[SqliteEngine]()
        for file in files:
            engines.append(SqliteEngine(file, read_only=True, verify=False))
            stack.callback(engines[-1].close)
        yield engines


def _make_parts(place: Place, former: Sequence[SqliteEngine], count: int) -> None:
    # imported here: it needs the broker
    from trunkline.broker.resharding.resharding import reshard

    _expect_room(place, former, count)
    folder = begin(place.path)
    with ExitStack() as stack, progress_of("Dividing", "rows") as progress:
        new = list[SqliteEngine]()
        for number in range(count):
            new.append(SqliteEngine(folder / part_path(place.path, number, count).name))
            stack.callback(new[-1].close)
        reshard(former, new, upgrade_qos=place.config.session.upgrade_qos, progress=progress)


@contextmanager
def _advising(cure: str) -> Generator[None]:
    """`cure` is what to do where a node has to run with the store first."""
    from trunkline.broker.resharding.resharding import StartNeeded

    try:
        yield
    except StartNeeded as error:
        raise StoreUnavailable(f"{error}: {cure}") from None


def _put_in_place(path: Path, count: int, former: Collection[str], term: int) -> None:
    """What was made. `term` is the last one of a worker."""
    if count > 1:
        (next_folder(path) / workers_path(path).name).write_text(content(count, term), encoding="utf-8")
    replace(path, former)


def _expect_room(place: Place, former: Sequence[SqliteEngine], count: int) -> None:
    from trunkline.broker.resharding import sizes

    folder = place.path.parent
    free = shutil.disk_usage(folder).free
    if free >= sizes.most(former, count):
        return
    with progress_of("Counting", "rows") as progress:
        needed = sizes.counted(former, count, upgrade_qos=place.config.session.upgrade_qos, progress=progress)
    if free < needed:
        present = sum(engine.size() for engine in former)
        raise StoreFull(
            f"{folder} has {free:,} free bytes, and the parts of {count} workers take about {needed:,} while they are"
            f" made, beside the {present:,} of the present store: make room, and try again"
        )
