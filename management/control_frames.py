"""The frames of the control socket: four bytes of length and a map in MessagePack.

The client begins with `{"protocol": 1}`, and the token where there is one. The broker answers with `{"protocol",
"node", "version", "pid", "max_frame_size"}`. Then the client sends `{"id", "operation", "arguments"}`, one request at a
time, and gets `{"id", "result"}` or `{"id", "error", "message"}`. The result of a listing is a page, `{"rows",
"next"}`: `next` is the argument `after` of the next page, and null at the end. A frame that cannot be read ends the
connection; its answer has no id.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from struct import Struct
from typing import Any, Final, cast

import msgpack  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]

from trunkline.mqtt.plain import plain

PROTOCOL: Final = 1
LENGTH: Final = Struct(">I")
#: Bytes of the first frame of a connection, in both directions: the peer is not known yet.
MAX_GREETING: Final = 4096

#: Errors of the protocol itself; those of operations have codes of their own.
MALFORMED: Final = "malformed"
TOO_LARGE: Final = "too_large"
UNWELCOME: Final = "unwelcome"
FAILED: Final = "failed"


_msgpack: Final[Any] = msgpack


class FrameError(Exception):
    """This is not a frame."""


def pack(content: object) -> bytes:
    """A value as MessagePack; dataclasses and mappings become maps, sequences arrays."""
    return cast("bytes", _msgpack.packb(content, default=_plain, unicode_errors="surrogatepass"))


def frame(packed: bytes) -> bytes:
    return LENGTH.pack(len(packed)) + packed


def unpack(packed: bytes) -> dict[str, Any]:
    """The content of a frame.

    Raises:
        FrameError: it does not hold a map with text keys.
    """
    try:
        content = _msgpack.unpackb(packed, unicode_errors="surrogatepass")
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise FrameError(f"not MessagePack: {error}") from None
    if not isinstance(content, dict) or not all(
        isinstance(name, str) for name in cast("dict[object, object]", content)
    ):
        raise FrameError(f"a map was expected, not {content!r:.60}")
    return cast("dict[str, Any]", content)


def _plain(value: object) -> object:
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping | Sequence):
        return plain(value)
    raise TypeError(f"{value!r:.80} cannot be sent")
