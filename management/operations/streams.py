"""Streams, their messages and their consumers."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Interval

from trunkline.broker.node.admin import Admin
from trunkline.config.units import Duration, OptionalDuration, OptionalSize
from trunkline.management.operations.registry import (
    AT_ONCE,
    BadRequest,
    Limit,
    NotFound,
    Page,
    Position,
    Refused,
    operation,
    page_at,
)
from trunkline.mqtt.topics import validate_filter
from trunkline.store import StoreError
from trunkline.streams.config import ConsumerConfig, StreamConfig
from trunkline.streams.errors import InvalidStreamConfig, StreamError
from trunkline.streams.info import ConsumerInfo, StreamInfo

Name = Annotated[str, "The name of the stream."]
Consumer = Annotated[str, "The name of the consumer."]
Filters = Annotated[list[str], "The topic filters of its messages."]
MoreFilters = Annotated[list[str] | None, "A topic filter of its messages. May be repeated."]
Sequence = Annotated[int | None, "The sequence of the message.", Interval(ge=1)]
Description = Annotated[str | None, "What it is for."]
RetentionWord = Annotated[
    Literal["limits", "interest", "workqueue"] | None, "When a message leaves: by limits, or when it was acknowledged."
]
DiscardWord = Annotated[Literal["old", "new"] | None, "What a full stream drops."]
Count = Annotated[int | None, "The most messages. 0 is no limit.", Interval(ge=0)]
Bytes = Annotated[OptionalSize, "The most bytes. 0 is no limit."]
Age = Annotated[OptionalDuration, "How long a message stays at most. 0 is no limit."]
PerTopic = Annotated[int | None, "The most messages of one topic. 0 is no limit.", Interval(ge=0)]
MessageSize = Annotated[OptionalSize, "The most bytes of one message. 0 is no limit."]
Window = Annotated[OptionalDuration, "How long the id of a message is known."]
PerTopicFlag = Annotated[bool | None, "A topic that has its most messages takes no more."]
NoAck = Annotated[bool | None, "Publishers do not wait until their messages are stored."]
Sealed = Annotated[bool | None, "Nothing is added or removed any more. This cannot be taken back."]
DenyDelete = Annotated[bool | None, "No message can be deleted. This cannot be taken back."]
DenyPurge = Annotated[bool | None, "The stream cannot be purged. This cannot be taken back."]
AllowRollup = Annotated[bool | None, "A message may take the place of those before it."]
AllowLives = Annotated[bool | None, "A message may say how long it stays. This cannot be taken back."]
MarkerLife = Annotated[OptionalDuration, "How long a topic whose last message went by age has a marker. 0 is none."]
Compressed = Annotated[bool | None, "What comes from now on is stored in fewer bytes, which takes processor time."]
Metadata = Annotated[dict[str, str] | None, "Words about the stream."]


@dataclass(frozen=True, slots=True)
class StreamRow:
    name: str
    filters: list[str]
    retention: str
    messages: int
    bytes: int
    first: int
    last: int
    consumers: int


@dataclass(frozen=True, slots=True)
class ConsumerRow:
    name: str
    durable: bool
    delivered: int
    ack_pending: int
    redelivered: int
    pending: int
    paused: bool


@dataclass(frozen=True, slots=True)
class StreamMessageRow:
    stream: str
    sequence: int
    topic: str
    payload: bytes
    #: Bytes of the payload.
    size: int
    qos: int
    publisher: str
    #: Seconds since the epoch.
    timestamp: float
    properties: dict[str, Any]


@contextmanager
def _explaining() -> Generator[None]:
    """Turns an error of streams into the answer."""
    try:
        yield
    except InvalidStreamConfig as error:
        raise BadRequest(str(error)) from error
    except LookupError as error:
        raise NotFound(str(error.args[0])) from error
    except (StreamError, StoreError) as error:
        raise Refused(str(error)) from error


def _given(arguments: dict[str, Any]) -> dict[str, Any]:
    """The settings among the `locals()` with which an operation begins."""
    del arguments["broker"]
    return {name: value for name, value in arguments.items() if value is not None}


def _stream(info: StreamInfo) -> dict[str, object]:
    # the state first: what is configured is long, and the same every time
    return {
        "name": info.config.name,
        "messages": info.messages,
        "bytes": info.bytes,
        "first_sequence": info.first_sequence,
        "last_sequence": info.last_sequence,
        "first_at": info.first_time,
        "last_at": info.last_time,
        "topics": info.topics,
        "deleted": info.deleted,
        "consumers": info.consumers,
        "created_at": info.created,
        "config": {name: value for name, value in info.config.to_plain().items() if name != "name"},
    }


def _consumer(info: ConsumerInfo) -> dict[str, object]:
    return {
        "stream": info.stream,
        "name": info.name,
        "delivered": {"consumer": info.delivered_consumer_sequence, "stream": info.delivered_stream_sequence},
        "ack_floor": {"consumer": info.ack_floor_consumer_sequence, "stream": info.ack_floor_stream_sequence},
        "ack_pending": info.ack_pending,
        "redelivered": info.redelivered,
        "pending": info.pending,
        "paused": info.paused,
        "last_delivered_at": info.last_delivered,
        "last_acked_at": info.last_acked,
        "created_at": info.created,
        "config": {name: value for name, value in info.config.to_plain().items() if name != "name"},
    }


# Streams


@operation("streams.list")
def list_streams(broker: Admin, after: Position = 0, limit: Limit = AT_ONCE) -> Page[StreamRow]:
    """Streams, in order of name."""
    rows = [
        StreamRow(
            info.config.name,
            list(info.config.filters),
            info.config.retention.value,
            info.messages,
            info.bytes,
            info.first_sequence,
            info.last_sequence,
            info.consumers,
        )
        for info in broker.streams.list()
    ]
    return page_at(rows, after, limit)


@operation("streams.info")
def show_stream(broker: Admin, name: Name) -> dict[str, object]:
    """What is in a stream, and how it is configured."""
    with _explaining():
        return _stream(broker.streams.info(name))


@operation("streams.create")
async def create_stream(
    broker: Admin,
    name: Name,
    filters: Filters,
    description: Description = None,
    retention: RetentionWord = None,
    discard: DiscardWord = None,
    max_messages: Count = None,
    max_bytes: Bytes = None,
    max_age: Age = None,
    max_messages_per_topic: PerTopic = None,
    max_message_size: MessageSize = None,
    max_consumers: Annotated[int | None, "The most consumers. 0 is no limit.", Interval(ge=0)] = None,
    discard_new_per_topic: PerTopicFlag = None,
    duplicate_window: Window = None,
    no_ack: NoAck = None,
    deny_delete: DenyDelete = None,
    deny_purge: DenyPurge = None,
    allow_rollup: AllowRollup = None,
    allow_message_ttl: AllowLives = None,
    delete_marker_ttl: MarkerLife = None,
    compressed: Compressed = None,
    first_sequence: Annotated[int | None, "The sequence of the first message.", Interval(ge=1)] = None,
    metadata: Metadata = None,
) -> dict[str, object]:
    """Create a stream of the messages whose topics match the filters."""
    given = _given(locals())
    if max_age and duplicate_window is None:
        given["duplicate_window"] = min(max_age, StreamConfig(name=name, filters=()).duplicate_window)
    with _explaining():
        return _stream(await broker.streams.create(StreamConfig.from_plain(given)))


@operation("streams.edit")
async def edit_stream(
    broker: Admin,
    name: Name,
    filters: MoreFilters = None,
    description: Description = None,
    discard: DiscardWord = None,
    max_messages: Count = None,
    max_bytes: Bytes = None,
    max_age: Age = None,
    max_messages_per_topic: PerTopic = None,
    max_message_size: MessageSize = None,
    discard_new_per_topic: PerTopicFlag = None,
    duplicate_window: Window = None,
    no_ack: NoAck = None,
    sealed: Sealed = None,
    deny_delete: DenyDelete = None,
    deny_purge: DenyPurge = None,
    allow_rollup: AllowRollup = None,
    allow_message_ttl: AllowLives = None,
    delete_marker_ttl: MarkerLife = None,
    compressed: Compressed = None,
    metadata: Metadata = None,
) -> dict[str, object]:
    """Change some settings of a stream. What is not named stays as it is."""
    given = _given(locals())
    with _explaining():
        config = broker.streams.info(name).config
        return _stream(await broker.streams.update(StreamConfig.from_plain({**config.to_plain(), **given})))


@operation("streams.delete")
async def delete_stream(broker: Admin, name: Name) -> dict[str, object]:
    """Delete a stream with all that is in it, and its consumers."""
    with _explaining():
        messages = broker.streams.info(name).messages
        await broker.streams.delete(name)
    return {"deleted": name, "messages": messages}


@operation("streams.purge")
async def purge_stream(
    broker: Admin,
    name: Name,
    filter: Annotated[str | None, "Only messages whose topic matches."] = None,
    sequence: Annotated[int | None, "Only messages before this sequence.", Interval(ge=1)] = None,
    keep: Annotated[int | None, "All but this many of the last.", Interval(ge=0)] = None,
) -> dict[str, object]:
    """Remove the messages of a stream."""
    if filter is not None:
        validate_filter(filter)
    with _explaining():
        return {"purged": await broker.streams.purge(name, filter, sequence=sequence, keep=keep)}


# Messages


@operation("streams.get")
async def get_message(
    broker: Admin,
    name: Name,
    sequence: Sequence = None,
    last: Annotated[str | None, "The last message of this topic, or of all that match this filter."] = None,
    next: Annotated[str | None, "The first message that matches this filter, from --sequence on."] = None,
) -> StreamMessageRow:
    """A message of a stream, with its whole payload. Without an option, the first one."""
    if last is not None and (sequence is not None or next is not None):
        raise BadRequest("last: alone, without sequence and next")
    streams = broker.streams
    with _explaining():
        if last is not None:
            found = await streams.get_last(name, last)
        elif next is not None or sequence is None:
            first = streams.info(name).first_sequence if sequence is None else sequence
            found = await streams.get_next(name, next or "", first)
        else:
            found = await streams.get(name, sequence)
    message = found.message
    return StreamMessageRow(
        name,
        found.sequence,
        message.topic,
        message.payload,
        len(message.payload),
        message.qos,
        message.publisher,
        found.time,
        {**message.properties},
    )


@operation("streams.delete-message")
async def delete_stream_message(
    broker: Admin,
    name: Name,
    sequence: Annotated[int, "The sequence of the message.", Interval(ge=1)],
) -> dict[str, object]:
    """Delete one message of a stream."""
    with _explaining():
        await broker.streams.delete_message(name, sequence)
    return {"deleted": sequence}


# Consumers


@operation("streams.consumers.list")
def list_consumers(broker: Admin, stream: Name, after: Position = 0, limit: Limit = AT_ONCE) -> Page[ConsumerRow]:
    """Consumers of a stream, in order of name."""
    with _explaining():
        rows = [
            ConsumerRow(
                info.name,
                info.config.durable,
                info.delivered_stream_sequence,
                info.ack_pending,
                info.redelivered,
                info.pending,
                info.paused,
            )
            for info in broker.streams.consumers(stream)
        ]
    return page_at(rows, after, limit)


@operation("streams.consumers.info")
def show_consumer(broker: Admin, stream: Name, consumer: Consumer) -> dict[str, object]:
    """Where a consumer is in its stream, and how it is configured."""
    with _explaining():
        return _consumer(broker.streams.consumer_info(stream, consumer))


@operation("streams.consumers.create")
async def create_consumer(
    broker: Admin,
    stream: Name,
    consumer: Consumer,
    filters: MoreFilters = None,
    description: Description = None,
    deliver_policy: Annotated[
        Literal["all", "last", "last_per_topic", "new", "by_start_sequence", "by_start_time"] | None,
        "Where it begins.",
    ] = None,
    start_sequence: Annotated[int | None, "For by_start_sequence.", Interval(ge=1)] = None,
    start_time: Annotated[float | None, "For by_start_time, in seconds since the epoch.", Interval(ge=0)] = None,
    ack_policy: Annotated[Literal["none", "all", "explicit"] | None, "Which messages are acknowledged."] = None,
    ack_wait: Annotated[OptionalDuration, "After how long a message comes again."] = None,
    max_deliver: Annotated[int | None, "How often a message comes at most. 0 is no limit.", Interval(ge=0)] = None,
    max_ack_pending: Annotated[int | None, "The most messages without acknowledgement.", Interval(ge=0)] = None,
    replay_policy: Annotated[Literal["instant", "original"] | None, "How quick it delivers what is old."] = None,
    deliver_group: Annotated[str | None, "The group that its receivers name."] = None,
) -> dict[str, object]:
    """Create a durable consumer of a stream."""
    given = {**_given(locals()), "name": consumer, "durable": True}
    del given["stream"], given["consumer"]
    with _explaining():
        return _consumer(await broker.streams.create_consumer(stream, ConsumerConfig.from_plain(given)))


@operation("streams.consumers.delete")
async def delete_consumer(broker: Admin, stream: Name, consumer: Consumer) -> dict[str, object]:
    """Delete a consumer."""
    with _explaining():
        await broker.streams.delete_consumer(stream, consumer)
    return {"deleted": consumer}


@operation("streams.consumers.pause")
async def pause_consumer(
    broker: Admin,
    stream: Name,
    consumer: Consumer,
    seconds: Annotated[Duration, "For how long."],
) -> dict[str, object]:
    """Deliver nothing to a consumer for some time. 0 lets it go on."""
    with _explaining():
        until = broker.wall() + seconds if seconds else None
        return _consumer(await broker.streams.pause_consumer(stream, consumer, until))
