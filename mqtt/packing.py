"""Plain values as bytes, for a store: msgpack, with types."""

from typing import Any, Final, cast

import msgpack  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]

from trunkline.mqtt.plain import plain

_msgpack: Final[Any] = msgpack

#: Bytes that a packer begins with, and grows from: its default of 256 KiB takes longer to get than most values to pack.
_BUFFER: Final = 1024


def pack(value: object) -> bytes:
    """
    Raises:
        TypeError, ValueError, OverflowError: it cannot be made plain.
    """
    return cast("bytes", _msgpack.Packer(default=_made_plain, buf_size=_BUFFER).pack(value))


def unpack(data: bytes | memoryview) -> Any:
    """Keys of a dict may be other than text; a tuple comes back as a list."""
    return _msgpack.unpackb(data, strict_map_key=False)


def _made_plain(value: object) -> object:
    made = plain(value)
    if made is value:
        raise TypeError(f"{type(value).__name__} is no plain value")
    return made
