"""SQLite over a file layer of ours: it records what is written and synced, and fails when it is asked to.

The engine uses sqlite3 of the standard library, whose file layer cannot be replaced; apsw's can. So the engine's
connections are made with apsw, in a dress of sqlite3.
"""

import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import apsw

SECTOR = 512
#: Of errors that the layer raises.
CODES: dict[type[Exception], int] = {
    apsw.IOError: sqlite3.SQLITE_IOERR,
    apsw.FullError: sqlite3.SQLITE_FULL,
    apsw.ReadOnlyError: sqlite3.SQLITE_READONLY,
}


class Operation(NamedTuple):
    """On a file, by the end of its name; "acknowledged" stands for a commit that has returned."""

    what: str
    suffix: str = ""
    offset: int = 0
    data: bytes = b""


class Disk:
    """Records, and raises what `fail` returns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.operations: list[Operation] = []
        self.fail: Callable[[Operation], Exception | None] = lambda _: None
        self.layer = _Layer(self)

    def note(self, what: str, name: str, offset: int = 0, data: bytes = b"") -> None:
        operation = Operation(what, name.removeprefix(str(self.path)), offset, bytes(data))
        if error := self.fail(operation):
            raise error
        self.operations.append(operation)

    def connect(self, name: str | Path, **options: Any) -> Any:
        if "uri" not in options:
            return sqlite3.connect(name, **options)
        return _Connection(f"{name}&vfs={self.layer.name}")

    def install(self, monkeypatch: Any) -> None:
        monkeypatch.setattr("trunkline.store.sqlite.sqlite3.connect", self.connect)


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: Any, flags: Any) -> None:
        super().__init__("", name, flags)
        self._disk = disk
        self._name = name.filename() if isinstance(name, apsw.URIFilename) else name or "temporary"

    def xWrite(self, data: bytes, offset: int) -> None:
        self._disk.note("write", self._name, offset, data)
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:
        self._disk.note("truncate", self._name, newsize)
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:
        self._disk.note("sync", self._name)
        super().xSync(flags)


class _Layer(apsw.VFS):
    def __init__(self, disk: Disk) -> None:
        self.name = f"recorded-{id(self)}"
        self._disk = disk
        super().__init__(self.name, "")

    def xOpen(self, name: Any, flags: Any) -> _File:
        return _File(self._disk, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        self._disk.note("delete", filename)
        super().xDelete(filename, syncdir)


class _Cursor:
    def __init__(self, cursor: apsw.Cursor, connection: apsw.Connection) -> None:
        self._cursor = cursor
        self._connection = connection

    @property
    def lastrowid(self) -> int:
        return self._connection.last_insert_rowid()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._cursor)

    def fetchone(self) -> Any:
        return next(self._cursor, None)

    def fetchall(self) -> list[Any]:
        return list(self._cursor)


class _Connection:
    def __init__(self, uri: str) -> None:
        self._connection = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_READWRITE)

    def execute(self, sql: str, values: Any = ()) -> _Cursor:
        try:
            return _Cursor(self._connection.execute(sql, tuple(values)), self._connection)
        except apsw.Error as error:
            translated = sqlite3.OperationalError(str(error))
            translated.sqlite_errorcode = CODES.get(type(error), 0) or int(getattr(error, "extendedresult", 1))
            raise translated from error
        except OSError as error:  # of the layer
            raise sqlite3.OperationalError(str(error)) from error

    executescript = execute

    def getlimit(self, category: int) -> int:
        return self._connection.limit(category)

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    def close(self) -> None:
        with suppress(apsw.Error):  # as sqlite3 does: one that only reads cannot take the lock that it tries to take
            self._connection.close(force=True)


def after_power_failure(
    before: dict[str, bytes], operations: list[Operation], chosen: random.Random, kept: float
) -> dict[str, bytes]:
    """The files as a disk may leave them: what was synced is there; of the rest, any sectors, in any order.

    Args:
        before: the files as they were at first.
        kept: the share of what was not synced that is there all the same.
    """
    synced = {operation.suffix: number for number, operation in enumerate(operations) if operation.what == "sync"}
    files = {suffix: bytearray(data) for suffix, data in before.items()}
    for number, (what, suffix, offset, data) in enumerate(operations):
        durable = number < synced.get(suffix, -1)
        file = files.setdefault(suffix, bytearray())
        if what == "write":
            end = offset + len(data)
            for start in range(offset - offset % SECTOR, end, SECTOR):
                if durable or chosen.random() < kept:
                    low, high = max(start, offset), min(start + SECTOR, end)
                    file.extend(bytes(max(0, high - len(file))))
                    file[low:high] = data[low - offset : high - offset]
        elif what == "truncate" and (durable or chosen.random() < kept):
            del file[offset:]
        elif what == "delete" and chosen.random() < kept:
            del files[suffix]
    return {suffix: bytes(data) for suffix, data in files.items()}
