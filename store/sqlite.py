"""The engine of the standalone broker: one SQLite file, with a write-ahead log and one table for all spaces.

Each row carries a CRC-32 of its space, key and value; each space has a row that counts its rows and adds up their
checksums, written by every commit. So a flipped bit, a lost row and a row that came back are found when they are read
or checked, which SQLite alone does not do.
"""

import os
import sqlite3
import struct
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal, NoReturn
from zlib import crc32

from trunkline.store.batch import Space, WriteBatch
from trunkline.store.engine import Defect, Progress, Row, no_progress
from trunkline.store.errors import (
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreInUse,
    StoreTooNew,
    StoreUnavailable,
)
from trunkline.store.lock import FileLock

#: In the file's header, for `file` and for SQLite's own tools: "Trkl".
APPLICATION_ID: Final = 0x54726B6C
VERSION: Final = 1
Durability = Literal["fsync", "os"]
_SYNCHRONOUS: Final = {"fsync": "FULL", "os": "NORMAL"}
#: The space whose keys are the names of the others, and whose values are theirs: number, rows, sum of checksums.
_SPACES: Final = 0
_TALLY: Final = struct.Struct(">HQQ")
_ERRORS: Final[dict[int, type[StoreError]]] = {
    sqlite3.SQLITE_FULL: StoreFull,
    sqlite3.SQLITE_CORRUPT: StoreCorrupt,
    sqlite3.SQLITE_NOTADB: StoreCorrupt,
    sqlite3.SQLITE_BUSY: StoreInUse,
    sqlite3.SQLITE_LOCKED: StoreInUse,
}
#: Rows a statement: SQLite before 3.32 takes 999 parameters.
_MOST_ROWS: Final = 128
#: Pages that a backup copies between two calls of `progress`.
_PAGES: Final = 256


class _Tally:
    __slots__ = ("number", "rows", "total")

    def __init__(self, number: int, rows: int = 0, total: int = 0) -> None:
        self.number = number
        self.rows = rows
        self.total = total

    def copy(self) -> "_Tally":
        return _Tally(self.number, self.rows, self.total)


def row_crc(number: int, key: bytes, value: bytes) -> int:
    return crc32(value, crc32(key, number << 16 | len(key)))


