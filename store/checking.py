"""What can be wrong with the file of a store, and how it is found."""

import sqlite3
from collections.abc import Iterator
from typing import Any

from trunkline.store.batch import Space
from trunkline.store.engine import Defect, Progress
from trunkline.store.format import CLOSED, OPEN, SCHEMA, row_crc, schema


def structure(database: sqlite3.Connection, most: int = 1000) -> Iterator[Defect]:
    """Without reading values: pages that do not fit, keys that are not the same in the table and in its index, rows
    that are missing or came back."""
    if schema(database) != SCHEMA:
        yield Defect(None, None, "its tables are not those of a store")
    for (line,) in database.execute(f"PRAGMA integrity_check({most})").fetchall():
        if line != "ok":
            yield Defect(None, None, " ".join(line.split()))
    if state(database) not in (CLOSED, *OPEN.values()):
        yield Defect(None, None, "whether it was closed is not known")
    sums = "SELECT {}, ifnull(sum({}), 0) FROM {}"
    found = database.execute(sums.format("count(*)", "crc", "records NOT INDEXED")).fetchone()
    if found != database.execute(sums.format("ifnull(sum(rows), 0)", "total", "spaces")).fetchone():
        yield Defect(None, None, "rows are missing, or are not those that were written")


def state(database: sqlite3.Connection) -> str:
    (found,) = database.execute("SELECT value FROM meta WHERE name = 'state'").fetchone() or ("",)
    return str(found)


def contents(database: sqlite3.Connection, progress: Progress) -> Iterator[Defect]:
    """Every row."""
    spaces = {number: Space(name) for number, name in database.execute("SELECT number, name FROM spaces")}
    (total,) = database.execute("SELECT ifnull(sum(rows), 0) FROM spaces").fetchone()
    rows = database.execute("SELECT space, key, crc, value FROM records NOT INDEXED")
    for done, (number, key, crc, value) in enumerate(rows, 1):
        if not is_whole(number, key, crc, value):
            yield Defect(spaces.get(number), key if isinstance(key, bytes) else None, "the row is not what was written")
        if not done % 1000 or done == total:
            progress(done, total)


def is_whole(number: Any, key: Any, crc: object, value: Any) -> bool:
    """Whether a row is what was written. A bit may have changed the type of a field."""
    try:
        return row_crc(number, key, value) == crc
    except TypeError:
        return False
