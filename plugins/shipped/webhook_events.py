"""Events of hook points as JSON, for a webhook. The names are those of EMQX's rule engine where it has one.

Passwords and authentication data are never part of them.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

from trunkline.mqtt.packets import Connack, Connect
from trunkline.mqtt.plain import in_words, plain
from trunkline.mqtt.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trunkline.hooks.alarm import Alarm
    from trunkline.hooks.client import ClientInfo
    from trunkline.hooks.exchange import Exchange
    from trunkline.hooks.points import Point
    from trunkline.mqtt.message import Message
    from trunkline.mqtt.packets import SubscriptionRequest

PayloadForm: TypeAlias = Literal["auto", "base64", "none"]
_Fields: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class EventWriter:
    payload: PayloadForm = "auto"
    max_payload_size: int = 65_536
    #: Fields that are left out, by name.
    leave_out: frozenset[str] = frozenset()

    def write(self, point: Point, values: tuple[object, ...], node: str, wall: float) -> bytes:
        """`values` are the arguments of the point's callbacks; `wall` is the time in seconds since the epoch."""
        fields: _Fields = {"event": point.name, "timestamp": _milliseconds(wall), "node": node}
        for name, value in zip(point.arguments, values, strict=True):
            if name == "message":
                fields |= self._message(cast("Message", value))
            else:
                fields |= _WRITERS[name](value)
        if "message" in point.arguments:
            for name in _OF_CONNECTIONS:
                fields.pop(name, None)
        for name in self.leave_out:
            fields.pop(name, None)
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")

    def _message(self, message: Message) -> _Fields:
        return {
            "id": f"{message.guid:032x}",
            "topic": message.topic,
            "qos": message.qos,
            "retain": message.retain,
            "from_clientid": message.publisher,
            "from_username": message.username,
            "publish_received_at": _milliseconds(message.timestamp),
            "payload_size": len(message.payload),
            **self._payload(message.payload),
            "properties": _properties(message.properties),
        }

    def _payload(self, payload: bytes) -> _Fields:
        if self.payload == "none" or len(payload) > self.max_payload_size:
            return {"payload": None, "payload_encoding": "none"}
        if self.payload == "auto":
            try:
                return {"payload": payload.decode(), "payload_encoding": "text"}
            except UnicodeDecodeError:
                pass
        return {"payload": base64.b64encode(payload).decode(), "payload_encoding": "base64"}


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)


def _properties(properties: Mapping[str, object]) -> _Fields:
    return {
        name: base64.b64encode(value).decode() if isinstance(value, bytes) else plain(value)
        for name, value in properties.items()
        if name != "authentication_data"
    }


def _client(client: ClientInfo) -> _Fields:
    return {
        "clientid": client.client_id,
        "username": client.username,
        "peerhost": client.peer and client.peer[0],
        "peerport": client.peer and client.peer[1],
        "proto_ver": int(client.version),
        "keepalive": client.keep_alive,
        "clean_start": client.clean_start,
        "connected_at": _milliseconds(client.connected_at),
        "listener": client.listener,
    }


#: Fields of the connection, which are not repeated with each message.
_OF_CONNECTIONS: Final = ("peerport", "proto_ver", "keepalive", "clean_start", "connected_at", "listener")


def _packet(packet: Connect | Connack) -> _Fields:
    if isinstance(packet, Connack):
        return _reason(Reason(packet.reason)) | {
            "session_present": packet.session_present,
            "properties": _properties(packet.properties),
        }
    will = packet.will
    return {
        "will": None if will is None else {"topic": will.topic, "qos": will.qos, "retain": will.retain},
        "properties": _properties(packet.properties),
    }


def _reason(reason: Reason | str) -> _Fields:
    if isinstance(reason, Reason):
        return {"reason": reason.name.lower(), "reason_code": int(reason)}
    return {"reason": reason}


def _request(request: SubscriptionRequest) -> _Fields:
    return {
        "topic": request.filter,
        "qos": request.qos,
        "no_local": request.no_local,
        "retain_as_published": request.retain_as_published,
        "retain_handling": request.retain_handling,
    }


def _alarm(alarm: Alarm) -> _Fields:
    return {
        "name": alarm.name,
        "text": alarm.text,
        "since": _milliseconds(alarm.since),
        "until": None if alarm.until is None else _milliseconds(alarm.until),
        "details": in_words(alarm.details),
    }


def _exchange(exchange: Exchange) -> _Fields:
    return {"authentication_method": exchange.method}


def _nothing(_: object) -> _Fields:
    return {}


def _named(name: str) -> Callable[[Any], _Fields]:
    return lambda value: {name: value}


#: By the names of what hook points give.
_WRITERS: Final[dict[str, Callable[[Any], _Fields]]] = {
    "client": _client,
    "packet": _packet,
    "password": _nothing,
    "exchange": _exchange,
    "reason": _reason,
    "text": _named("text"),
    "action": _named("action"),
    "topic": _named("topic"),
    "qos": _named("qos"),
    "retain": _named("retain"),
    "allowed": _named("allowed"),
    "request": _request,
    "filter": _named("topic"),
    "properties": lambda value: {"properties": _properties(value)},
    "receivers": lambda value: {"receivers": list(value)},
    "others": lambda value: {"others": list(value)},
    "alarm": _alarm,
    "delivery": _named("delivery"),
}

#: All fields of all events.
FIELDS: Final = frozenset(
    {
        *("clientid", "username", "peerhost", *_OF_CONNECTIONS),
        *("id", "topic", "qos", "retain", "from_clientid", "from_username", "publish_received_at"),
        *("payload", "payload_size", "payload_encoding", "properties"),
        *("reason", "reason_code", "session_present", "will", "authentication_method", "text", "action", "allowed"),
        *(
            "no_local",
            "retain_as_published",
            "retain_handling",
            "receivers",
            "others",
            "delivery",
            "name",
            "since",
            "until",
            "details",
        ),
    }
)
