"""Messages of streams as they go to clients of NATS."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any, Final

from trunkline.broker.nats.carrying import block_of
from trunkline.broker.nats.mapping import subject_of
from trunkline.nats.jetstream.fields import NO_TIME, Moment

if TYPE_CHECKING:
    from trunkline.mqtt.message import Message
    from trunkline.streams.consumer import Delivered
    from trunkline.streams.search import StreamMessage

_MOMENT: Final = Moment()


def moment(seconds: float | None) -> str:
    """As JSON has it."""
    return NO_TIME if seconds is None else _MOMENT.write(seconds)


def stored_message(found: StreamMessage) -> dict[str, Any]:
    """The answer to a request for one message."""
    message = found.message
    said: dict[str, Any] = {"subject": subject_of(message.topic), "seq": found.sequence}
    block = block_of(message.properties)
    if block:
        said["hdrs"] = b64encode(block).decode()
    if message.payload:
        said["data"] = b64encode(message.payload).decode()
    said["time"] = moment(found.time)
    return said


def with_origin(found: StreamMessage, stream: str) -> bytes:
    """The block of headers of a message that is read directly."""
    message = found.message
    own = [
        ("Nats-Stream", stream),
        ("Nats-Subject", subject_of(message.topic)),
        ("Nats-Sequence", str(found.sequence)),
        ("Nats-Time-Stamp", moment(found.time)),
    ]
    return block_of(message.properties, own)


def ack_subject(stream: str, consumer: str, delivered: Delivered, behind: float) -> bytes:
    """The reply subject of a message: where it is from, and to where it is acknowledged. `behind` makes the store's
    time the calendar's."""
    time = round((delivered.time + behind) * 1_000_000) * 1000  # to the microsecond, as `moment`
    return (
        f"$JS.ACK.{stream}.{consumer}.{delivered.count}.{delivered.sequence}.{delivered.consumer_sequence}"
        f".{time}.{delivered.pending}"
    ).encode()


def wire_size(message: Message, reply: bytes) -> int:
    """Bytes of a message as pulls are limited by them."""
    return len(subject_of(message.topic)) + len(reply) + len(block_of(message.properties)) + len(message.payload)
