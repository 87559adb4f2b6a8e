"""Publications as bytes, for a store: each as it came, whatever number of messages it has.

Times are seconds since the epoch; `epoch` is what has to be added to node time for them.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, Final

import msgpack

from trunkline.mqtt.message import Message
from trunkline.mqtt.plain import properties_from_plain, properties_to_plain
from trunkline.mqtt.publication import PublishBatch
from trunkline.mqtt.versions import Version

if TYPE_CHECKING:
    from trunkline.mqtt.publication import Publication

_ONE: Final = 0
_MANY: Final = 1


def publication_to_bytes(publication: Publication, epoch: float) -> bytes:
    about = (
        publication.publisher,
        publication.username,
        publication.guid.to_bytes(16, "big"),
        publication.timestamp,
        None if publication.expires_at == inf else publication.expires_at + epoch,
        properties_to_plain(publication.properties) if publication.properties else None,
    )
    if isinstance(publication, PublishBatch):
        first_byte, version, wire, starts = publication.packets
        places = starts.step if isinstance(starts, range) else list(starts)
        return _pack((_MANY, about, list(publication.topics), first_byte, int(version), wire, places))
    return _pack((_ONE, about, publication.topic, publication.payload, publication.qos, publication.retain))


def publication_from_bytes(data: bytes, epoch: float) -> Publication:
    """Its GUIDs follow each other, beginning with that of the first message."""
    kind, (publisher, username, guid, timestamp, expires_at, properties), topic, *rest = _unpack(data)
    publication: Publication
    if kind == _MANY:
        first_byte, version, wire, places = rest
        starts = range(0, len(wire), places) if isinstance(places, int) else places
        publication = PublishBatch(topic, first_byte, Version(version), wire, starts, ())
    else:
        payload, qos, retain = rest
        publication = Message(topic, payload, qos, retain)
    if properties is not None:
        publication.properties = properties_from_plain(properties)
    publication.publisher, publication.username = publisher, username
    publication.guid = int.from_bytes(guid, "big")
    publication.timestamp = timestamp
    if expires_at is not None:
        publication.expires_at = expires_at - epoch
    return publication


def _pack(value: object) -> bytes:
    packed: bytes = msgpack.packb(value)
    return packed


def _unpack(data: bytes) -> Any:
    return msgpack.unpackb(data)
