"""A journal as text: a line for each thing that happened."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, cast

from trunkline.management.journal_file import Closed, Ending, Journal, Opened, Passed
from trunkline.mqtt.decoder import Decoder
from trunkline.mqtt.packets import (
    TYPE_OF,
    Connack,
    Connect,
    PacketType,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.versions import Version

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trunkline.management.journal_file import Entry
    from trunkline.mqtt.packets import Packet
    from trunkline.mqtt.properties import Properties

#: Bytes of a payload that are shown.
PREVIEW: Final = 60
#: Reasons that have other names where they answer a subscription.
_GRANTED: Final = {0: "GRANTED_QOS_0", 1: "GRANTED_QOS_1", 2: "GRANTED_QOS_2"}


class Conversation:
    """What is known of a connection: without it, its packets cannot be read."""

    __slots__ = ("_aliases", "client_id", "version")

    def __init__(self, client_id: str = "", version: Version | None = None) -> None:
        self.client_id = client_id
        self.version = version
        #: Topics by the aliases that were made for them, of each side.
        self._aliases: dict[bool, dict[int, str]] = {True: {}, False: {}}

    def read(self, passed: Passed) -> Packet | None:
        """The packet, taken apart, with its topic's name if it names an alias alone; None if it cannot be decoded."""
        first = passed.data[0] >> 4 == PacketType.CONNECT and passed.from_client
        if self.version is None and not first:
            return None
        decoded = Decoder(server=passed.from_client, version=None if first else self.version).feed(passed.data)
        packet = cast("Packet", decoded[0]) if decoded else None
        if isinstance(packet, Connect):
            self.version, self.client_id = packet.version, packet.client_id
        elif isinstance(packet, Connack):
            self.client_id = self.client_id or packet.properties.get("assigned_client_identifier", "")
        elif isinstance(packet, Publish) and (alias := packet.properties.get("topic_alias")) is not None:
            aliases = self._aliases[passed.from_client]
            if packet.topic:
                aliases[alias] = packet.topic
            else:
                packet.topic = aliases.get(alias, "")
        return packet


def fields(packet: Packet) -> dict[str, Any]:
    """A packet by names; what is at its default is left out. Reasons are shown by their names, bytes as they are."""
    found: dict[str, Any] = {}
    match packet:
        case Connect():
            found = {"version": str(packet.version), "client_id": packet.client_id, "clean_start": packet.clean_start}
            found |= {"keep_alive": packet.keep_alive, "username": packet.username, "password": packet.password}
            if packet.will is not None:
                will = packet.will
                found["will"] = {"topic": will.topic, "payload": will.payload, "qos": will.qos, "retain": will.retain}
                found["will"] |= {"properties": _plain(will.properties)} if will.properties else {}
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
    found["properties"] = _plain(getattr(packet, "properties", {}))
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


def line(found: dict[str, Any]) -> str:
    """What `fields` gave, in a line."""
    found = dict(found)
    return " ".join([found.pop("type"), *(word for name, value in found.items() for word in _words(name, value))])


def _words(name: str, value: Any) -> Iterator[str]:
    match name, value:
        case _, True:
            yield name
        case "topic" | "reason", str():
            yield _quoted(value)
        case "reasons" | "filters", list():
            yield ", ".join(_quoted(each) for each in cast("list[str]", value))
        case "requests", list():
            yield ", ".join(
                " ".join(word for pair in each.items() for word in _words(*pair))
                for each in cast("list[dict[str, Any]]", value)
            )
        case "filter", str():
            yield _quoted(value)
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
        return _quoted(value)
    return str(value)


def _quoted(text: str) -> str:
    """As it is, where it cannot be taken for something else."""
    return text if text and text.isprintable() and not any(each in text for each in " ,=\"'(){}") else repr(text)


def _request(request: Any) -> dict[str, Any]:
    return {
        "filter": request.filter,
        "qos": request.qos,
        "no_local": request.no_local,
        "retain_as_published": request.retain_as_published,
        "retain_handling": request.retain_handling,
    }


def _plain(properties: Properties | Mapping[str, Any]) -> dict[str, Any]:
    return {name: _listed(value) for name, value in properties.items()}


def _listed(value: Any) -> Any:
    """With lists in place of tuples."""
    return [_listed(each) for each in cast("list[Any]", value)] if isinstance(value, (list, tuple)) else value


def _left(found: dict[str, Any]) -> dict[str, Any]:
    """Without what says nothing. (An empty payload says something.)"""
    return {
        name: value
        for name, value in found.items()
        if name == "payload" or not (value is None or value is False or value in (0, "", b"", [], {}))
    }


