"""Frames of WebSocket that hold a binary message each, as nearly all do: many of a kind are read at once, and output is
framed.
"""

from struct import iter_unpack
from typing import Final

try:
    from websockets.speedups import apply_mask
except ImportError:  # it is not compiled for this platform
    from websockets.utils import apply_mask

__all__ = ["MAX_SENT", "MIN_ALIKE", "SHORT_HEADER", "WHOLE_BINARY", "apply_mask", "framed", "read_alike"]

#: Begins a binary message of one frame that is not compressed.
WHOLE_BINARY: Final = 0x82
#: Bytes of the header of a client's frame with a payload of less than 126.
SHORT_HEADER: Final = 6
#: Frames as long as the first of a read that must have room behind it for a look at whether they are like it, as those
#: of a stream often are.
MIN_ALIKE: Final = 8
#: Longest payload of a frame that is sent: some clients accept no longer ones.
MAX_SENT: Final = 65_535
#: The headers of short frames that are sent, by the length of their payload.
_HEADERS: Final = [bytes([WHOLE_BINARY, length]) for length in range(126)]


def read_alike(data: bytes, at: int, body: int, after: int, payloads: list[bytes]) -> int:
    """Read the frame there, and all that follow with the same header but for the mask. Returns where they end."""
    size = after - at
    alike = (len(data) - at) // size
    for place in range(at, body - 4):
        column = data[place : at + alike * size : size]
        alike = len(column) - len(column.lstrip(column[:1]))
    frames = iter_unpack(f"{body - at - 4}x4s{after - body}s", memoryview(data)[at : at + alike * size])
    payloads += [apply_mask(payload, mask) for mask, payload in frames]
    return at + alike * size


def framed(data: bytes) -> bytes:
    """In as few frames as there may be, copied once."""
    size = len(data)
    if size < 126:
        return _HEADERS[size] + data
    parts: list[bytes | memoryview] = []
    rest = memoryview(data)
    while size:
        length = min(size, MAX_SENT)
        parts += _HEADERS[length] if length < 126 else b"\x82\x7e" + length.to_bytes(2, "big"), rest[:length]
        rest = rest[length:]
        size -= length
    return b"".join(parts)
