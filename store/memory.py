"""An engine that keeps nothing: for tests, and for brokers that may forget."""

from collections.abc import Iterator
from pathlib import Path

from sortedcontainers import SortedDict

from trunkline.store.batch import Space, WriteBatch
from trunkline.store.engine import Defect, Progress, Row, no_progress
from trunkline.store.errors import StoreUnavailable


class MemoryEngine:
    def __init__(self) -> None:
        self._spaces: dict[Space, SortedDict[bytes, bytes]] = {}
        self._closed = False

    def commit(self, batch: WriteBatch) -> None:
        self._check_open()
        batch.pack()
        for space, low, high in batch.ranges:
            rows = self._rows(space)
            for key in list(rows.irange(low, high, (True, False))):
                del rows[key]
        for space, values in batch.values.items():
            rows = self._rows(space)
            for key, value in values.items():
                if value is None:
                    rows.pop(key, None)
                else:
                    rows[key] = value

    def get(self, space: Space, key: bytes) -> bytes | None:
        self._check_open()
        return self._rows(space).get(key)

    def scan(
        self, space: Space, low: bytes = b"", high: bytes | None = None, *, limit: int = 1000, weight: int = 1 << 20
    ) -> list[Row]:
        self._check_open()
        rows = self._rows(space)
        page: list[Row] = []
        for key in rows.irange(low, high, (True, False)):
            if len(page) == limit or weight <= 0:
                break
            page.append((key, rows[key]))
            weight -= len(key) + len(rows[key])
        return page

    def count(self, space: Space) -> int:
        return len(self._rows(space))

    def spaces(self) -> list[Space]:
        return sorted(self._spaces)

    def check(self, progress: Progress = no_progress) -> Iterator[Defect]:
        del progress
        return iter(())

    def verify(self) -> None:
        """Nothing can be damaged."""

    def backup(self, path: Path, progress: Progress = no_progress) -> None:
        raise StoreUnavailable(f"{path}: a store in memory has no file to back up")

    def compact(self, limit: int = 1 << 18) -> int:
        return 0

    def maintain(self) -> None:
        pass

    def check_files(self) -> None:
        pass

    def limit(self, max_size: int) -> None:
        pass

    def size(self) -> int:
        return 0

    def close(self) -> None:
        self._closed = True

    def _rows(self, space: Space) -> "SortedDict[bytes, bytes]":
        return self._spaces.setdefault(space, SortedDict())

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store is closed")
