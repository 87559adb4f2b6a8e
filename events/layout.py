"""The paths and names of the log's files, and the records of an index.

`ROOT/node=<name>@<incarnation>/<first seq>.arrows` holds rows. The `.idx` of the same name says which of them are
whole: a batch is there once its record is. Data without a record does not count, so a tail never has to be repaired.
The heartbeats of a node to which nothing happens are in its index alone. Merged rows are in
`<first seq>-<end seq>.parquet` beside segments, and compacted ones in such files in
`ROOT/node_key=<name>@<incarnation>/date=YYYY-MM-DD`: programs that make columns of folders would take `node=` for the
column `node`. Earlier versions compacted into folders `date=YYYY-MM-DD` below the node's.
"""

import os
import re
import struct
import zlib
from glob import glob, has_magic
from pathlib import Path
from typing import Final, NamedTuple, Self
from urllib.parse import quote, unquote, urlsplit

MAGIC: Final = b"TLEVIDX1"
INDEX_VERSION: Final = 1
#: Key of the Arrow schema's metadata that says which version of the table a segment was written for.
VERSION_KEY: Final = b"trunkline.events.version"

#: The record is not a batch: it ends the segment. Its times are those of the whole segment, its checksum is that of the
#: schema once more, in case the header is damaged.
SEALED: Final = 1
#: With `SEALED`: no segment of this incarnation follows.
LAST: Final = 2
#: The record is not a batch: it stands for rows `node.tick`, at equal distances from its oldest to its newest time. As
#: long as it is the last one, it may be overwritten by one with more of them at the same distance.
BEATS: Final = 4

#: An Arrow stream ends with it.
END_OF_STREAM: Final = b"\xff\xff\xff\xff\0\0\0\0"

DATA: Final = ".arrows"
INDEX: Final = ".idx"
PARQUET: Final = ".parquet"
CONSUMERS: Final = "consumers"
DEAD_LETTERS: Final = "deadletter"

#: What folders begin with: of segments, and of compacted rows.
_SEGMENTS: Final = "node="
_COMPACTED: Final = "node_key="
#: Room for the incarnation's digits is left: file systems end at 255 bytes.
_LONGEST_NAME: Final = 220
_LONGEST_SEQ: Final = 2**63
_SEGMENT: Final = re.compile(r"([0-9]{20})(?:-([0-9]{20}))?(\.arrows|\.idx|\.parquet)")

_HEADER: Final = struct.Struct("<8sIIQQ16x")
_RECORD: Final = struct.Struct("<QIQIIqqI")
_CRC: Final = struct.Struct("<I")
RECORD_SIZE: Final = _RECORD.size + _CRC.size


class LogError(ValueError):
    """The event log is damaged or misused; the text says how and where."""


class NodeKey(NamedTuple):
    """One start of the exporter on one node. As text, `name@incarnation`, it is what readers keep positions by."""

    name: str
    #: Milliseconds since the epoch.
    incarnation: int

    def __str__(self) -> str:
        return f"{self.name}@{self.incarnation}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises LogError. The name may contain an @ too."""
        name, _, digits = text.rpartition("@")
        if not name or not re.fullmatch(r"0|[1-9][0-9]{0,18}", digits, re.ASCII) or int(digits) >= _LONGEST_SEQ:
            raise LogError(f"{text!r} is not a node of an event log: the form is n1@1763739192123")
        return cls(name, int(digits))

    @property
    def encoded(self) -> str:
        """The text as a name of a file and of a Hive partition: characters that such names cannot have are %-encoded.

        Raises LogError if no file system could take the name.
        """
        try:
            encoded = quote(self.name, safe="@ ")
        except UnicodeEncodeError:
            raise LogError(f"{self.name!r} cannot name a folder: it is not valid text") from None
        if not encoded or len(encoded) > _LONGEST_NAME:
            raise LogError(f"{self.name!r} cannot name a folder: encoded, it has {len(encoded)} characters")
        return f"{encoded}@{self.incarnation}"

    @property
    def directory(self) -> str:
        """Name of the folder of its segments. Raises LogError as `encoded` does."""
        return f"{_SEGMENTS}{self.encoded}"

    @property
    def compacted_directory(self) -> str:
        """Name of the folder of its compacted rows. Raises LogError as `encoded` does."""
        return f"{_COMPACTED}{self.encoded}"

    @property
    def directories(self) -> tuple[str, str]:
        """Names of both folders. Raises LogError as `encoded` does."""
        return self.directory, self.compacted_directory

    @classmethod
    def of_directory(cls, name: str) -> Self | None:
        """None if it is not a node's folder."""
        for prefix in (_SEGMENTS, _COMPACTED):
            if name.startswith(prefix):
                return cls.of_encoded(name.removeprefix(prefix))
        return None

    @classmethod
    def of_encoded(cls, text: str) -> Self | None:
        """The key with this `encoded`, if there is one."""
        try:
            key = cls.parse(unquote(text, errors="strict"))
            return key if key.encoded == text else None
        except (LogError, UnicodeDecodeError):
            return None


