"""What it costs to keep a message: the one notion behind every limit in bytes. Asked only where something is kept."""

from typing import Final, cast

from trunkline.mqtt.message import Message
from trunkline.mqtt.user_properties import UserProperties

#: Bytes that a message takes besides its content: itself, the heads of its strings, its place where it waits.
OVERHEAD: Final = 512
#: The same of a block of properties, and of each property in it.
_BLOCK: Final = 256
_PROPERTY: Final = 64


def weight(message: Message) -> int:
    """Bytes of memory, roughly, that it costs to keep a message: what every limit in bytes counts.

    A message that is encoded for somebody takes its content once more, which is not counted.
    """
    size = OVERHEAD + _text(message.topic) + len(message.payload)
    if message.properties:
        size += _BLOCK + sum(map(_property, message.properties.values()))
    return size


def _text(text: str) -> int:
    return len(text) if text.isascii() else 4 * len(text)


def _property(value: object) -> int:
    if isinstance(value, UserProperties):
        return _PROPERTY + len(value.raw)
    if isinstance(value, str):
        return _PROPERTY + _text(value)
    if isinstance(value, bytes):
        return _PROPERTY + len(value)
    if isinstance(value, list | tuple):  # pairs that a plugin has made
        return _PROPERTY + sum(map(_property, cast("list[object]", value)))
    return _PROPERTY
