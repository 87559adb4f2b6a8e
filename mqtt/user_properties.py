"""User properties: validated when they arrive, parsed when they are read.

A client may send thousands of them in one CONNECT, and they are rarely read. So one regular expression validates
consecutive user properties, and the pairs of strings are built at the first access. The expression spells out a pair
whose two strings have up to 63 bytes: `&`, a zero, a length, that many bytes that may stand in a string, and so again.
Each step is decided by one byte and never taken back (the groups are atomic, the repeat possessive), so it is linear.
Longer strings are handled in Python: few of them fit into a packet.

Since every length in such a run is below 128, the whole run is UTF-8 exactly when every string in it is: an ASCII byte
stands before and after each.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final, overload

from trunkline.mqtt.errors import MalformedPacket
from trunkline.mqtt.reader import Reader
from trunkline.mqtt.strings import DISCOURAGED_BEYOND_ASCII, encode_string

USER_PROPERTY: Final = 0x26

_SHORT: Final = 64


@cache
def _run(strict: bool) -> re.Pattern[bytes]:
    allowed = rb"[^\x00-\x1f\x7f]" if strict else rb"[^\x00]"
    string = b"|".join(re.escape(bytes([n])) + allowed + b"{%d}" % n for n in range(1, _SHORT)) + rb"|\x00"
    return re.compile(rb"(?:&\x00(?>%b)\x00(?>%b))*+" % (string, string))


def skip_user_properties(reader: Reader) -> bytes:
    """Step over the user properties that follow each other from here (the first one's identifier is read already).

    Returns them as they are on the wire, identifiers included.

    Raises:
        MalformedPacket: one of them is cut off or holds a string that is not allowed.
    """
    start = reader.position - 1
    found = _run(reader.strict).match(reader.data, start, reader.end)
    assert found is not None  # no pair at all is a match too
    reader.position = end = found.end()
    if end == start:
        # A long string, or an invalid one.
        reader.position = start + 1
        reader.string()
        reader.string()
        return reader.data[start : reader.position]
    raw = reader.data[start:end]
    if not raw.isascii():
        try:
            raw.decode()  # [MQTT-1.5.4-1] [MQTT-1.5.7-1]
        except UnicodeDecodeError as error:
            raise MalformedPacket(f"a user property is not UTF-8: {error.reason}") from None
        if reader.strict and (refused := DISCOURAGED_BEYOND_ASCII.search(raw)) is not None:
            raise MalformedPacket(f"a user property holds U+{ord(refused[0].decode()):04X}")
    return raw


class UserProperties(Sequence[tuple[str, str]]):
    """The pairs of a validated block of user properties. Equal to any sequence of the same pairs."""

    __slots__ = ("_pairs", "raw")

    def __init__(self, raw: bytes) -> None:
        #: Each with its identifier before it: what an encoder writes.
        self.raw = raw
        self._pairs: list[tuple[str, str]] | None = None

    @property
    def pairs(self) -> list[tuple[str, str]]:
        if self._pairs is None:
            raw, position = self.raw, 0
            pairs: list[tuple[str, str]] = []
            while position < len(raw):
                middle = position + 3 + (raw[position + 1] << 8 | raw[position + 2])
                end = middle + 2 + (raw[middle] << 8 | raw[middle + 1])
                pairs.append((raw[position + 3 : middle].decode(), raw[middle + 2 : end].decode()))
                position = end
            self._pairs = pairs
        return self._pairs

    def __len__(self) -> int:
        return len(self.pairs)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self.pairs)

    @overload
    def __getitem__(self, index: int) -> tuple[str, str]: ...
    @overload
    def __getitem__(self, index: slice) -> list[tuple[str, str]]: ...
    def __getitem__(self, index: int | slice) -> tuple[str, str] | list[tuple[str, str]]:
        return self.pairs[index]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, UserProperties):
            return self.raw == other.raw
        if isinstance(other, Sequence) and not isinstance(other, str | bytes):
            return self.pairs == list(other)  # pyright: ignore[reportUnknownArgumentType]
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self.pairs)


def encode_user_properties(pairs: Sequence[tuple[str, str]]) -> bytes:
    """The pairs in their order, each with its identifier before it."""
    if isinstance(pairs, UserProperties):
        return pairs.raw
    return b"".join(b"&" + encode_string(key) + encode_string(value) for key, value in pairs)
