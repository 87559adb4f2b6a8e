"""A journal as text: one line for each entry."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from typing import TYPE_CHECKING, Any, Final, cast

from trunkline.management.journal_file import BrokerEnding, Closed, Journal, Opened, Passed
from trunkline.mqtt.conversation import Conversation
from trunkline.mqtt.describing import PREVIEW, describe, fields, quoted_if_needed
from trunkline.mqtt.packets import PacketType, Publish
from trunkline.mqtt.topics import matches
from trunkline.mqtt.versions import Version

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trunkline.management.journal_file import Entry
    from trunkline.mqtt.packets import Packet


# Whole journals


@dataclass(frozen=True, slots=True)
class Chosen:
    """Selects the entries to show; an empty field selects all."""

    client: str | None = None
    #: With types or a topic filter, only packets are shown.
    types: tuple[str, ...] = ()
    topic: str | None = None
    #: Seconds since the beginning.
    after: float = 0.0
    before: float = inf

    def takes(self, entry: Entry, name: str, packet: Packet | None) -> bool:
        if not self.after <= entry.at <= self.before:
            return False
        if isinstance(entry, BrokerEnding):
            return not (self.types or self.topic)
        if self.client not in (None, name):
            return False
        if self.types and not (isinstance(entry, Passed) and PacketType(entry.data[0] >> 4).name in self.types):
            return False
        return self.topic is None or (isinstance(packet, Publish) and matches(self.topic, packet.topic))


#: Everything.
ALL: Final = Chosen()


def rows(journal: Journal, chosen: Chosen = ALL) -> Iterator[tuple[Entry, str, Packet | None]]:
    """The entries, with the client id of each connection and decoded packets.

    Raises:
        OSError, JournalError: the journal cannot be read.
    """
    names = client_ids(journal)
    conversations: dict[int, Conversation] = {}
    for entry in journal:
        if isinstance(entry, Opened):
            version = Version(entry.version) if entry.version else None
            conversations[entry.connection] = Conversation(entry.client_id, version)
        if isinstance(entry, BrokerEnding):
            if chosen.takes(entry, "", None):
                yield entry, "", None
            continue
        conversation = conversations.setdefault(entry.connection, Conversation())
        packet = conversation.read(entry.data, entry.from_client) if isinstance(entry, Passed) else None
        name = names.get(entry.connection, "")
        if chosen.takes(entry, name, packet):
            yield entry, name, packet


def client_ids(journal: Journal) -> dict[int, str]:
    """The client ids of all connections whose client is known."""
    conversations: dict[int, Conversation] = {}
    for entry in journal:
        if isinstance(entry, Opened):
            conversations[entry.connection] = Conversation(entry.client_id)
        elif isinstance(entry, Passed) and entry.data[0] >> 4 in (PacketType.CONNECT, PacketType.CONNACK):
            conversations.setdefault(entry.connection, Conversation()).read(entry.data, entry.from_client)
    return {connection: each.client_id for connection, each in conversations.items()}


def as_text(journal: Journal, chosen: Chosen = ALL) -> Iterator[str]:
    """Lines: seconds since the beginning, connection, client, direction, packet."""
    for entry, name, packet in rows(journal, chosen):
        who = (
            "" if isinstance(entry, BrokerEnding) else f"#{entry.connection} {quoted_if_needed(name) if name else '?'}"
        )
        yield f"{entry.at:12.6f}  {who:<16} {_event(entry, packet)}"


def _event(entry: Entry, packet: Packet | None) -> str:
    match entry:
        case Opened():
            where = "in process" if entry.peer is None else f"from {entry.peer[0]}:{entry.peer[1]}"
            return f"== opened {where}" if entry.whole else f"== there already, {where}"
        case BrokerEnding():
            return _end(entry)
        case Closed():
            return f"== closed by the {entry.by}" + (f": {entry.error}" if entry.error else "")
        case Passed():
            arrow = "->" if entry.from_client else "<-"
            return f"{arrow} {describe(packet) if packet is not None else _unread(entry)}"


def _end(entry: BrokerEnding) -> str:
    kept = ["its sessions"] * entry.keeps_sessions + ["its retained messages"] * entry.keeps_retained
    how = "disconnects its clients" if entry.graceful else "is killed"
    return f"== the broker {how}, and keeps {' and '.join(kept) or 'nothing'}"


def _unread(entry: Passed) -> str:
    kind = PacketType(entry.data[0] >> 4).name
    if entry.masked:
        return f"{kind} that cannot be decoded, and may hold secrets"
    return f"{kind} that cannot be decoded: {entry.data[:PREVIEW].hex(' ')}"


def as_records(journal: Journal, chosen: Chosen = ALL) -> Iterator[dict[str, Any]]:
    """An entry as values for JSON. Bytes are text if possible, and otherwise base64 under `…_base64`."""
    for entry, name, packet in rows(journal, chosen):
        moment = datetime.fromtimestamp(journal.header.started + entry.at, UTC)
        record: dict[str, Any] = {"at": entry.at, "time": moment.isoformat(timespec="microseconds")}
        if not isinstance(entry, BrokerEnding):
            record |= {"connection": entry.connection, "client": name}
        match entry:
            case BrokerEnding():
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
