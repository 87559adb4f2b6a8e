"""The engine of the standalone broker: one SQLite file with a write-ahead log.

A commit is a single SQL statement, which keeps it cheap beside a busy trio thread: sqlite3 gives the GIL back at every
statement and has to wait for it again. The batch goes as rows into a view, whose triggers put, delete and count.

SQLite alone returns what the disk does. So each row carries a checksum, and each space counts its rows and adds up
their checksums. Opening a store compares these and all keys; reading a row compares its own.
"""

import os
import shutil
import sqlite3
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Final, Literal, NoReturn

from trunkline.store.batch import Space, WriteBatch
from trunkline.store.checking import contents, is_whole, state, structure
from trunkline.store.engine import Defect, Progress, Row, no_progress
from trunkline.store.errors import StoreCorrupt, StoreError, StoreFull, StoreInUse, StoreTooNew, StoreUnavailable
from trunkline.store.format import (
    APPLICATION_ID,
    CHANGES,
    CLOSED,
    MIGRATIONS,
    OPEN,
    PAGE_SIZE,
    SAME_TABLES,
    VERSION,
    create,
    is_foreign,
    migrate,
    publish,
    row_crc,
    touch,
)
from trunkline.store.lock import FileLock, is_locked, is_same
from trunkline.store.log_file import LogFile, bytes_taken, frames_taken, log_defect

#: What a commit survives as soon as it returns: a power failure, or the end of the process.
Durability = Literal["fsync", "os"]
_SYNCHRONOUS: Final = {"fsync": "FULL", "os": "NORMAL"}
_ERRORS: Final[dict[int, type[StoreError]]] = {
    sqlite3.SQLITE_FULL: StoreFull,
    sqlite3.SQLITE_CORRUPT: StoreCorrupt,
    sqlite3.SQLITE_NOTADB: StoreCorrupt,
    # our statements are right unless the tables are not ours
    sqlite3.SQLITE_ERROR: StoreCorrupt,
    sqlite3.SQLITE_CONSTRAINT: StoreCorrupt,
    sqlite3.SQLITE_BUSY: StoreInUse,
    sqlite3.SQLITE_LOCKED: StoreInUse,
}
#: Rows and bytes of a statement. SQLite before 3.32 takes 999 parameters.
_MAX_ROWS: Final = 1024
_MAX_BYTES: Final = 4 << 20
_COLUMNS: Final = 4
#: How long the log gets before its pages are brought home, which takes some 10 ms.
_LOG_PAGES: Final = 1000
#: Pages that a backup copies between two calls of `progress`.
_BACKUP_PAGES: Final = 256
#: Free bytes of the disk with which a store can be opened: for the log, its index and the lock.
ROOM: Final = 128 << 10
#: How many defects an error names.
_NAMED: Final = 3


