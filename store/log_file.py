"""SQLite's write-ahead log as a file: what SQLite does not say of it. https://sqlite.org/fileformat2.html#walformat

SQLite takes the log as far as its checksums are right and ignores the rest without a word. The rest is all right if it
is one commit, which was being written when the power failed. It is damage if it is several, for each of these but the
last was whole on the disk, and acknowledged, before the next was begun.
"""

import os
import struct
import sys
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Final, NamedTuple

from trunkline.store.format import PAGE_SIZE

_HEADER: Final = struct.Struct(">24s2I")
_FRAME: Final = struct.Struct(">2I8s8x")
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


class LogFile:
    """Frames are numbered from 1."""

    def __init__(self, path: Path) -> None:
        self._file = FileIO(path)

    def reaches(self, number: int) -> bool:
        """Whether the log has so many frames; those left from an earlier round, with another salt, do not count."""
        frame, header = self._frame(number), self._at(0, _HEADER.size)
        return frame is not None and frame.salt == header[16:24]

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

    def close(self) -> None:
        self._file.close()

    def _salt(self) -> bytes:
        """Of the frames of this round. A header that is damaged takes the whole log with it."""
        found = self._at(0, _HEADER.size)
        if len(found) == _HEADER.size:
            header, *checksum = _HEADER.unpack(found)
            if _checksum(header, "<" if header[3] == 0x82 else ">") == tuple(checksum):
                return bytes(header[16:])
        first = self._frame(1)
        return first.salt if first else b""

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


def _checksum(data: bytes, order: str) -> tuple[int, int]:
    first = second = 0
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
