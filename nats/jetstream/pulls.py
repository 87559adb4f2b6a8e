"""What was asked of a pull consumer and has not come: counted over all pulls, as a message does not say which one it
answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from trunkline.nats.protocol.operations import Deliver


#: Pulls that are remembered. One that got all of its messages ends without a word, so that the oldest have.
MAX_OPEN: Final = 1024


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
