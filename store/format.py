"""The tables of a store's file, their version, and how a file comes to be and comes up to date."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final
from zlib import crc32

#: In the file's header, as `file` and SQLite's own tools show it: "Trkl".
APPLICATION_ID: Final = 0x54726B6C
VERSION: Final = 3
#: The first with these tables: what only reads takes it as it is.
SAME_TABLES: Final = 1
PAGE_SIZE: Final = 4096
#: The state of a store.
CLOSED: Final = "closed"
OPEN: Final = {"fsync": "open", "os": "open, not synced"}

# `records` has a rowid: with its rows in the index itself (WITHOUT ROWID), random keys cost three times as much and
# values above 1 kB twice as much. The index is also a second copy of every key, which a check compares.
_TABLES: Final = f"""
    BEGIN;
    -- state: how a process writes, so that a log that it needs and that got lost is missed; or that none does
    CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    INSERT INTO meta VALUES ('state', '{CLOSED}');
    -- how many rows a space has, and the sum of their checksums
    CREATE TABLE spaces (
        number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, rows INTEGER NOT NULL, total INTEGER NOT NULL
    );
    CREATE TABLE records (
        space INTEGER NOT NULL, key BLOB NOT NULL, crc INTEGER NOT NULL, value BLOB NOT NULL, PRIMARY KEY (space, key)
    );
    PRAGMA application_id = {APPLICATION_ID};
    PRAGMA user_version = {VERSION};
    COMMIT;
"""

#: The first page of each. It stays, whatever SQLite does.
ROOTS: Final = {"meta": 3, "spaces": 4, "sqlite_autoindex_spaces_1": 5, "records": 6, "sqlite_autoindex_records_1": 7}

#: A batch's rows go into this view: put; without checksum and value, delete; without a checksum, delete from the key on
#: and below the value. No part of the file, but of each connection that writes.
CHANGES: Final = """
    CREATE TEMP VIEW changes AS SELECT space, key, crc, value FROM records;
    CREATE TEMP TRIGGER put INSTEAD OF INSERT ON changes WHEN NEW.crc IS NOT NULL BEGIN
        INSERT INTO records (space, key, crc, value) VALUES (NEW.space, NEW.key, NEW.crc, NEW.value)
        ON CONFLICT (space, key) DO UPDATE SET crc = excluded.crc, value = excluded.value;
    END;
    CREATE TEMP TRIGGER remove INSTEAD OF INSERT ON changes WHEN NEW.crc IS NULL AND NEW.value IS NULL BEGIN
        DELETE FROM records WHERE space = NEW.space AND key = NEW.key;
    END;
    CREATE TEMP TRIGGER remove_range INSTEAD OF INSERT ON changes WHEN NEW.crc IS NULL AND NEW.value IS NOT NULL BEGIN
        DELETE FROM records WHERE space = NEW.space AND key >= NEW.key AND key < NEW.value;
    END;
    CREATE TEMP TRIGGER added AFTER INSERT ON records BEGIN
        UPDATE spaces SET rows = rows + 1, total = total + NEW.crc WHERE number = NEW.space;
    END;
    CREATE TEMP TRIGGER changed AFTER UPDATE ON records BEGIN
        UPDATE spaces SET total = total - OLD.crc + NEW.crc WHERE number = NEW.space;
    END;
    CREATE TEMP TRIGGER removed AFTER DELETE ON records BEGIN
        UPDATE spaces SET rows = rows - 1, total = total - OLD.crc WHERE number = OLD.space;
    END;
"""

#: Version to what makes the next one of it, inside a transaction. The tables are the same, and rows say more of others
#: in version 2 (of references), and are elsewhere in version 3 (`trunkline.broker.former_queues`): a
#: process that knows an earlier one must not change them.
MIGRATIONS: Final[dict[int, Callable[[sqlite3.Connection], object]]] = {1: lambda _: None, 2: lambda _: None}

#: Where the header has the application's id.
_ID_AT: Final = 68


def is_foreign(path: Path) -> bool:
    """Whether it does not say that it is a store: it is something else, or its first page is damaged."""
    with open(path, "rb") as file:
        file.seek(_ID_AT)
        return file.read(4) != APPLICATION_ID.to_bytes(4, "big")


def schema(database: sqlite3.Connection) -> list[tuple[str, ...]]:
    """What SQLite would take for the tables: a bit in their text may have changed the meaning of what is in them."""
    rows = database.execute("SELECT type, name, tbl_name, ifnull(sql, '') FROM sqlite_master ORDER BY name").fetchall()
    return [(kind, name, table, " ".join(str(sql).split())) for kind, name, table, sql in rows]


def _schema() -> list[tuple[str, ...]]:
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(_TABLES)
        return schema(database)


SCHEMA: Final = _schema()


def row_crc(space: int, key: bytes, value: bytes) -> int:
    return crc32(value, crc32(key, space << 16 ^ len(key)))


def create(path: Path) -> None:
    """Make an empty store, whole or not at all: a file that is empty or cut off is never a new one."""
    new = path.with_name(f"{path.name}-new")
    new.with_name(f"{new.name}-journal").unlink(missing_ok=True)
    touch(new)
    database = sqlite3.connect(new, isolation_level=None)
    try:
        database.execute(f"PRAGMA page_size = {PAGE_SIZE}")
        # 2 % dearer writes, for a file that shrinks in bounded steps
        database.execute("PRAGMA auto_vacuum = INCREMENTAL")
        database.executescript(_TABLES)
        database.execute("PRAGMA journal_mode = WAL")
    finally:
        database.close()
    publish(new, path)


def touch(path: Path, *, new: bool = False) -> None:
    """Make an empty file for its user alone, as messages will be in it. `new`: there must be none."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | (os.O_EXCL if new else os.O_TRUNC), 0o600))


def publish(new: Path, path: Path) -> None:
    """Give a finished file its name, for good."""
    sync_file(new)
    os.replace(new, path)
    sync_folder(path.parent)


def sync_file(path: Path) -> None:
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """What names are in it, where the system has that."""
    if os.name == "posix":
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def migrate(database: sqlite3.Connection, version: int) -> int:
    """Bring the tables up to date in one transaction. Returns their version."""
    if version < VERSION:
        database.execute("BEGIN IMMEDIATE")
        try:
            for old in range(version, VERSION):
                MIGRATIONS[old](database)
            database.execute(f"PRAGMA user_version = {VERSION}")
            database.execute("COMMIT")
        except BaseException:
            database.execute("ROLLBACK")
            raise
    return VERSION
