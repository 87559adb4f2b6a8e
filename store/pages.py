"""What is whole of a damaged store's pages, read without SQLite, which gives a file up when a page that leads to others
is gone. https://sqlite.org/fileformat2.html

Which pages are in use is said twice: by the pages above them, and by the map, which has the page above for each
(`ptrmap`, as the store is one with `auto_vacuum`). A page counts if one of the two says so and the other is damaged or
says the same: what was deleted lies in pages that are free, and must not come back.
"""

import struct
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from trunkline.store.format import PAGE_SIZE
from trunkline.store.log_file import NOTHING_COMMITTED, LogFile

_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")
#: Kinds of pages: of an index or a table, those that lead to others and those with rows.
_INDEX_INNER, _TABLE_INNER, _INDEX_LEAF, _TABLE_LEAF = 2, 5, 10, 13
_INNER: Final = (_INDEX_INNER, _TABLE_INNER)
#: A page of the map is before the pages that it tells of, with an entry for each: what it is, and the page above.
_FIRST_MAP: Final = 2
_ENTRY: Final = struct.Struct(">BI")
_MAPPED: Final = PAGE_SIZE // _ENTRY.size
_ROOT, _BELOW = 1, 5
_USES: Final = range(_ROOT, _BELOW + 1)
#: Bytes of a row that are in its page, at least, and at most for a table and for an index; the others are in pages of
#: their own, a chain.
_LOCAL_LEAST: Final = (PAGE_SIZE - 12) * 32 // 255 - 23
_LOCAL_MOST: Final = {_TABLE_LEAF: PAGE_SIZE - 35, _INDEX_LEAF: (PAGE_SIZE - 12) * 64 // 255 - 23}
_CHAINED: Final = PAGE_SIZE - _U32.size
_INTEGERS: Final = {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
_ZERO, _ONE, _FIRST_BLOB = 8, 9, 12

Columns = tuple[int | str | bytes | None, ...]


class Pages:
    """As the last commit left them. Numbered from 1."""

    def __init__(self, path: Path) -> None:
        self._open = ExitStack()
        self._file = self._open.enter_context(path.open("rb"))
        self.committed = NOTHING_COMMITTED
        with suppress(FileNotFoundError):
            self._log = LogFile(path.with_name(f"{path.name}-wal"))
            self._open.callback(self._log.close)
            self.committed = self._log.committed()
        in_file = -(-path.stat().st_size // PAGE_SIZE)
        self._present = max(in_file, max(self.committed.places, default=0))
        self._count = self.committed.pages or self._said_by_header() or in_file
        #: The page above each page, for those that the map tells of; 0 if it is not below one.
        self._above = dict(self._map())

    def close(self) -> None:
        self._open.close()

    def below(self, roots: Iterable[int]) -> Iterator[int]:
        """The pages in use, from these on, and those below a page that is damaged."""
        damaged = {page for page in set(self._above.values()) if page and not self._lead_to(page)}
        found = [*roots, *(page for page, above in self._above.items() if above in damaged)]
        seen = set[int]()
        while found:
            page = found.pop()
            if page not in seen:
                seen.add(page)
                yield page
                found += self._lead_to(page)

    def rows(self, page: int) -> Iterator[tuple[int, Columns]]:
        """What looks like rows in a page, with their rowids; 0 in an index. Whether a row is one, its checksum says."""
        data = self._read(page)
        if data[0] not in _LOCAL_MOST:
            return
        for place in _places(data, 8):
            with suppress(IndexError, ValueError, struct.error):
                size, place = _varint(data, place)
                rowid = 0
                if data[0] == _TABLE_LEAF:
                    rowid, place = _varint(data, place)
                yield rowid, _columns(self._payload(data, place, size))

    def _said_by_header(self) -> int:
        header = self._read(1)
        is_whole = header.startswith(b"SQLite format 3\0") and header[24:28] == header[92:96]
        return int(_U32.unpack_from(header, 28)[0]) if is_whole else 0

    def _map(self) -> Iterator[tuple[int, int]]:
        for at in range(_FIRST_MAP, self._present + 1, _MAPPED + 1):
            entries = list(_ENTRY.iter_unpack(self._read(at)[: _MAPPED * _ENTRY.size]))
            entries = entries[: max(0, min(self._present, self._count) - at)]
            if all(use in _USES for use, _ in entries):
                for page, (use, above) in enumerate(entries, at + 1):
                    yield page, above if use == _BELOW else 0

    def _lead_to(self, page: int) -> list[int]:
        """The pages below this one; none if it leads to none, or not to all that the map tells of."""
        data = self._read(page)
        if data[0] not in _INNER:
            return []
        with suppress(IndexError, struct.error):
            found = [*(_U32.unpack_from(data, place)[0] for place in _places(data, 12)), _U32.unpack_from(data, 8)[0]]
            if all(1 < below <= self._count and self._above.get(below, page) == page for below in found):
                return found
        return []

    def _read(self, page: int) -> bytes:
        """What is missing is zero."""
        place = self.committed.places.get(page)
        if place is not None:
            return self._log.page(place)
        self._file.seek((page - 1) * PAGE_SIZE)
        return self._file.read(PAGE_SIZE).ljust(PAGE_SIZE, b"\0")

    def _payload(self, data: bytes, place: int, size: int) -> bytes:
        local = size
        if size > _LOCAL_MOST[data[0]]:
            local = _LOCAL_LEAST + (size - _LOCAL_LEAST) % _CHAINED
            if local > _LOCAL_MOST[data[0]]:
                local = _LOCAL_LEAST
        parts = [data[place : place + local]]
        (link,) = _U32.unpack_from(data, place + local) if local < size else (0,)
        left, seen = size - local, set[int]()
        while left > 0:
            if link in seen or not 1 < link <= self._present:
                raise ValueError("the chain is broken")
            seen.add(link)
            page = self._read(link)
            (link,) = _U32.unpack_from(page)
            parts.append(page[_U32.size : _U32.size + left])
            left -= _CHAINED
        return b"".join(parts)


def _places(data: bytes, header: int) -> Iterator[int]:
    """Where the cells of a page are."""
    (count,) = _U16.unpack_from(data, 3)
    for at in range(header, min(header + 2 * count, PAGE_SIZE - 1), 2):
        yield _U16.unpack_from(data, at)[0]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for _ in range(8):
        byte = data[at]
        at += 1
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at
    return value << 8 | data[at], at + 1


def _columns(payload: bytes) -> Columns:
    """Raises:
    ValueError: it is no record of what a store has.
    """
    place, at = _varint(payload, 0)
    end, found = place, list[int | str | bytes | None]()
    while at < end:
        kind, at = _varint(payload, at)
        size = _INTEGERS.get(kind, 0) if kind < _FIRST_BLOB else (kind - _FIRST_BLOB) // 2
        part = payload[place : place + size]
        place += size
        if len(part) < size or _ONE < kind < _FIRST_BLOB or kind == 7:
            raise ValueError("no record")
        found.append(_value(kind, part))
    return tuple(found)


def _value(kind: int, part: bytes) -> int | str | bytes | None:
    if kind >= _FIRST_BLOB:
        return part.decode() if kind % 2 else part
    if kind in (_ZERO, _ONE):
        return kind - _ZERO
    return int.from_bytes(part, "big", signed=True) if kind else None