class SegmentName(NamedTuple):
    first: int
    #: The number behind the last row: in the names of Parquet files only.
    end: int | None
    #: `.arrows`, `.idx` or `.parquet`.
    suffix: str

    def __str__(self) -> str:
        return f"{self.first:020d}{'' if self.end is None else f'-{self.end:020d}'}{self.suffix}"

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """None if the file does not belong to the log, such as one that is only half written."""
        if not (match := _SEGMENT.fullmatch(name)):
            return None
        first, end, suffix = int(match[1]), int(match[2]) if match[2] else None, match[3]
        if (suffix == PARQUET) != (end is not None) or (end is not None and end <= first):
            return None
        if (end or first) >= _LONGEST_SEQ:
            return None
        return cls(first, end, suffix)


class Header(NamedTuple):
    """An index begins with it."""

    first: int
    #: Where the first batch begins in the data file.
    offset: int
    #: Of what is before: the Arrow schema.
    schema_crc: int
    version: int = INDEX_VERSION

    def pack(self) -> bytes:
        return _sealed(_HEADER.pack(MAGIC, self.version, self.schema_crc, self.first, self.offset))

    @classmethod
    def unpack(cls, data: bytes) -> Self | None:
        """None if it is damaged."""
        if not _whole(data):
            return None
        magic, version, schema_crc, first, offset = _HEADER.unpack(data[: _HEADER.size])
        return cls(first, offset, schema_crc, version) if magic == MAGIC else None


class Record(NamedTuple):
    """The index record of a batch."""

    #: Its position in the data file, and its size in bytes; of heartbeats, where the next batch begins, and 0.
    offset: int
    size: int
    first: int
    rows: int
    crc: int
    #: Microseconds since the epoch, of the oldest and the newest row.
    min_time: int
    max_time: int
    flags: int = 0

    @property
    def end(self) -> int:
        return self.first + self.rows

    def pack(self) -> bytes:
        return _sealed(_RECORD.pack(*self))

    @classmethod
    def unpack(cls, data: bytes) -> Self | None:
        """None if it is damaged."""
        return cls._make(_RECORD.unpack(data[: _RECORD.size])) if _whole(data) else None


def _sealed(data: bytes) -> bytes:
    return data + _CRC.pack(zlib.crc32(data))


def _whole(data: bytes) -> bool:
    return len(data) == RECORD_SIZE and zlib.crc32(data[: -_CRC.size]) == _CRC.unpack(data[-_CRC.size :])[0]


def matching(root: str) -> list[str]:
    """The directories that a path stands for: those that it matches, if it is a pattern and no directory itself."""
    if not has_magic(root) or os.path.isdir(root):
        return [root]
    return sorted(path for path in glob(root) if os.path.isdir(path))


def places(root: str | Path) -> list[str]:
    """The directories of this machine that the place of a log stands for, or its URI if it is elsewhere."""
    local = local_root(root)
    return [str(root)] if local is None else matching(str(local))


def is_missing(root: str | Path) -> bool:
    """Whether no directory of this machine is where a log should be."""
    return local_root(root) is not None and not any(os.path.isdir(each) for each in places(root))


def local_root(root: str | Path) -> Path | None:
    """The directory, if the log is in one of this machine; `file://` is, and `file:/`, as Java has it."""
    text = str(root)
    if "://" not in text and not text.startswith("file:/"):
        return Path(text)
    from urllib.request import url2pathname  # only needed here, and slow to import

    parts = urlsplit(text)
    return Path(url2pathname(parts.path)) if parts.scheme == "file" else None
