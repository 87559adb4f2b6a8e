"""What is whole of a damaged store: every row whose checksum is right, as far as SQLite finds a way to it.

SQLite stops at the first page that makes no sense. The walk goes on behind it, and comes back towards it from there, so
that a damaged page costs the rows that were in it.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from trunkline.store.batch import Space, WriteBatch
from trunkline.store.checking import is_whole
from trunkline.store.engine import Engine, Progress, no_progress
from trunkline.store.errors import StoreCorrupt

#: Bytes of rows that are committed at a time.
_BATCH: Final = 4 << 20
_MAX_ROWID: Final = (1 << 63) - 1

_Found = tuple[int, object, object, object, object]


class Salvaged(NamedTuple):
    space: Space
    rows: int
    #: How many there were; None if that is damaged too.
    former: int | None


def salvage(path: Path, into: Engine, progress: Progress = no_progress) -> list[Salvaged]:
    """Copy all whole rows of a store that no broker has open.

    Raises:
        StoreCorrupt: nothing of it can be read.
        StoreError: the other store does not take them.
    """
    database = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, isolation_level=None)
    try:
        database.execute("PRAGMA writable_schema = ON")  # else SQLite opens no file that is shorter than it says
        spaces = _spaces(database, path)
        total = sum(former or 0 for _, former in spaces.values())
        kept = dict.fromkeys(spaces, 0)
        batch = WriteBatch()
        for done, (_, number, key, crc, value) in enumerate(_walk(database), 1):
            if is_whole(number, key, crc, value) and number in spaces:
                assert isinstance(number, int)
                assert isinstance(key, bytes)
                assert isinstance(value, bytes)
                batch.put(spaces[number][0], key, value)
                kept[number] += 1
            if batch.weight >= _BATCH:
                _commit(batch, into)
                batch = WriteBatch()
                progress(done, max(total, done))
        _commit(batch, into)
        progress(total, total)
    finally:
        database.close()
    return sorted(Salvaged(space, kept[number], former) for number, (space, former) in spaces.items())


def _commit(batch: WriteBatch, into: Engine) -> None:
    into.commit(batch)
    into.maintain()


def _spaces(database: sqlite3.Connection, path: Path) -> dict[int, tuple[Space, int | None]]:
    """By number: from the table, or else from its index, which has no counts."""
    for rows, source in (("rows", "NOT INDEXED"), ("NULL", "INDEXED BY sqlite_autoindex_spaces_1")):
        try:
            found = database.execute(f"SELECT number, name, {rows} FROM spaces {source} ORDER BY name").fetchall()
            return {number: (Space(name), former) for number, name, former in found}
        except sqlite3.Error as error:
            cause = error
    raise StoreCorrupt(f"nothing of {path} can be read: {cause}; put a backup in its place")


def _walk(database: sqlite3.Connection) -> Iterator[_Found]:
    last, damaged = 0, True
    while damaged:
        damaged = False
        try:
            for found in _rows(database, last, _MAX_ROWID, "ASC"):
                last = found[0]
                yield found
        except sqlite3.Error:
            damaged = True
            behind = _behind(database, last)
            if behind is None:
                return
            with suppress(sqlite3.Error):  # the damage again, from its other side
                yield from _rows(database, last, behind, "DESC")
            last = behind - 1


def _behind(database: sqlite3.Connection, last: int) -> int | None:
    """The rowid of a row that can be read again; None if there is none."""
    step = 1
    while last + step <= _MAX_ROWID:
        try:
            for found in _rows(database, last + step - 1, _MAX_ROWID, "ASC"):
                return found[0]
            return None
        except sqlite3.Error:
            step *= 2
    return None


def _rows(database: sqlite3.Connection, after: int, before: int, order: str) -> Iterator[_Found]:
    between = f"rowid > ? AND rowid < ? ORDER BY rowid {order}"
    return database.execute(
        f"SELECT rowid, space, key, crc, value FROM records NOT INDEXED WHERE {between}", (after, before)
    )
