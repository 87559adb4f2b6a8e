"""Messages of streams as they go to clients of NATS."""

from __future__ import annotations

import logging
from base64 import b64encode
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import trio

from trunkline.broker.nats.carrying import block_of
from trunkline.broker.nats.mapping import subject_of
from trunkline.nats.jetstream.fields import NO_TIME, Moment
from trunkline.nats.jetstream.statuses import LAST_CONSUMER, LAST_STREAM
from trunkline.nats.protocol.headers import Headers
from trunkline.store import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trunkline.mqtt.message import Message
    from trunkline.streams.consumer import ConsumerCursor, Delivered
    from trunkline.streams.host import StreamHost
    from trunkline.streams.search import StreamMessage
    from trunkline.streams.stream import Stream

#: Seconds until a stream that could not be read is read again.
RETRY: Final = 1.0
_MOMENT: Final = Moment()
#: As long as a time in a reply subject.
_TIME: Final = 10**18

_logger = logging.getLogger("trunkline.streams")


class OutgoingMessage(NamedTuple):
    """A message of a consumer as it leaves."""

    subject: bytes
    #: To where it is acknowledged.
    reply: bytes
    block: bytes
    payload: bytes

    @property
    def size(self) -> int:
        """Bytes of it, as pulls and windows are limited by them."""
        return len(self.subject) + len(self.reply) + len(self.block) + len(self.payload)


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


def with_origin(found: StreamMessage, stream: str, more: Iterable[tuple[str, str]] = ()) -> bytes:
    """The block of headers of a message that is read directly, with some more."""
    message = found.message
    own = [
        ("Nats-Stream", stream),
        ("Nats-Subject", subject_of(message.topic)),
        ("Nats-Sequence", str(found.sequence)),
        ("Nats-Time-Stamp", moment(found.time)),
        *more,
    ]
    return block_of(message.properties, own)


def ack_subject(stream: str, consumer: str, delivered: Delivered, behind: float) -> bytes:
    """The reply subject of a message: where it is from, and to where it is acknowledged. `behind` makes the store's
    time the calendar's."""
    time = round((delivered.time + behind) * 1_000_000) * 1000  # to the microsecond, as `moment`
    return _reply(
        stream, consumer, delivered.count, delivered.sequence, delivered.consumer_sequence, time, delivered.pending
    )


def _reply(
    stream: str, consumer: str, count: int, sequence: int, consumer_sequence: int, time: int, left: int
) -> bytes:
    return f"$JS.ACK.{stream}.{consumer}.{count}.{sequence}.{consumer_sequence}.{time}.{left}".encode()


def longest_reply(stream: Stream, cursor: ConsumerCursor) -> bytes:
    """As long as the reply subject of the consumer's next message may be."""
    number = max(stream.log.last, cursor.consumer_sequence + 1)
    return _reply(stream.name, cursor.name, number, number, number, _TIME, number)


def outgoing(stream: Stream, cursor: ConsumerCursor, delivered: Delivered) -> OutgoingMessage:
    """What a consumer delivers, as clients of NATS get it."""
    message = delivered.message
    payload, own = message.payload, []
    if cursor.config.headers_only:
        payload, own = b"", [("Nats-Msg-Size", str(len(message.payload)))]
    reply = ack_subject(stream.name, cursor.name, delivered, stream.log.behind)
    return OutgoingMessage(subject_of(message.topic).encode(), reply, block_of(message.properties, own), payload)


def place_of(cursor: ConsumerCursor) -> Headers:
    """In a heartbeat: how far the consumer is."""
    return Headers({LAST_CONSUMER: str(cursor.consumer_sequence), LAST_STREAM: str(cursor.stream_sequence)})


async def fetch(stream: Stream, host: StreamHost, needed: int) -> None:
    """What a consumer needs to go on; where the store cannot be read, nothing, after a while."""
    try:
        await stream.log.fetch(host, needed)
    except StoreError as error:
        _logger.warning("the stream %s cannot be read: %s", stream.name, error)
        await trio.sleep(RETRY)


def wire_size(message: Message, reply: bytes) -> int:
    """Bytes of a message as pulls are limited by them."""
    return len(subject_of(message.topic)) + len(reply) + len(block_of(message.properties)) + len(message.payload)
