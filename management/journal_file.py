"""Journals: all packets of a broker's connections with their times, in a file that stays readable even if its writer
crashes.

A journal is a sequence of msgpack values. The first is a map with the header; each of the others is an event:

    [0, seconds, connection, client id, version, [address, port] or nil, from its beginning]: it was opened
    [1, seconds, connection, from the client, bytes, secrets left out]: a packet
    [2, seconds, connection, by whom, error]: it was closed
    [3, seconds, gracefully, with sessions kept, with retained messages kept]: the broker ends

Seconds count from the header's `started`. The last value may be incomplete.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import msgpack  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: It has no types of its own.
_msgpack: Final[Any] = msgpack

FORMAT: Final = "trunkline journal"
#: Later versions can read this one.
VERSION: Final = 1

#: Maximum bytes of an entry: the largest possible packet and its envelope.
_MAX_ENTRY: Final = 268_435_460 + 1024


class JournalError(Exception):
    """The file is not a journal, or this version cannot read it."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A connection was opened, or existed when the recording began."""

    at: float
    connection: int
    #: Client id and version of a connection that existed already; empty and 0 for a new one.
    client_id: str
    version: int
    #: None for an in-process connection.
    peer: tuple[str, int] | None
    #: Whether it has been recorded from its first byte on.
    whole: bool


@dataclass(frozen=True, slots=True)
class Passed:
    """A packet was sent by the client, or reached it."""

    at: float
    connection: int
    from_client: bool
    data: bytes
    #: Whether a password or authentication data was left out of `data`.
    masked: bool


@dataclass(frozen=True, slots=True)
class Closed:
    at: float
    connection: int
    #: `client`, `broker`, or `fault` for a test's fault.
    by: str
    error: str


@dataclass(frozen=True, slots=True)
class BrokerEnding:
    """The broker is about to end. If connections follow, it was restarted."""

    at: float
    #: Whether it disconnects its clients first.
    graceful: bool
    #: The state that is kept for a restart.
    keeps_sessions: bool
    keeps_retained: bool


Entry: TypeAlias = Opened | Passed | Closed | BrokerEnding
#: The index of each type is its number in the file.
_KINDS: Final = (Opened, Passed, Closed, BrokerEnding)


@dataclass(frozen=True, slots=True)
class JournalHeader:
    #: Seconds since the epoch.
    started: float
    #: Version of the broker.
    broker: str


def pack_header(header: JournalHeader) -> bytes:
    return _pack({"format": FORMAT, "version": VERSION, "started": header.started, "broker": header.broker})


def pack_entry(entry: Entry) -> bytes:
    return _pack([_KINDS.index(type(entry)), *astuple(entry)])


def _pack(value: object) -> bytes:
    return cast("bytes", _msgpack.packb(value))


class Journal:
    """Reads a journal, entry by entry."""

    def __init__(self, path: Path | str) -> None:
        """
        Raises:
            OSError: the file cannot be read.
            JournalError: it is not a journal, or has a later version.
        """
        self._path = path
        with open(path, "rb") as file:
            self.header = self._header(_msgpack.Unpacker(file))

    def _header(self, values: Iterator[Any]) -> JournalHeader:
        try:
            value = next(values)
        except (StopIteration, ValueError, _msgpack.UnpackException):
            value = None
        match value:
            case {"format": "trunkline journal", "version": int(version)} if version > VERSION:
                raise JournalError(
                    f"{self._path}: the journal has version {version}; only version {VERSION} is supported"
                )
            case {"format": "trunkline journal", "started": float(started), "broker": str(broker)}:
                return JournalHeader(started, broker)
            case _:
                raise JournalError(f"{self._path} is not a journal of Trunkline")

    def __iter__(self) -> Iterator[Entry]:
        """The entries in order, without an incomplete one at the end.

        Raises:
            OSError: the file cannot be read.
            JournalError: it contains an invalid entry.
        """
        with open(self._path, "rb") as file:
            values: Iterator[Any] = _msgpack.Unpacker(file, max_buffer_size=_MAX_ENTRY)
            next(values)
            number = 0
            while True:
                number += 1
                try:
                    entry = _entry(next(values))
                except StopIteration:
                    return
                except (ValueError, _msgpack.UnpackException):
                    entry = None
                if entry is None:
                    raise JournalError(f"{self._path}: entry {number} has a form that this version does not support")
                yield entry


def _entry(value: object) -> Entry | None:
    match value:
        case [0, float(at), int(connection), str(client_id), int(version), [str(address), int(port)], bool(whole)]:
            return Opened(at, connection, client_id, version, (address, port), whole)
        case [0, float(at), int(connection), str(client_id), int(version), None, bool(whole)]:
            return Opened(at, connection, client_id, version, None, whole)
        case [1, float(at), int(connection), bool(from_client), bytes(data), bool(masked)] if data:
            return Passed(at, connection, from_client, data, masked)
        case [2, float(at), int(connection), str(by), str(error)]:
            return Closed(at, connection, by, error)
        case [3, float(at), bool(graceful), bool(keeps_sessions), bool(keeps_retained)]:
            return BrokerEnding(at, graceful, keeps_sessions, keeps_retained)
        case _:
            return None
