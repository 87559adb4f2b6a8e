"""Messages as plain values, for journals, stores and other nodes: only types that msgpack and JSON-like formats have.

Times are relative, because the monotonic clock of one process has no meaning in another.
"""

from collections.abc import Mapping
from math import inf
from typing import Any, TypedDict, cast

from trunkline.mqtt.message import Message
from trunkline.mqtt.properties import NO_PROPERTIES, Properties


class PlainMessage(TypedDict):
    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: dict[str, object]
    publisher: str
    username: str | None
    #: Big endian: 128 bits are more than msgpack's integers have.
    guid: bytes
    timestamp: float
    #: Seconds left; None if it does not expire.
    expires_in: float | None


def message_to_plain(message: Message, now: float) -> PlainMessage:
    return {
        "topic": message.topic,
        "payload": message.payload,
        "qos": message.qos,
        "retain": message.retain,
        "properties": properties_to_plain(message.properties),
        "publisher": message.publisher,
        "username": message.username,
        "guid": message.guid.to_bytes(16, "big"),
        "timestamp": message.timestamp,
        "expires_in": seconds_left(message.expires_at, now),
    }


def message_from_plain(plain: Mapping[str, Any], now: float) -> Message:
    return Message(
        topic=plain["topic"],
        payload=plain["payload"],
        qos=plain["qos"],
        retain=plain["retain"],
        properties=properties_from_plain(plain["properties"]),
        publisher=plain["publisher"],
        username=plain["username"],
        guid=int.from_bytes(plain["guid"], "big"),
        timestamp=plain["timestamp"],
        expires_at=deadline_from(plain["expires_in"], now),
    )


def properties_to_plain(properties: Properties) -> dict[str, object]:
    return {name: _to_plain(value) for name, value in properties.items()}


def properties_from_plain(plain: Mapping[str, object]) -> Properties:
    properties = {name: _from_plain(value) for name, value in plain.items()}
    return cast("Properties", properties) if properties else NO_PROPERTIES


def seconds_left(deadline: float, now: float) -> float | None:
    return None if deadline == inf else deadline - now


def deadline_from(left: float | None, now: float) -> float:
    return inf if left is None else now + left


def _to_plain(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return [_to_plain(each) for each in cast("tuple[object, ...]", value)]
    return value


def _from_plain(value: object) -> object:
    # User properties are pairs.
    if isinstance(value, (list, tuple)):
        return tuple([_from_plain(each) for each in cast("tuple[object, ...]", value)])
    return value
