"""What an engine of the store does: keep rows in the order of their keys, and change many of them at once."""

from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple, Protocol

from trunkline.store.batch import Space, WriteBatch

#: Bytes of a number in a key.
NUMBER_SIZE: Final = 8

#: A key and its value.
Row = tuple[bytes, bytes]
#: Called now and then with what is done and what there is to do, in one unit.
Progress = Callable[[int, int], object]


def no_progress(done: int, total: int) -> None:
    del done, total


#: The key of a number: the order of keys is that of the numbers.
key_of: Final[Callable[[int], bytes]] = Struct(">Q").pack


def number_of(key: bytes) -> int:
    """The number that a key begins with."""
    return int.from_bytes(key[:NUMBER_SIZE], "big")


class Defect(NamedTuple):
    """What a check found."""

    #: Where it is a row.
    space: Space | None
    key: bytes | None
    text: str


class Engine(Protocol):
    """One thread at a time. Every method raises `StoreError` and nothing else; what is damaged raises `StoreCorrupt`
    and is never returned."""

    def commit(self, batch: WriteBatch) -> None:
        """Apply all of the batch. On return it is as durable as the engine is configured to be; if this raises,
        nothing of it was applied."""
        ...

    def get(self, space: Space, key: bytes) -> bytes | None: ...

    def scan(
        self, space: Space, low: bytes = b"", high: bytes | None = None, *, limit: int = 1000, weight: int = 1 << 20
    ) -> list[Row]:
        """A page of the rows with low <= key < high, in order: at most `limit` rows, and none after `weight` bytes.

        It is the last page only if it is empty. The next begins at `following(page[-1][0])`.
        """
        ...

    def count(self, space: Space) -> int:
        """The number of rows, which is kept."""
        ...

    def spaces(self) -> list[Space]:
        """Those that ever had a row, in the order of their names."""
        ...

    def check(self, progress: Progress = no_progress) -> Iterator[Defect]:
        """Read everything."""
        ...

    def verify(self) -> None:
        """Look for the damage that is found without reading values. It may run in another thread beside other calls.

        Raises:
            StoreCorrupt: there is some.
        """
        ...

    def backup(self, path: Path, progress: Progress = no_progress) -> None:
        """Write a store of its own, as of now, to a file that is not there yet."""
        ...

    def compact(self, limit: int = 1 << 18) -> int:
        """Give at most `limit` bytes that deleted rows left back to the file system. Returns how many are left."""
        ...

    def maintain(self) -> None:
        """What has to be done now and then and takes some milliseconds: call it after a commit, when nobody waits."""
        ...

    def check_files(self) -> None:
        """Raise an error if what is committed now would be lost: somebody has deleted or replaced a file of the
        store."""
        ...

    def limit(self, max_size: int) -> None:
        """Let the store grow to so many bytes; 0 is no limit."""
        ...

    def size(self) -> int:
        """Bytes on the disk."""
        ...

    def close(self) -> None: ...


def following(key: bytes) -> bytes:
    """The least key above."""
    return key + b"\0"


def rows(engine: Engine, space: Space, low: bytes = b"", high: bytes | None = None) -> Iterator[Row]:
    """All rows with low <= key < high, page by page."""
    while page := engine.scan(space, low, high):
        yield from page
        low = following(page[-1][0])
