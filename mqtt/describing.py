"""Describes packets: as a dict of named fields, and in one line of text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from trunkline.mqtt.explanations import shortened
from trunkline.mqtt.packets import TYPE_OF, Connect, Publish, Suback, Subscribe, Unsuback, Unsubscribe
from trunkline.mqtt.plain import plain
from trunkline.mqtt.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trunkline.mqtt.packets import Packet

#: Bytes of a payload that are shown.
PREVIEW: Final = 60
#: Reasons that have other names where they answer a subscription.
_GRANTED: Final = {0: "GRANTED_QOS_0", 1: "GRANTED_QOS_1", 2: "GRANTED_QOS_2"}


#: Characters of a user name that are shown.
MAX_USERNAME: Final = 64


def fields(packet: Packet) -> dict[str, Any]:
    """A packet's fields by name, without those that have their default. Reasons are shown by their names, bytes as they
    are."""
    found: dict[str, Any] = {}
    match packet:
        case Connect():
            found = {"version": str(packet.version), "client_id": packet.client_id, "clean_start": packet.clean_start}
            found |= {"keep_alive": packet.keep_alive, "username": packet.username, "password": packet.password}
            if packet.will is not None:
                will = packet.will
                found["will"] = {"topic": will.topic, "payload": will.payload, "qos": will.qos, "retain": will.retain}
                found["will"] |= {"properties": plain(will.properties)} if will.properties else {}
        case Publish():
            found = {"topic": packet.topic, "id": packet.packet_id, "qos": packet.qos, "retain": packet.retain}
            found |= {"dup": packet.dup}
        case Subscribe():
            found = {"id": packet.packet_id, "requests": [_left(_request(each)) for each in packet.requests]}
        case Unsubscribe():
            found = {"id": packet.packet_id, "filters": packet.filters}
        case Suback():
            granted = [_GRANTED.get(each) or reason_name(each) for each in packet.reasons]
            found = {"id": packet.packet_id, "reasons": granted}
        case Unsuback():
            found = {"id": packet.packet_id, "reasons": [reason_name(each) for each in packet.reasons]}
        case _:
            found = {
                "id": getattr(packet, "packet_id", 0),
                "session_present": getattr(packet, "session_present", False),
            }
            reason: int = getattr(packet, "reason", 0)
            found["reason"] = reason_name(reason) if reason else ""
    found["properties"] = plain(getattr(packet, "properties", {}))
    if isinstance(packet, Publish):
        found["payload"] = packet.payload
    return {"type": TYPE_OF[type(packet)].name, **_left(found)}


def reason_name(code: int) -> str:
    try:
        return Reason(code).name
    except ValueError:
        return f"0x{code:02X}"


def describe(packet: Packet) -> str:
    """A packet in a line."""
    return line(fields(packet))


def describe_without_content(packet: Packet) -> str:
    """A packet in a line, without payloads, passwords and user properties: bytes are shown as their number alone."""
    return line(_without_content(fields(packet)))


def shown_username(username: str | None) -> str | None:
    """A user name for the log, without long ones: some clients send a token as user name, which must not become
    known."""
    return username if username is None or len(username) <= MAX_USERNAME else f"{username[:MAX_USERNAME]}…"


def _without_content(found: dict[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for name, value in found.items():
        if name == "password":
            shown[name] = True
        elif name == "username":
            shown[name] = shown_username(value)
        elif isinstance(value, bytes):
            shown[f"{name}_bytes"] = len(value)
        elif name == "user_property":
            shown["user_properties"] = len(value)
        else:
            shown[name] = _without_long_texts(value)
    return shown


def _without_long_texts(value: object) -> object:
    if isinstance(value, str):
        return shortened(value)
    if isinstance(value, list):
        return [_without_long_texts(each) for each in cast("list[object]", value)]
    return _without_content(cast("dict[str, Any]", value)) if isinstance(value, dict) else value


def line(found: dict[str, Any]) -> str:
    """The result of `fields`, in a line."""
    found = dict(found)
    return " ".join([found.pop("type"), *(word for name, value in found.items() for word in _words(name, value))])


def _words(name: str, value: Any) -> Iterator[str]:
    match name, value:
        case _, True:
            yield name
        case "topic" | "reason", str():
            yield quoted_if_needed(value)
        case "reasons" | "filters", list():
            yield ", ".join(quoted_if_needed(each) for each in cast("list[str]", value))
        case "requests", list():
            yield ", ".join(
                " ".join(word for pair in each.items() for word in _words(*pair))
                for each in cast("list[dict[str, Any]]", value)
            )
        case "filter", str():
            yield quoted_if_needed(value)
        case "properties", dict():
            yield "{" + ", ".join(f"{key}: {_value(one)}" for key, one in cast("dict[str, Any]", value).items()) + "}"
        case "will", dict():
            inner = cast("dict[str, Any]", value)
            yield "will=(" + " ".join(word for pair in inner.items() for word in _words(*pair)) + ")"
        case "payload", bytes():
            yield _value(value)
        case _:
            yield f"{name}={_value(value)}"


def _value(value: Any) -> str:
    if isinstance(value, bytes):
        shown = repr(value[:PREVIEW])[1:]
        return shown if len(value) <= PREVIEW else f"{shown}… ({len(value)} bytes)"
    if isinstance(value, str):
        return quoted_if_needed(value)
    return str(value)


def quoted_if_needed(text: str) -> str:
    """Without quotes where it is unambiguous."""
    return text if text and text.isprintable() and not any(each in text for each in " ,=\"'(){}") else repr(text)


def _request(request: Any) -> dict[str, Any]:
    return {
        "filter": request.filter,
        "qos": request.qos,
        "no_local": request.no_local,
        "retain_as_published": request.retain_as_published,
        "retain_handling": request.retain_handling,
    }


def _left(found: dict[str, Any]) -> dict[str, Any]:
    """Without empty fields. (An empty payload is kept, as it has a meaning.)"""
    return {
        name: value
        for name, value in found.items()
        if name == "payload" or not (value is None or value is False or value in (0, "", b"", [], {}))
    }