class SqliteEngine:
    def __init__(
        self, path: Path, *, durability: Durability = "fsync", max_size: int = 0, read_only: bool = False
    ) -> None:
        """`max_size` bounds the file, in bytes; 0 is no limit. With `read_only`, other processes may have the store
        open and write to it: what is read is the state of now, always."""
        self.path = path.resolve()
        self._lock = None if read_only else FileLock(self.path)
        try:
            with self._translated():
                self._tallies = self._open_to_read() if read_only else self._open_to_write(durability, max_size)
        except BaseException:
            self.close()
            raise

    def _connect(self, path: str, *, uri: bool = False) -> sqlite3.Connection:
        return sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0, uri=uri)

    def _open_to_read(self) -> dict[Space, _Tally]:
        self._database = self._connect(f"{self.path.as_uri()}?mode=ro", uri=True)
        self._database.execute("BEGIN")  # one state for all that is read, however long that takes
        return self._read_tallies()

    def _open_to_write(self, durability: Durability, max_size: int) -> dict[Space, _Tally]:
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))  # for its user alone: payloads are in it
        except OSError as error:
            raise StoreUnavailable(f"{self.path} cannot be opened: {error.strerror}") from error
        self._database = self._connect(str(self.path))
        execute = self._database.execute
        execute("PRAGMA journal_mode = WAL")
        execute(f"PRAGMA synchronous = {_SYNCHRONOUS[durability]}")
        if max_size:
            (page_size,) = execute("PRAGMA page_size").fetchone()
            execute(f"PRAGMA max_page_count = {max(1, max_size // page_size)}")
        return self._read_tallies()

    def _read_tallies(self) -> dict[Space, _Tally]:
        execute = self._database.execute
        (application_id,), (version,) = execute("PRAGMA application_id").fetchone(), self._user_version()
        (schema,) = execute("SELECT count(*) FROM sqlite_master").fetchone()
        if not schema and not application_id and self._lock is not None:
            self._create()
        elif application_id != APPLICATION_ID:
            raise StoreCorrupt(f"{self.path} is no store: another program's database lies there")
        elif version > VERSION:
            raise StoreTooNew(f"{self.path} has format {version}, and this Trunkline knows formats up to {VERSION}")
        tallies: dict[Space, _Tally] = {}
        for key, value in self._page(_SPACES, b"", None, -1):
            tallies[Space(key.decode())] = _Tally(*_TALLY.unpack(value))
        return tallies

    def _user_version(self) -> tuple[int]:
        return self._database.execute("PRAGMA user_version").fetchone()  # type: ignore[no-any-return]

    def _create(self) -> None:
        with self._transaction():
            self._database.execute(
                "CREATE TABLE records (space INTEGER, key BLOB, crc INTEGER, value BLOB,"
                " PRIMARY KEY (space, key)) WITHOUT ROWID"
            )
            self._database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            self._database.execute(f"PRAGMA user_version = {VERSION}")

    def commit(self, batch: WriteBatch) -> None:
        changed: dict[Space, _Tally] = {}
        with self._translated(), self._transaction():
            for space, low, high in batch.ranges:
                self._delete_range(self._tally(space, changed), low, high)
            for space, values in batch.values.items():
                self._write(self._tally(space, changed), values)
            tallies = [
                (space.name.encode(), _TALLY.pack(tally.number, tally.rows, tally.total))
                for space, tally in changed.items()
            ]
            self._insert([(_SPACES, key, row_crc(_SPACES, key, value), value) for key, value in tallies])
        self._tallies.update(changed)

    def _tally(self, space: Space, changed: dict[Space, _Tally]) -> _Tally:
        tally = changed.get(space)
        if tally is None:
            known = self._tallies.get(space)
            tally = changed[space] = (
                known.copy() if known else _Tally(1 + len({**self._tallies, **changed}))
            )  # spaces are never removed
        return tally

    def _delete_range(self, tally: _Tally, low: bytes, high: bytes) -> None:
        found = "FROM records WHERE space = ? AND key >= ? AND key < ?"
        bounds = tally.number, low, high
        rows, total = self._database.execute(f"SELECT count(*), ifnull(sum(crc), 0) {found}", bounds).fetchone()
        if rows:
            self._database.execute(f"DELETE {found}", bounds)
            tally.rows -= rows
            tally.total -= total

    def _write(self, tally: _Tally, values: dict[bytes, bytes | None]) -> None:
        number = tally.number
        for keys in _parts(list(values)):
            rows, total = self._database.execute(_old(len(keys)), (number, *keys)).fetchone()
            tally.rows -= rows
            tally.total -= total
        put = [(number, key, row_crc(number, key, value), value) for key, value in values.items() if value is not None]
        tally.rows += len(put)
        tally.total += sum([row[2] for row in put])
        self._insert(put)
        for keys in _parts([key for key, value in values.items() if value is None]):
            self._database.execute(_delete(len(keys)), (number, *keys))

    def _insert(self, rows: list[tuple[int, bytes, int, bytes]]) -> None:
        for part in _parts(rows):
            self._database.execute(_insert(len(part)), [value for row in part for value in row])

    def get(self, space: Space, key: bytes) -> bytes | None:
        page = self.scan(space, key, key + b"\0", limit=1)
        return page[0][1] if page else None

    def scan(
        self, space: Space, low: bytes = b"", high: bytes | None = None, *, limit: int = 1000, weight: int = 1 << 20
    ) -> list[Row]:
        tally = self._tallies.get(space)
        page: list[Row] = []
        if tally is not None:
            with self._translated():
                for key, value in self._page(tally.number, low, high, limit):
                    page.append((key, value))
                    weight -= len(key) + len(value)
                    if weight <= 0:
                        break
        return page

    def _page(self, number: int, low: bytes, high: bytes | None, limit: int) -> Iterator[Row]:
        above = "" if high is None else " AND key < ?"
        sql = f"SELECT key, value, crc FROM records WHERE space = ? AND key >= ?{above} ORDER BY key LIMIT ?"
        for key, value, crc in self._database.execute(sql, (number, low, *([] if high is None else [high]), limit)):
            if not isinstance(value, bytes) or row_crc(number, key, value) != crc:
                self._corrupt(f"space {number}, key {key!r}: the row is not what was written")
            yield key, value

    def count(self, space: Space) -> int:
        tally = self._tallies.get(space)
        return tally.rows if tally else 0

    def spaces(self) -> list[Space]:
        return sorted(self._tallies)

    def check(self, progress: Progress = no_progress) -> Iterator[Defect]:
        del progress
        for (line,) in self._database.execute("PRAGMA integrity_check"):
            if line != "ok":
                yield Defect(str(self.path), line)

    def backup(self, path: Path, progress: Progress = no_progress) -> None:
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except OSError as error:
            raise StoreUnavailable(f"{path} cannot be made: {error.strerror}") from error
        with self._translated():
            copy = self._connect(str(path))
            try:
                self._database.backup(copy, pages=_PAGES, progress=lambda _, left, total: progress(total - left, total))
                copy.execute("PRAGMA journal_mode = DELETE")  # it is one file
            except BaseException:
                copy.close()
                path.unlink()
                raise
            copy.close()

    def compact(self, progress: Progress = no_progress) -> None:
        del progress
        with self._translated():
            self._database.execute("VACUUM")

    def close(self) -> None:
        if hasattr(self, "_database"):
            self._database.close()
        if self._lock is not None:
            self._lock.release()

    def _corrupt(self, finding: str) -> NoReturn:
        raise StoreCorrupt(f"{self.path}: {finding}; `trunkline store repair` keeps what is whole")

    @contextmanager
    def _transaction(self) -> Generator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise

    @contextmanager
    def _translated(self) -> Generator[None]:
        try:
            yield
        except sqlite3.ProgrammingError as error:
            raise StoreUnavailable(f"{self.path}: the store is closed") from error
        except sqlite3.Error as error:
            kind = _ERRORS.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, StoreUnavailable)
            raise kind(f"{self.path}: {error}") from error


def _parts(rows: Sequence[Any]) -> Iterator[Any]:
    """Parts of 128, 64, 32, ... rows, so that few statements are ever prepared."""
    remaining = iter(rows)
    left = len(rows)
    while left:
        size = min(_MOST_ROWS, 1 << (left.bit_length() - 1))
        yield list(islice(remaining, size))
        left -= size


@cache
def _insert(rows: int) -> str:
    return f"INSERT OR REPLACE INTO records VALUES {', '.join(['(?, ?, ?, ?)'] * rows)}"


@cache
def _old(rows: int) -> str:
    found = f"space = ? AND key IN ({', '.join('?' * rows)})"
    return f"SELECT count(*), ifnull(sum(crc), 0) FROM records WHERE {found}"


@cache
def _delete(rows: int) -> str:
    return f"DELETE FROM records WHERE space = ? AND key IN ({', '.join('?' * rows)})"
