"""Bytes to frames, in any pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trunkline.broker.links.frames import HEAD, BadFrame, decode

if TYPE_CHECKING:
    from trunkline.broker.links.frames import LinkFrame

#: Bytes of a frame, more than any that is sent: what one turn publishes is cut before.
MAX_FRAME: Final = 1 << 28


class FrameDecoder:
    """Holds a frame that is not complete, and nothing behind a mistake."""

    __slots__ = ("_held", "_limit", "_needed", "error")

    def __init__(self, limit: int = MAX_FRAME) -> None:
        self._limit = limit
        self._held = bytearray()
        self._needed = HEAD.size
        #: The other side's mistake.
        self.error: BadFrame | None = None

    def feed(self, data: bytes) -> list[LinkFrame]:
        """The frames that `data` completes. Never raises: see `error`."""
        found: list[LinkFrame] = []
        if self.error is not None:
            return found
        whole: bytes | bytearray = data
        if self._held:
            self._held += data
            if len(self._held) < self._needed:
                return found
            whole, self._held = self._held, bytearray()
        view, at = memoryview(whole), 0
        try:
            while len(view) - at >= HEAD.size:
                size, kind = HEAD.unpack_from(view, at)
                if not 0 < size <= self._limit:
                    raise BadFrame(f"a frame of {size} bytes, at most {self._limit} are allowed")
                end = at + HEAD.size - 1 + size
                if end > len(view):
                    break
                found.append(decode(kind, view[at + HEAD.size : end]))
                at = end
        except BadFrame as error:
            self.error = error.with_traceback(None)
            return found
        self._held += view[at:]
        self._needed = HEAD.size
        if len(self._held) >= HEAD.size:
            self._needed = HEAD.size - 1 + HEAD.unpack_from(self._held)[0]
        return found
