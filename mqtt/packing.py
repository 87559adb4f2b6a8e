"""Plain values as bytes, for a store: msgpack, with types."""

from typing import Any, Final, cast

import msgpack  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]

_msgpack: Final[Any] = msgpack


def pack(value: object) -> bytes:
    """
    Raises:
        TypeError, ValueError, OverflowError: it is not a plain value.
    """
    return cast("bytes", _msgpack.packb(value))


def unpack(data: bytes) -> Any:
    """Keys of a dict may be other than text; a tuple comes back as a list."""
    return _msgpack.unpackb(data, strict_map_key=False)
