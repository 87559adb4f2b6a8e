"""A message as a row for a store: the fields in a fixed order, in types that msgpack knows, the properties as they are
on the wire. `epoch` is the moment, in seconds since the epoch, at which the node's own time is 0: what is stored means
the same to the next process.
"""

from collections.abc import Sequence
from math import inf
from typing import Any

from trunkline.mqtt.message import Message
from trunkline.mqtt.packet_types import PacketType
from trunkline.mqtt.properties import NO_PROPERTIES, Properties
from trunkline.mqtt.property_codec import decode_properties, encode_properties
from trunkline.mqtt.reader import Reader
from trunkline.mqtt.versions import Version


def message_to_row(message: Message, epoch: float) -> list[Any]:
    return [
        message.topic,
        message.payload,
        message.qos,
        message.retain,
        encode_properties(message.properties) if message.properties else b"",
        message.publisher,
        message.username,
        message.guid.to_bytes(16, "big"),  # more than msgpack's integers have
        message.timestamp,
        None if message.expires_at == inf else message.expires_at + epoch,
    ]


def message_from_row(row: Sequence[Any], epoch: float) -> Message:
    topic, payload, qos, retain, properties, publisher, username, guid, timestamp, expires = row
    return Message(
        topic,
        payload,
        qos,
        retain,
        _decoded(properties) if properties else NO_PROPERTIES,
        publisher,
        username,
        int.from_bytes(guid, "big"),
        timestamp,
        moment_from_wall(expires, epoch),
    )


def moment_to_wall(moment: float, epoch: float) -> float | None:
    """A moment of node time, infinite if it never comes, in seconds since the epoch, then None."""
    return None if moment == inf else moment + epoch


def moment_from_wall(wall: float | None, epoch: float) -> float:
    return inf if wall is None else wall - epoch


def _decoded(block: bytes) -> Properties:
    # not strict: it was judged when it came
    return decode_properties(Reader(block, 0, len(block), Version.V5, strict=False), PacketType.PUBLISH)