# Whole journals


def rows(journal: Journal, client: str | None = None) -> Iterator[tuple[Entry, str, Packet | None]]:
    """What happened, with the client id of each connection, and packets taken apart; of one client alone if one is named.

    Raises:
        OSError, JournalError: the journal cannot be read.
    """
    names = client_ids(journal)
    conversations: dict[int, Conversation] = {}
    for entry in journal:
        if isinstance(entry, Opened):
            version = Version(entry.version) if entry.version else None
            conversations[entry.connection] = Conversation(entry.client_id, version)
        if isinstance(entry, Ending):
            yield entry, "", None
            continue
        conversation = conversations.setdefault(entry.connection, Conversation())
        packet = conversation.read(entry) if isinstance(entry, Passed) else None
        name = names.get(entry.connection, "")
        if client is None or name == client:
            yield entry, name, packet


def client_ids(journal: Journal) -> dict[int, str]:
    """Of all connections whose client is known."""
    conversations: dict[int, Conversation] = {}
    for entry in journal:
        if isinstance(entry, Opened):
            conversations[entry.connection] = Conversation(entry.client_id)
        elif isinstance(entry, Passed) and entry.data[0] >> 4 in (PacketType.CONNECT, PacketType.CONNACK):
            conversations.setdefault(entry.connection, Conversation()).read(entry)
    return {connection: each.client_id for connection, each in conversations.items()}


def as_text(journal: Journal, client: str | None = None) -> Iterator[str]:
    """Lines: seconds since the beginning, connection, client, direction, packet."""
    for entry, name, packet in rows(journal, client):
        who = "" if isinstance(entry, Ending) else f"#{entry.connection} {_quoted(name) if name else '?'}"
        yield f"{entry.at:12.6f}  {who:<16} {_event(entry, packet)}"


def _event(entry: Entry, packet: Packet | None) -> str:
    match entry:
        case Opened():
            where = "in process" if entry.peer is None else f"from {entry.peer[0]}:{entry.peer[1]}"
            return f"== opened {where}" if entry.whole else f"== there already, {where}"
        case Ending():
            return _end(entry)
        case Closed():
            return f"== closed by the {entry.by}" + (f": {entry.error}" if entry.error else "")
        case Passed():
            arrow = "->" if entry.from_client else "<-"
            return f"{arrow} {describe(packet) if packet is not None else _unread(entry)}"


def _end(entry: Ending) -> str:
    kept = ["its sessions"] * entry.keeps_sessions + ["its retained messages"] * entry.keeps_retained
    how = "says goodbye" if entry.graceful else "is killed"
    return f"== the broker {how}, and keeps {' and '.join(kept) or 'nothing'}"


def _unread(entry: Passed) -> str:
    kind = PacketType(entry.data[0] >> 4).name
    if entry.masked:
        return f"{kind} that cannot be decoded, and may hold secrets"
    return f"{kind} that cannot be decoded: {entry.data[:PREVIEW].hex(' ')}"


def as_records(journal: Journal, client: str | None = None) -> Iterator[dict[str, Any]]:
    """What happened as values for JSON. Bytes are text where they can be, and else base64 under `…_base64`."""
    for entry, name, packet in rows(journal, client):
        moment = datetime.fromtimestamp(journal.header.started + entry.at, UTC)
        record: dict[str, Any] = {"at": entry.at, "time": moment.isoformat(timespec="microseconds")}
        if not isinstance(entry, Ending):
            record |= {"connection": entry.connection, "client": name}
        match entry:
            case Ending():
                record |= {"event": "ending", "graceful": entry.graceful}
                record |= {"keeps_sessions": entry.keeps_sessions, "keeps_retained": entry.keeps_retained}
            case Opened():
                peer = None if entry.peer is None else f"{entry.peer[0]}:{entry.peer[1]}"
                record |= {"event": "opened", "peer": peer, "whole": entry.whole}
            case Closed():
                record |= {"event": "closed", "by": entry.by, "error": entry.error}
            case Passed():
                kind = {"type": PacketType(entry.data[0] >> 4).name, "data": entry.data}
                record |= {"event": "packet", "from_client": entry.from_client, "masked": entry.masked}
                record |= _jsonable(fields(packet) if packet is not None else kind)
        yield record


def _jsonable(found: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for name, value in found.items():
        if isinstance(value, bytes):
            try:
                plain[name] = value.decode()
            except UnicodeDecodeError:
                plain[f"{name}_base64"] = b64encode(value).decode()
        elif isinstance(value, dict):
            plain[name] = _jsonable(cast("dict[str, Any]", value))
        else:
            plain[name] = value
    return plain
