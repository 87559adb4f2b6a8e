"""The broker's own message ids: 128 bits that sort by time.

    64 bits  microseconds since the epoch
    16 bits  node, from its name and that of its machine
    32 bits  process or actor that made it
    16 bits  sequence

One generator never gives the same id twice, and each is greater than the one before: when a microsecond has no
sequence number left, and when the wall clock stands still or goes back, the time in the id runs ahead of the clock
until that has caught up. A node draws its 32 bits at random when it starts, so that not even a clock set back
between two runs repeats an id.
"""

import platform
import re
from typing import Final
from zlib import crc32

_TEXT: Final = re.compile("[0-9a-f]{32}")
_SEQUENCE: Final = 0xFFFF


class Guids:
    """A generator of ids. One for a whole process keeps every publisher's messages in order."""

    __slots__ = ("_end", "_low", "_next", "_seen")

    def __init__(self, node: int, origin: int) -> None:
        if not 0 <= node < 1 << 16 or not 0 <= origin < 1 << 32:
            raise ValueError(f"node {node} must fit 16 bits and origin {origin} 32 bits")
        self._low = node << 48 | origin << 16
        #: The next one, and the first beyond the microsecond that is being used.
        self._next = self._end = (self._low | _SEQUENCE) + 1
        self._seen = -1.0

    def next(self, wall: float, count: int = 1) -> int:
        """The first of `count` new ids (at most 65,536), each greater by one than the one before. `wall` is the time in
        seconds since the epoch."""
        first = self._next
        if wall > self._seen:
            self._seen = wall
            begun = int(wall * 1_000_000) << 64 | self._low
            if begun >= first:
                first = begun
                self._end = (first | _SEQUENCE) + 1
        if first + count > self._end:  # no sequence numbers left: on to the next microsecond, ahead of the clock
            first = (self._end - 1 >> 64) + 1 << 64 | self._low
            self._end = (first | _SEQUENCE) + 1
        self._next = first + count
        return first


def node_number(name: str) -> int:
    """The same 16 bits whenever the node of this name starts on this machine."""
    return crc32(f"{name}@{platform.node()}".encode()) & 0xFFFF


def to_text(guid: int) -> str:
    """32 hexadecimal digits, which sort as the ids do."""
    return f"{guid:032x}"


def from_text(text: str) -> int:
    """
    Raises:
        ValueError: the text is not in the form that `to_text` writes.
    """
    if _TEXT.fullmatch(text) is None:
        raise ValueError(f"not a message id: {text!r}")
    return int(text, 16)
