"""Keys, and what a bucket has of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from trunkline.nats.errors import BadSubject
from trunkline.nats.protocol.subjects import check_pattern

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Header that says what was done.
OPERATION: Final = "KV-Operation"
#: Header with which a message takes the place of all others, of its subject or of the stream.
ROLLUP: Final = "Nats-Rollup"
ROLLUP_SUBJECT: Final = "sub"
#: Header of a mark that the server has left, and says why.
_REASON: Final = "Nats-Marker-Reason"

_KEY: Final = re.compile(r"[-/_=.a-zA-Z0-9]+")
_PATTERN: Final = re.compile(r"[-/_=.a-zA-Z0-9*>]+")
#: Keys that begin with it are not the user's.
RESERVED: Final = "_kv"


class Operation(Enum):
    """What was done to a key."""

    PUT = "PUT"
    DELETE = "DEL"
    #: It was deleted with all values before.
    PURGE = "PURGE"


@dataclass(frozen=True, slots=True)
class Entry:
    """A value of a key, or that it was deleted."""

    bucket: str
    key: str
    value: bytes
    revision: int
    #: When the bucket took it, in seconds since the epoch.
    created: float
    #: How many newer ones the bucket had for whoever was told of this one.
    delta: int
    operation: Operation


def check_key(key: str) -> None:
    """
    Raises:
        BadSubject: it is none.
    """
    if not _KEY.fullmatch(key):
        raise BadSubject(f"{key!r}: a key has letters and digits of ASCII, and - / _ = .")
    if key.startswith(RESERVED):
        raise BadSubject(f"{key!r}: keys that begin with {RESERVED} are reserved")
    check_pattern(key)


def check_keys(pattern: str) -> None:
    """A key, or keys with wildcards.

    Raises:
        BadSubject: it is none.
    """
    if not _PATTERN.fullmatch(pattern):
        raise BadSubject(f"{pattern!r}: keys have letters and digits of ASCII, - / _ = ., and the wildcards * and >")
    check_pattern(pattern)


def operation_of(headers: Mapping[str, str]) -> Operation:
    """A mark that the server has left says why, in place of what was done."""
    reason = headers.get(_REASON)
    if reason is not None:
        return Operation.DELETE if reason == "Remove" else Operation.PURGE
    said = headers.get(OPERATION, "PUT")
    # one that is not known is a deletion of some kind (ADR-8, Retrieving Values)
    return next((each for each in Operation if each.value == said), Operation.DELETE)
