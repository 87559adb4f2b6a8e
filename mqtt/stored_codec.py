"""Publications as bytes, for a store: each as it came, whatever number of messages it has.

Times are seconds since the epoch; `epoch` is what has to be added to node time for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trunkline.mqtt.message import Message
from trunkline.mqtt.message_row import message_from_row, message_to_row
from trunkline.mqtt.packing import pack, unpack
from trunkline.mqtt.publication import PublishBatch
from trunkline.mqtt.versions import Version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trunkline.mqtt.publication import Publication


def publication_to_bytes(publication: Publication, epoch: float) -> bytes:
    return pack(publication_to_plain(publication, epoch))


def publication_from_bytes(data: bytes, epoch: float) -> Publication:
    """Its GUIDs follow each other, beginning with that of the first message."""
    return publication_from_plain(unpack(data), epoch)


def publication_to_plain(publication: Publication, epoch: float) -> list[Any]:
    if not isinstance(publication, PublishBatch):
        return [message_to_row(publication, epoch)]
    first_byte, version, wire, starts = publication.packets
    places = starts.step if isinstance(starts, range) else list(starts)
    about = Message("", b"", properties=publication.properties)
    about.publisher, about.username, about.guid = publication.publisher, publication.username, publication.guid
    about.timestamp, about.expires_at = publication.timestamp, publication.expires_at
    row = message_to_row(about, epoch)
    return [row, list(publication.topics), first_byte, int(version), wire, places]


def publication_from_plain(plain: Sequence[Any], epoch: float) -> Publication:
    row, *packets = plain
    message = message_from_row(row, epoch)
    if not packets:
        return message
    topics, first_byte, version, wire, places = packets
    starts = range(0, len(wire), places) if isinstance(places, int) else places
    batch = PublishBatch(topics, first_byte, Version(version), wire, starts, (), message.properties)
    batch.publisher, batch.username, batch.guid = message.publisher, message.username, message.guid
    batch.timestamp, batch.expires_at = message.timestamp, message.expires_at
    return batch


def count_in(data: bytes) -> int:
    """How many messages a publication has."""
    _, *packets = unpack(data)
    if not packets:
        return 1
    *_, wire, places = packets
    return len(range(0, len(wire), places)) if isinstance(places, int) else len(places)
