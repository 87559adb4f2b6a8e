"""SQLite's write-ahead log as a file: what SQLite does not say of it. https://sqlite.org/fileformat2.html#walformat

SQLite takes the log as far as its checksums are right and ignores the rest without a word. The rest is all right if it
is one commit, which was being written when the power failed. It is damage if it is several, for each of these but the
last was whole on the disk, and acknowledged, before the next was begun.
"""

import os
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from io import FileIO
from pathlib import Path
from typing import Final, NamedTuple

from trunkline.store.format import CLOSED, OPEN, PAGE_SIZE

_HEADER: Final = struct.Struct(">24s2I")
_SALT: Final = slice(16, 24)
_FRAME: Final = struct.Struct(">2I8s8x")
_CHECKSUM: Final = struct.Struct(">2I")
#: How a header begins; and the byte behind that, if its checksums are of little-endian numbers.
_MAGIC: Final = b"\x37\x7f\x06"
_LITTLE: Final = 0x82
#: The least that a disk writes at once.
_SECTOR: Final = 512
#: Where it stands in the index.
_TAKEN: Final = 16


class _Frame(NamedTuple):
    number: int
    page: int
    #: Pages of the database, if a commit ends here.
    ends: int
    salt: bytes

    @property
    def may_be_torn(self) -> bool:
        """Its parts may be of two times, as what a disk writes at once ends inside of it."""
        return _offset(self.number) % _SECTOR > _SECTOR - _FRAME.size


class Committed(NamedTuple):
    """What SQLite takes of a log."""

    frames: int
    #: Of the database, after the last commit; 0 if there is none.
    pages: int
    #: Where each page is last.
    places: Mapping[int, int]


NOTHING_COMMITTED: Final = Committed(0, 0, {})


class LogFile:
    """Frames are numbered from 1."""

    def __init__(self, path: Path) -> None:
        self._file = FileIO(path)

    def reaches(self, number: int) -> bool:
        """Whether the log has so many frames; those left from an earlier round, with another salt, do not count."""
        frame, header = self._frame(number), self._at(0, _HEADER.size)
        return frame is not None and frame.salt == header[_SALT]

    def has_lost_commits(self, whole: int) -> bool:
        """Whether more than one commit lies behind the `whole` frames that SQLite takes."""
        salt = self._salt()
        pages = set[int]()
        ended = False
        for frame in self._frames(whole + 1):
            if frame.salt == salt and not frame.may_be_torn:
                # a commit has a page once, and each has the page of the tallies
                if ended or frame.page in pages:
                    return True
                pages.add(frame.page)
                ended = frame.ends > 0
        return False

    def committed(self) -> Committed:
        """Up to the first frame whose checksum is wrong."""
        header = self._header()
        if not header:
            return NOTHING_COMMITTED
        frames = pages = 0
        places, begun = dict[int, int](), dict[int, int]()
        checksum = _checksum(header)
        for frame in self._frames(1):
            place = _offset(frame.number) + _FRAME.size
            start = self._at(place - _FRAME.size, _FRAME.size)
            content = self.page(place)
            if frame.salt != header[_SALT] or len(content) < PAGE_SIZE:
                break
            checksum = _checksum(start[:8] + content, header, checksum)
            if checksum != _CHECKSUM.unpack_from(start, _FRAME.size - _CHECKSUM.size):
                break
            begun[frame.page] = place
            if frame.ends:
                frames, pages = frame.number, frame.ends
                places |= begun
                begun.clear()
        return Committed(frames, pages, places)

    def page(self, place: int) -> bytes:
        return self._at(place, PAGE_SIZE)

    def close(self) -> None:
        self._file.close()

    def _salt(self) -> bytes:
        """Of the frames of this round. A header that is damaged takes the whole log with it."""
        header = self._header()
        if header:
            return header[_SALT]
        first = self._frame(1)
        return first.salt if first else b""

    def _header(self) -> bytes:
        """Without its checksum; nothing if it is damaged."""
        found = self._at(0, _HEADER.size)
        if len(found) == _HEADER.size:
            header, *checksum = _HEADER.unpack(found)
            if header.startswith(_MAGIC) and _checksum(header) == tuple(checksum):
                return bytes(header)
        return b""

    def _frames(self, number: int) -> Iterator[_Frame]:
        while frame := self._frame(number):
            yield frame
            number += 1

    def _frame(self, number: int) -> _Frame | None:
        found = self._at(_offset(number), _FRAME.size)
        if len(found) < _FRAME.size:
            return None
        return _Frame(number, *_FRAME.unpack(found))

    def _at(self, offset: int, size: int) -> bytes:
        if hasattr(os, "pread"):
            return os.pread(self._file.fileno(), size, offset)
        self._file.seek(offset)
        return self._file.read(size)


def _offset(number: int) -> int:
    return _HEADER.size + (number - 1) * (_FRAME.size + PAGE_SIZE)


def _checksum(data: bytes, header: bytes = b"", before: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    """In the byte order that the header names; it has one itself."""
    first, second = before
    order = "<" if (header or data)[3] == _LITTLE else ">"
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for one, other in zip(words[::2], words[1::2], strict=True):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + other + first) & 0xFFFFFFFF
    return first, second


def bytes_taken(index: Path) -> int:
    """What the log has at least while it is open."""
    frames = frames_taken(index)
    return _offset(frames + 1) if frames else 0


def frames_taken(index: Path) -> int:
    """With how many frames the last commit ends that SQLite takes: its index of an open log says so."""
    with open(index, "rb") as file:
        file.seek(_TAKEN)
        return int.from_bytes(file.read(4), sys.byteorder)


def log_defect(log: Path, state: str, taken: Callable[[], int], *, was_there: bool) -> str | None:
    """What was committed and is no longer in the log of a store that was left in this state."""
    if state != CLOSED and not was_there:
        return (
            f"its log {log.name} is gone, with what was committed last (nothing is lost if another program has taken"
            " the log into the file)"
        )
    if state == OPEN["fsync"]:  # with "os" the parts of commits may reach the disk in any order
        with closing(LogFile(log)) as found:
            if found.has_lost_commits(taken()):
                return f"commits in its log {log.name} are damaged"
    return None
