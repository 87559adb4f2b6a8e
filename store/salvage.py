"""What is whole of a damaged store: every row that is in use and whose checksum is right, wherever the file was damaged
or cut off."""

from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from trunkline.store.batch import Space, WriteBatch
from trunkline.store.checking import is_whole
from trunkline.store.engine import Engine, Progress, no_progress
from trunkline.store.errors import StoreCorrupt, StoreUnavailable
from trunkline.store.format import CLOSED, ROOTS
from trunkline.store.log_file import log_defect
from trunkline.store.pages import Pages

#: Bytes of rows that are committed at a time.
_BATCH: Final = 4 << 20


class Salvaged(NamedTuple):
    space: Space
    rows: int
    #: How many there were; None if that is damaged too.
    former: int | None


def salvage(path: Path, into: Engine, progress: Progress = no_progress) -> tuple[list[Salvaged], str | None]:
    """Copy all whole rows of a store that no broker has open. Returns what is wrong with its log, too.

    Raises:
        StoreCorrupt: nothing of it can be read.
        StoreError: the other store does not take them.
    """
    try:
        with closing(Pages(path)) as pages:
            spaces = _spaces(pages)
            if not spaces:
                raise StoreCorrupt(
                    f"nothing of {path} can be read, and nothing was changed: if it was a store, put a backup in its"
                    " place"
                )
            _copy(pages, spaces, into, progress)
            log = path.with_name(f"{path.name}-wal")
            was_there = log.exists() and log.stat().st_size > 0
            defect = log_defect(log, _state(pages), lambda: pages.committed.frames, was_there=was_there)
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be read: {error.strerror or error}") from error
    return sorted(Salvaged(space, into.count(space), former) for space, former in spaces.values()), defect


def _copy(pages: Pages, spaces: dict[int, tuple[Space, int | None]], into: Engine, progress: Progress) -> None:
    total = sum(former or 0 for _, former in spaces.values())
    batch, done = WriteBatch(), 0
    for page in pages.below([ROOTS["records"]]):
        for _, columns in pages.rows(page):
            match columns:
                case (int(number), bytes(key), crc, bytes(value)) if number in spaces:
                    if is_whole(number, key, crc, value):
                        batch.put(spaces[number][0], key, value)
                        done += 1
                case _:
                    pass  # of another table
        if batch.weight >= _BATCH:
            _commit(batch, into)
            batch = WriteBatch()
            progress(done, max(total, done))
    _commit(batch, into)
    progress(total, total)


def _commit(batch: WriteBatch, into: Engine) -> None:
    into.commit(batch)
    into.maintain()


def _spaces(pages: Pages) -> dict[int, tuple[Space, int | None]]:
    """By number: from the table, or else from its index, which has no counts."""
    found = dict[int, tuple[Space, int | None]]()
    for page in pages.below([ROOTS["sqlite_autoindex_spaces_1"], ROOTS["spaces"]]):
        for rowid, columns in pages.rows(page):
            match columns:
                case (None, str(name), int(rows), int()):
                    found[rowid] = Space(name), rows
                case (str(name), int(number)):
                    found.setdefault(number, (Space(name), None))
                case _:
                    pass  # of another table
    return found


def _state(pages: Pages) -> str:
    for _, columns in pages.rows(ROOTS["meta"]):
        match columns:
            case ("state", str(state)):
                return state
            case _:
                pass
    return CLOSED  # else a log would be missed