class SqliteEngine:
    def __init__(
        self,
        path: Path,
        *,
        durability: Durability = "fsync",
        max_size: int = 0,
        read_only: bool = False,
        verify: bool = True,
    ) -> None:
        """
        Args:
            max_size: bytes that the file may have; 0 is no limit.
            read_only: another process may have the store open and write to it; what is read is the state of now.
            verify: look for all that can be found without reading values, and refuse to open if something is: a second
                for a million rows. Without it, only commits that the log has lost are looked for, and only to write.
        """
        self.path = path
        self._read_only = read_only
        self._log: LogFile | None = None
        #: Pages that the file had when all of the log was last brought home; 0 if it never was.
        self._pages_home = 0
        self._open = ExitStack()
        with ExitStack() as release, self._with_room(), self._translated():
            release.push(self._open)
            self.path = Path(os.path.realpath(path))
            if self.path.is_symlink():
                raise StoreUnavailable(f"{path} is a circle of links")
            if not read_only:
                self._lock = FileLock(self.path)
                self._open.push(self._lock)
            self._max_size = max_size  # for errors until `limit` is called
            self._log_was_there = self._find()
            if not read_only:
                self._lock.lock_store()
            self._connect("ro")
            self._open.callback(lambda: self._database.close())
            #: The version of its format.
            self.format = version = self._check_format()
            self._execute("BEGIN")  # one state for all that is read, however long that takes
            if verify or not read_only:
                self._refuse(self._log_defects())
            if verify:
                self._refuse(structure(self._database, _NAMED))
            if not read_only:
                # only now: a connection that may write takes the log into the file, and deletes it, when it is closed
                self._database.close()
                self._connect("rw")
                self.format = migrate(self._database, version)
                self._begin(durability, max_size)
                self._set_state(OPEN[durability])
                self._checkpoint()  # the state has to be in the file: it is what a lost log is missed by
                self._files = {path: path.stat() for path in (self.path, self._beside("wal"))}
            self._spaces = {Space(name): number for number, name in self._execute("SELECT number, name FROM spaces")}
            release.pop_all()

    # -- opening

    def _find(self) -> bool:
        """Make the store if there is none. Returns whether there is a log."""
        log = self._beside("wal")
        has_log = log.exists() and log.stat().st_size > 0
        if not self.path.exists():
            if self._read_only:
                raise StoreUnavailable(f"there is no store {self.path}")
            if has_log:
                self._corrupt(f"the file is gone, and its log {log.name} is still there")
            create(self.path)
        elif not self.path.is_file():
            raise StoreUnavailable(f"{self.path} is no file")
        elif not self.path.stat().st_size:
            raise StoreCorrupt(
                f"{self.path} is an empty file, and no store: delete it to begin with an empty store, or put a backup"
                " in its place"
            )
        return has_log

    def _connect(self, mode: Literal["ro", "rw"]) -> None:
        uri = f"{self.path.as_uri()}?mode={mode}"
        self._database = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=1)
        self._execute = self._database.execute

    def _check_format(self) -> int:
        (application_id,) = self._execute("PRAGMA application_id").fetchone()
        if application_id != APPLICATION_ID:
            self._refuse_foreign()
        if self._execute("PRAGMA journal_mode").fetchone() != ("wal",):  # it would not look at the log
            self._corrupt("its header is damaged")
        (version,) = self._execute("PRAGMA user_version").fetchone()
        if version > VERSION:
            raise StoreTooNew(
                f"the store {self.path} has format {version}, and this Trunkline knows formats up to {VERSION}: start"
                " the newer Trunkline that wrote it, or give another path"
            )
        if any(old not in MIGRATIONS for old in range(version, VERSION)):
            self._corrupt(f"there is no format {version}")
        if self._read_only and version < SAME_TABLES:
            raise StoreUnavailable(
                f"the store {self.path} has format {version}: start the broker once, which makes it format {VERSION}"
            )
        return int(version)

    def _begin(self, durability: Durability, max_size: int) -> None:
        for pragma in (
            f"synchronous = {_SYNCHRONOUS[durability]}",
            "fullfsync = ON",  # of macOS, whose fsync alone does not reach the disk
            "checkpoint_fullfsync = ON",
            "wal_autocheckpoint = 0",  # see `maintain`
            f"journal_size_limit = {4 * _LOG_PAGES * PAGE_SIZE}",
            "temp_store = MEMORY",
            "secure_delete = OFF",
        ):
            self._execute(f"PRAGMA {pragma}").fetchall()
        self.limit(max_size)
        self._database.executescript(CHANGES)
        limit = self._database.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER) // _COLUMNS
        self._max_rows = min(_MAX_ROWS, 1 << (limit.bit_length() - 1))
        #: At most so many pages were written to the log since `maintain` looked.
        self._pages = 0

    def _refuse(self, defects: Iterable[Defect]) -> None:
        found = [defect.text for defect in defects]
        if found:
            self._corrupt("; ".join(found[:_NAMED]))

    def _log_defects(self) -> Iterator[Defect]:
        if self._read_only and is_locked(self.path):
            return  # the log changes while it is read, and its writer has looked at it
        log, index = self._beside("wal"), self._beside("shm")
        found = log_defect(log, state(self._database), lambda: frames_taken(index), was_there=self._log_was_there)
        if found:
            yield Defect(None, None, found)

    # -- writing

    def commit(self, batch: WriteBatch) -> None:
        if self._read_only:
            raise StoreUnavailable(f"the store {self.path} is open for reading")
        batch.pack()
        with self._translated():
            changes: list[object] = []  # the columns of the rows for `changes`, one after the other
            for space, low, high in batch.ranges:
                changes += (self._number(space), low, None, high)
            for deletes in (True, False):  # first what makes room
                for space, values in batch.values.items():
                    number = self._number(space)
                    for key, value in values.items():
                        if (value is None) is deletes:
                            changes += (number, key, None if value is None else row_crc(number, key, value), value)
            rows = len(changes) // _COLUMNS
            self._pages += 4 + 2 * rows + batch.weight // PAGE_SIZE
            size = max(1, min(self._max_rows, _MAX_BYTES * rows // (batch.weight + 1)))
            if 0 < rows <= size:
                self._apply(changes)
            elif rows:
                with self._transaction():
                    for start in range(0, len(changes), size * _COLUMNS):
                        self._apply(changes[start : start + size * _COLUMNS])

    def _apply(self, changes: list[object]) -> None:
        """In one statement. There are statements for 1, 2, 4, ... rows; rows of nothing do nothing."""
        rows = 1 << (len(changes) // _COLUMNS - 1).bit_length()
        self._execute(_insert(rows), changes + [None] * (rows * _COLUMNS - len(changes)))

    def _number(self, space: Space) -> int:
        number = self._spaces.get(space)
        if number is None:
            number = self._execute("INSERT INTO spaces (name, rows, total) VALUES (?, 0, 0)", space).lastrowid
            assert number is not None
            self._spaces[space] = number
        return number

    def maintain(self) -> None:
        if self._pages >= _LOG_PAGES:
            self._pages = 0
            with suppress(StoreError), self._translated():  # the commits stand, and a later call tries again
                log = self._open_log()
                if log is not None and log.reaches(_LOG_PAGES):
                    self._checkpoint()

    def _checkpoint(self) -> None:
        """Bring the pages of the log home, so that it begins anew when nobody reads it."""
        _, pages, home = self._execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if pages == home:  # else the header may be there before pages that it counts, as it is when the disk gets full
            self._pages_home = _pages_of(self.path)

    def _set_state(self, new: str) -> None:
        self._execute("UPDATE meta SET value = ? WHERE name = 'state' AND value <> ?", (new, new))

    def compact(self, limit: int = 64 * PAGE_SIZE) -> int:
        with self._translated():
            # as a script: `execute` would free one page
            pages = max(1, limit // PAGE_SIZE)
            self._database.executescript(f"PRAGMA incremental_vacuum({pages})")
            self._pages += 3 * pages
            (free,) = self._execute("PRAGMA freelist_count").fetchone()
            return int(free) * PAGE_SIZE

    # -- reading

    def get(self, space: Space, key: bytes) -> bytes | None:
        page = self.scan(space, key, key + b"\0", limit=1)
        return page[0][1] if page else None

    def scan(
        self, space: Space, low: bytes = b"", high: bytes | None = None, *, limit: int = 1000, weight: int = 1 << 20
    ) -> list[Row]:
        number = self._spaces.get(space, 0)
        above, bounds = ("", ()) if high is None else (" AND key < ?", (high,))
        sql = f"SELECT key, crc, value FROM records WHERE space = ? AND key >= ?{above} ORDER BY key LIMIT ?"
        page: list[Row] = []
        with self._translated():
            for key, crc, value in self._execute(sql, (number, low, *bounds, limit)):
                if weight <= 0:
                    break
                if not is_whole(number, key, crc, value):
                    self._corrupt(f"the row {key!r} of {space.name} is not what was written")
                page.append((key, value))
                weight -= len(key) + len(value)
        return page

    def count(self, space: Space) -> int:
        with self._translated():
            sql = "SELECT ifnull(max(rows), 0) FROM spaces WHERE number = ?"
            return int(self._execute(sql, (self._spaces.get(space, 0),)).fetchone()[0])

    def spaces(self) -> list[Space]:
        return sorted(self._spaces)

    # -- the whole file

    def check(self, progress: Progress = no_progress) -> Iterator[Defect]:
        with self._translated():
            if self._read_only:
                yield from self._log_defects()
            yield from structure(self._database)
            yield from contents(self._database, progress)

    def verify(self) -> None:
        SqliteEngine(self.path, read_only=True).close()

    def backup(self, path: Path, progress: Progress = no_progress) -> None:
        new = path.with_name(f"{path.name}-new")
        with self._translated(path):
            touch(path, new=True)
            try:
                touch(new)
                copy = sqlite3.connect(new, isolation_level=None)
                try:
                    self._database.backup(
                        copy, pages=_BACKUP_PAGES, progress=lambda _, left, total: progress(total - left, total)
                    )
                    copy.execute(f"UPDATE meta SET value = '{CLOSED}' WHERE name = 'state'")
                finally:
                    copy.close()
                publish(new, path)
            except BaseException:
                path.unlink()
                new.unlink(missing_ok=True)
                raise

    def limit(self, max_size: int) -> None:
        self._max_size = max_size
        pages = max(1, max_size // PAGE_SIZE) if max_size else (1 << 31) - 2
        with self._translated():
            self._execute(f"PRAGMA max_page_count = {pages}").fetchall()

    def check_files(self) -> None:
        with self._translated():
            self._lock.renew()
            for path, file in self._files.items():
                if not is_same(path, file):
                    raise StoreUnavailable(
                        f"{path} was deleted or replaced while the broker runs: put it back, or start the broker again "
                        "with what is there"
                    )
            for path, least in (
                (self.path, self._pages_home * PAGE_SIZE),
                (self._beside("wal"), bytes_taken(self._beside("shm"))),
            ):
                if path.stat().st_size < least:
                    raise StoreUnavailable(
                        f"{path} was cut off while the broker runs: {least:,} bytes were there. Stop the broker and "
                        "put a backup in its place, or see what `trunkline store repair` saves"
                    )

    def size(self) -> int:
        with self._translated():
            return sum(path.stat().st_size for path in (self.path, self._beside("wal")) if path.exists())

    def close(self) -> None:
        """Every commit is durable already: what goes wrong here does no harm."""
        if not self._read_only:
            with suppress(StoreError), self._translated():
                self._set_state(CLOSED)
                self._execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self._open.close()

    def _beside(self, suffix: str) -> Path:
        return self.path.with_name(f"{self.path.name}-{suffix}")

    def _open_log(self) -> LogFile | None:
        if self._log is None and self._beside("wal").exists():
            self._log = LogFile(self._beside("wal"))
            self._open.callback(self._log.close)
        return self._log

    def _corrupt(self, finding: str) -> NoReturn:
        raise StoreCorrupt(
            f"the store {self.path} is damaged: {finding}. `trunkline store repair` makes a new one of what is whole,"
            " or put a backup in its place, or move it away to begin with an empty store"
        )

    def _refuse_foreign(self) -> NoReturn:
        raise StoreCorrupt(
            f"{self.path} is not a store of Trunkline: give another path. If it was one, its first page is damaged, and"
            " `trunkline store repair` makes a new one of what is whole"
        )

    @contextmanager
    def _transaction(self) -> Generator[None]:
        self._execute("BEGIN IMMEDIATE")
        try:
            yield
            self._execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:
                self._execute("ROLLBACK")
            raise

    @contextmanager
    def _with_room(self) -> Generator[None]:
        """SQLite calls it an I/O error if its index finds no room."""
        try:
            yield
        except (StoreFull, StoreUnavailable) as error:
            with suppress(OSError):
                if shutil.disk_usage(self.path.parent).free < ROOM:
                    raise StoreFull(
                        f"the store {self.path} cannot be opened, as its disk is full: {ROOM:,} free bytes are enough"
                    ) from error
            raise

    @contextmanager
    def _translated(self, path: Path | None = None) -> Generator[None]:
        path = path or self.path
        try:
            yield
        except sqlite3.ProgrammingError as error:
            raise StoreUnavailable(f"the store {path} is closed") from error
        except sqlite3.Error as error:
            kind = _ERRORS.get(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF, StoreUnavailable)
            if kind is StoreCorrupt:
                if is_foreign(self.path):
                    self._refuse_foreign()
                is_header = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_NOTADB
                self._corrupt("its header is damaged" if is_header else str(error))
            if kind is StoreFull and self._max_size and shutil.disk_usage(self.path.parent).free >= ROOM:
                raise StoreFull(
                    f"the store {path} is full: store.max_size ({self._max_size:,} bytes) is reached"
                ) from error
            raise kind(f"the store {path} does not work: {error}") from error
        except UnicodeDecodeError:
            self._corrupt("a name is no text")
        except OSError as error:
            raise StoreUnavailable(f"{path} cannot be opened: {error.strerror or error}") from error


@cache
def _insert(rows: int) -> str:
    return f"INSERT INTO changes VALUES {', '.join(['(?, ?, ?, ?)'] * rows)}"


def _pages_of(path: Path) -> int:
    """As its header says; 0 if it has none."""
    with open(path, "rb") as file:
        file.seek(28)
        return int.from_bytes(file.read(4), "big")
