"""What is published to the reply subject of a message: it is done with, comes again, or needs more time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trunkline.broker.nats.jetstream.json_objects import read_object
from trunkline.nats.errors import NotJetStream
from trunkline.nats.protocol.acknowledging import ACK, NAK, PROGRESS, TERM, origin_of
from trunkline.streams.lives import read_duration

if TYPE_CHECKING:
    from trunkline.broker.nats.jetstream.node import JetStream
    from trunkline.nats.protocol.acknowledging import Origin
    from trunkline.streams.consumer import ConsumerCursor
    from trunkline.streams.stream import Stream

#: It is done with, and asks for the next one.
NEXT: Final = b"+NXT"
_SECOND: Final = 1_000_000_000


def find(jetstream: JetStream, subject: str) -> tuple[Origin, Stream, ConsumerCursor] | None:
    """Of which message a reply subject is; None if there is no such consumer."""
    try:
        origin = origin_of(subject)
    except NotJetStream:
        return None
    found = jetstream.registry.find_consumer(origin.stream, origin.consumer)
    return None if found is None else (origin, *found)


def acknowledge(jetstream: JetStream, origin: Origin, stream: Stream, cursor: ConsumerCursor, payload: bytes) -> None:
    """Do what the payload says. What is not waited for is no error: it may have been answered before."""
    sequence, now = origin.stream_sequence, jetstream.host.now
    if not payload or payload.startswith((ACK, TERM, NEXT)):
        stream.ack(cursor, sequence, now)
    elif payload.startswith(NAK):
        cursor.nak(sequence, _delay(payload[len(NAK) :]), now)
        stream.consumers.note(cursor)
    elif payload.startswith(PROGRESS):
        cursor.in_progress(sequence, now)
        stream.consumers.note(cursor)


def _delay(text: bytes) -> float:
    """Seconds; JSON says nanoseconds, and all else is a duration as Go writes it. What is neither is at once."""
    if not text.lstrip().startswith(b"{"):
        return read_duration(text.decode(errors="replace").strip())
    try:
        delay = read_object(text).get("delay")
    except ValueError:
        return 0.0
    return delay / _SECOND if type(delay) is int else 0.0
