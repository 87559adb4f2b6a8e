"""The memory that kept things take, roughly: every limit in bytes counts it. Computed only where something is kept."""

from typing import Final, cast

from trunkline.mqtt.properties import Properties
from trunkline.mqtt.user_properties import UserProperties

#: Bytes that a message takes besides its content: the object, the headers of its strings, its place in a queue.
OVERHEAD: Final = 512
#: The same for a block of properties, and for each property in it.
_BLOCK: Final = 256
_PROPERTY: Final = 64

#: Messages of this weight or more count towards the bytes of a window. Lighter ones are limited by their number, and
#: pay nothing.
HEAVY: Final = 4096


def text_weight(text: str) -> int:
    return len(text) if text.isascii() else 4 * len(text)


def properties_weight(properties: Properties) -> int:
    return _BLOCK + sum(map(_property, properties.values()))


def block_weight(properties: Properties, block: bytes) -> int:
    """The same for properties that are encoded already, in fewer steps, and the block besides."""
    pairs = len(properties.get("user_property", ()))
    return _BLOCK + _PROPERTY * (len(properties) + 3 * pairs) + 2 * len(block)


def _property(value: object) -> int:
    if isinstance(value, UserProperties):
        return _PROPERTY + len(value.raw)
    if isinstance(value, str):
        return _PROPERTY + text_weight(value)
    if isinstance(value, bytes):
        return _PROPERTY + len(value)
    if isinstance(value, list | tuple):  # pairs that a plugin has made
        return _PROPERTY + sum(map(_property, cast("list[object]", value)))
    return _PROPERTY
