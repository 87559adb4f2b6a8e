"""What a loop asks of a pull consumer ahead of itself; and what was asked for and has not come, counted over all pulls,
as a message does not say which one it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from trunkline.nats.protocol.operations import Deliver

#: Messages that a loop asks for ahead.
AHEAD: Final = 500
#: So much is never asked for: what was asked for has room, as it is counted as a delivery that failed otherwise.
MAX_MESSAGES: Final = 1_000_000
#: Pulls that are remembered. One that got all of its messages ends without a word, so that the oldest have.
MAX_OPEN: Final = 1024


@dataclass(frozen=True, slots=True)
class Ahead:
    """How far a loop asks ahead of itself: so many messages, or so many bytes if they are not 0. It asks for the rest
    when no more than `threshold` of them are left (ADR-37, Max messages and max bytes options)."""

    messages: int
    bytes: int
    threshold: int

    def room(self, messages: int, size: int) -> tuple[int, int] | None:
        """The messages and bytes to ask for where so much waits or may come; None: that is enough."""
        if self.bytes:
            return (MAX_MESSAGES, self.bytes - size) if size <= self.threshold else None
        return (self.messages - messages, 0) if messages <= self.threshold else None


def ahead_of(
    messages: int = AHEAD, size: int = 0, threshold: int | None = None, threshold_bytes: int | None = None
) -> Ahead:
    """From what a user says. Without a threshold it is half.

    Raises:
        ValueError: it contradicts itself.
    """
    if not 0 < messages <= MAX_MESSAGES or size < 0 or (messages != AHEAD and size):
        raise ValueError(f"ahead: {messages} messages, and {size} bytes, of which one is possible")
    most = size or messages
    own, other = (threshold_bytes, threshold) if size else (threshold, threshold_bytes)
    if other is not None:
        raise ValueError("threshold is a part of ahead, and threshold_bytes of ahead_bytes")
    if own is None:
        own = most // 2
    if not 0 <= own <= most:
        raise ValueError(f"a threshold of {own}, of {most} that are asked for ahead")
    return Ahead(messages, size, min(own, most - 1))  # where nothing is missing there is nothing to ask for


class Pulls:
    def __init__(self) -> None:
        #: That may still come.
        self.messages = 0
        self.bytes = 0
        #: Pulls that have not ended, with what each had room for.
        self._open: dict[bytes, tuple[int, int]] = {}
        self._number = 0

    def __contains__(self, token: bytes) -> bool:
        return token in self._open

    def open(self, messages: int, size: int) -> bytes:
        """Its token. A `size` of 0 is no limit."""
        self._number += 1
        token = b"%x" % self._number
        if len(self._open) >= MAX_OPEN:
            del self._open[next(iter(self._open))]
        self._open[token] = (messages, size)
        self.messages += messages
        self.bytes += size
        return token

    def came(self, wire: Deliver) -> None:
        """A message. A pull that has got all of them ends without a word."""
        self.messages -= 1
        if self.bytes:
            self.bytes = max(self.bytes - size_of(wire), 0)
        if self.messages <= 0:
            self.forget()

    def end(self, token: bytes, messages: int | None, size: int | None) -> None:
        """A pull has ended, and so much of it has not come; None: all."""
        asked = self._open.pop(token, None)
        if asked is None:
            return
        self.messages -= asked[0] if messages is None else min(messages, asked[0])
        self.bytes -= asked[1] if size is None else min(size, asked[1])
        if not self._open or self.messages <= 0:
            self.forget()

    def forget(self) -> None:
        """Nothing more comes."""
        self._open.clear()
        self.messages = self.bytes = 0


def size_of(wire: Deliver) -> int:
    """As a server counts it for a pull."""
    return len(wire.subject) + len(wire.reply) + len(wire.block) + len(wire.payload)
