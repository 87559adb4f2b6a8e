"""SQLite's write-ahead log as a file: what SQLite does not say of it. https://sqlite.org/fileformat2.html#walformat

SQLite takes the log as far as its checksums are right and ignores the rest without a word. The rest is all right if it
is one commit, which was being written when the power failed. It is damage if it is several, for each of these but the
last was whole on the disk, and acknowledged, before the next was begun.
"""

import os
import struct
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Final, NamedTuple

from trunkline.store.format import PAGE_SIZE

_HEADER: Final = struct.Struct(">16x8s8x")
#: Page, pages of the database if a commit ends here, salt.
_FRAME: Final = struct.Struct(">II8s8x")
#: The least that a disk writes at once.
_SECTOR: Final = 512


class _Frame(NamedTuple):
    page: int
    ends: int
    salt: bytes
    #: Its parts may be of two times: what a disk writes at once ends inside of it.
    may_be_torn: bool


class LogFile:
    """Frames are numbered from 1."""

    def __init__(self, path: Path) -> None:
        self._file = FileIO(path)

    def _salt(self) -> bytes:
        """What the frames of the log have in common; those left from an earlier round have another one."""
        header = self._at(0, _HEADER.size)
        return _HEADER.unpack(header)[0] if len(header) == _HEADER.size else b""

    def reaches(self, number: int) -> bool:
        frame = self._frame(number)
        return frame is not None and frame.salt == self._salt()

    def has_lost_commits(self, whole: int) -> bool:
        """Whether more than one commit lies behind those that SQLite took, which end at the frame `whole`."""
        first = self._frame(1)
        # a header that is damaged takes the whole log with it
        salt = self._salt() if self._has_header() or first is None else first.salt
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

    def _has_header(self) -> bool:
        header = self._at(0, _HEADER.size)
        if len(header) < _HEADER.size:
            return False
        first = second = 0
        words = struct.unpack("<6I" if header[3] == 0x82 else ">6I", header[:24])
        for one, other in zip(words[::2], words[1::2], strict=True):
            first = (first + one + second) & 0xFFFFFFFF
            second = (second + other + first) & 0xFFFFFFFF
        return struct.pack(">II", first, second) == header[24:]

    def _frames(self, number: int) -> Iterator[_Frame]:
        while frame := self._frame(number):
            yield frame
            number += 1

    def _frame(self, number: int) -> _Frame | None:
        offset = _HEADER.size + (number - 1) * (_FRAME.size + PAGE_SIZE)
        found = self._at(offset, _FRAME.size)
        if len(found) < _FRAME.size:
            return None
        page, ends, salt = _FRAME.unpack(found)
        return _Frame(page, ends, salt, offset % _SECTOR > _SECTOR - _FRAME.size)

    def _at(self, offset: int, size: int) -> bytes:
        if hasattr(os, "pread"):
            return os.pread(self._file.fileno(), size, offset)
        self._file.seek(offset)
        return self._file.read(size)
