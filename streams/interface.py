"""Streams for plugins and for the program that holds the broker: what they create, publish and receive."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import trio

from trunkline.mqtt.properties import NO_PROPERTIES, Properties
from trunkline.streams.consumed import ConsumedMessage, receiving
from trunkline.streams.duplicates import MESSAGE_ID
from trunkline.streams.errors import ConsumerBound, ConsumerNotFound, StreamNotFound
from trunkline.streams.filters import TopicFilters
from trunkline.streams.purging import delete_message, purge
from trunkline.streams.search import StreamMessage, filter_last, get, get_last, get_next, resolve

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from trunkline.streams.config import ConsumerConfig, StreamConfig
    from trunkline.streams.consumer import ConsumerCursor
    from trunkline.streams.host import StreamHost
    from trunkline.streams.info import ConsumerInfo, StreamInfo
    from trunkline.streams.stream import Stream

#: Messages that an iteration takes from its consumer at once.
DEFAULT_BATCH: Final = 100


class StreamPublished(NamedTuple):
    """A message is in a stream."""

    stream: str
    sequence: int
    #: It was there already: another one had its id.
    duplicate: bool


class Consumption:
    """An iteration over the messages of a consumer. It ends when it is cancelled, or raises when the consumer is
    deleted."""

    def __init__(self, streams: Streams, stream: Stream, cursor: ConsumerCursor, batch: int) -> None:
        self._streams = streams
        self._stream = stream
        self._cursor = cursor
        self._batch = batch
        self._ready: list[ConsumedMessage] = []

    @property
    def consumer(self) -> str:
        return self._cursor.name

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumedMessage:
        if not self._ready:
            taken = await self._streams.next_messages(self._stream, self._cursor, self._batch)
            self._ready = [*reversed(taken)]
        return self._ready.pop()


class Streams:
    """Errors are `StreamError`, and `StoreError` where the store does not work. What returns has been stored."""

    def __init__(self, host: StreamHost) -> None:
        self._host = host
        self._registry = host.registry

    # Streams

    async def create(self, config: StreamConfig) -> StreamInfo:
        """Create a stream. One that is there with the same configuration is no error.

        Raises:
            InvalidStreamConfig, StreamExists, StreamsNotOffered
        """
        stream = self._registry.create(config, self._host.now)
        self._host.route(stream)
        await self._host.routed()
        await self._host.committed()
        return stream.info

    async def update(self, config: StreamConfig) -> StreamInfo:
        """Change a stream.

        Raises:
            InvalidStreamConfig, StreamExists, StreamNotFound
        """
        stream = self._registry.update(config)
        self._host.route(stream)
        await self._host.routed()
        await self._host.committed()
        return stream.info

    async def delete(self, name: str) -> None:
        """Delete a stream, its messages and its consumers.

        Raises:
            StreamNotFound
        """
        stream = self._registry.delete(name)
        self._host.route(stream)
        await self._host.committed()

    def info(self, name: str) -> StreamInfo:
        """
        Raises:
            StreamNotFound
        """
        return self._registry.get(name).info

    def list(self) -> Sequence[StreamInfo]:
        """All of them, in the order of their names."""
        return sorted((stream.info for stream in self._registry), key=lambda info: info.config.name)

    async def purge(
        self, name: str, topic_filter: str | None = None, *, sequence: int | None = None, keep: int | None = None
    ) -> int:
        """Remove all messages, or those that match a filter; only those before a sequence, or all but so many of the
        last. Returns how many.

        Raises:
            InvalidStreamConfig, StreamForbids, StreamNotFound
        """
        purged = await purge(self._registry.get(name), self._host, topic_filter, sequence, keep)
        await self._host.committed()
        return purged

    # Messages

    async def get(self, name: str, sequence: int) -> StreamMessage:
        """
        Raises:
            MessageNotFound, StreamNotFound
        """
        return await get(self._registry.get(name).log, self._host, sequence)

    async def get_last(self, name: str, topic_filter: str) -> StreamMessage:
        """The last message of a topic, or of all that match.

        Raises:
            MessageNotFound, StreamNotFound
        """
        return await get_last(self._registry.get(name).log, self._host, topic_filter)

    async def get_next(self, name: str, topic_filter: str, sequence: int = 1) -> StreamMessage:
        """The first message from a sequence on that matches.

        Raises:
            MessageNotFound, StreamNotFound
        """
        return await get_next(self._registry.get(name).log, self._host, topic_filter, sequence)

    async def delete_message(self, name: str, sequence: int) -> None:
        """
        Raises:
            MessageNotFound, StreamForbids, StreamNotFound
        """
        await delete_message(self._registry.get(name), self._host, sequence)
        await self._host.committed()

    async def publish(
        self,
        topic: str,
        payload: bytes | str = b"",
        *,
        qos: int = 1,
        properties: Properties = NO_PROPERTIES,
        message_id: str | None = None,
        expected_stream: str | None = None,
        expected_last_sequence: int | None = None,
        expected_last_topic_sequence: int | None = None,
        expected_last_id: str | None = None,
        expected_last_filter: str | None = None,
    ) -> StreamPublished:
        """Publish a message that a stream takes; subscribers get it, too. `message_id` is not taken twice within the
        duplicate window. What is expected is compared in the moment of publishing; a topic that has no message has the
        last sequence 0. With `expected_last_filter`, that of the topic is that of all topics which match.

        Raises:
            ProtocolError: this is not a topic name.
            StreamNotFound: no stream takes the topic, or another one than expected.
            StreamsNotOffered: they are in another process.
            StreamRefuses: there is no room.
            WrongLastSequence: somebody else has published.
        """
        if message_id is not None:
            known = tuple(properties.get("user_property", ()))
            properties = {**properties, "user_property": (*known, (MESSAGE_ID, message_id))}
        data = payload.encode() if isinstance(payload, str) else payload
        message = self._host.message(topic, data, qos, properties)
        self._registry.check_offered()
        stream = self._registry.of_topic(topic)
        if stream is None or expected_stream not in (None, stream.name):
            raise StreamNotFound(expected_stream or topic)
        of = None
        if expected_last_filter is not None:
            of = await filter_last(stream.log, self._host, TopicFilters((expected_last_filter,)))
        elif expected_last_topic_sequence is not None:
            await resolve(stream.log, self._host, stream.naming.topic(topic))
        known_at = stream.known(message, self._host.now)
        if known_at is None:
            kept_topic = stream.naming.topic(topic)
            stream.expect(kept_topic, expected_last_sequence, expected_last_topic_sequence, expected_last_id, of)
            stream.check_message(message, self._host.now)
        self._host.publish(message)
        sequence = stream.log.last if known_at is None else known_at
        await self._host.committed()
        return StreamPublished(stream.name, sequence, known_at is not None)

    # Consumers

    async def create_consumer(self, stream: str, config: ConsumerConfig) -> ConsumerInfo:
        """Create a consumer. One that is there with the same configuration is no error.

        Raises:
            ConsumerExists, InvalidStreamConfig, StreamNotFound
        """
        found = self._registry.get(stream)
        cursor = await found.consumers.add(self._host, config, self._host.now)
        await self._host.committed()
        return found.consumers.info(cursor, self._host.now)

    async def update_consumer(self, stream: str, config: ConsumerConfig) -> ConsumerInfo:
        """Change a consumer.

        Raises:
            ConsumerNotFound, InvalidStreamConfig, StreamNotFound
        """
        found = self._registry.get(stream)
        cursor = found.consumers.update(config)
        while (needed := cursor.count(found.log)) is not None:
            await found.log.fetch(self._host, needed)
        await self._host.committed()
        return found.consumers.info(cursor, self._host.now)

    async def pause_consumer(self, stream: str, consumer: str, until: float | None) -> ConsumerInfo:
        """Deliver nothing until a moment, in seconds since the epoch; None: go on.

        Raises:
            ConsumerNotFound, StreamNotFound
        """
        found = self._registry.get(stream)
        config = replace(found.consumers.get(consumer).config, pause_until=until)
        cursor = found.consumers.update(config, consumer)
        await self._host.committed()
        return found.consumers.info(cursor, self._host.now)

    async def delete_consumer(self, stream: str, consumer: str) -> None:
        """
        Raises:
            ConsumerNotFound, StreamNotFound
        """
        found = self._registry.get(stream)
        found.delete_consumer(found.consumers.get(consumer))
        await self._host.committed()

    def consumer_info(self, stream: str, consumer: str) -> ConsumerInfo:
        """
        Raises:
            ConsumerNotFound, StreamNotFound
        """
        found = self._registry.get(stream)
        return found.consumers.info(found.consumers.get(consumer), self._host.now)

    def consumers(self, stream: str) -> Sequence[ConsumerInfo]:
        """Of one stream, in the order of their names.

        Raises:
            StreamNotFound
        """
        found = self._registry.get(stream)
        return [
            found.consumers.info(cursor, self._host.now) for cursor in sorted(found.consumers, key=attrgetter("name"))
        ]

    # Receiving

    async def fetch(
        self, stream: str, consumer: str, batch: int = DEFAULT_BATCH, wait: float = 5.0
    ) -> Sequence[ConsumedMessage]:
        """Up to so many of the next messages of a consumer, as soon as there is one; none, if none comes in so many
        seconds.

        Raises:
            ConsumerNotFound, StreamNotFound
        """
        found = self._registry.get(stream)
        cursor = found.consumers.get(consumer)
        with trio.move_on_after(wait), receiving(found, cursor, self._host):
            return await self.next_messages(found, cursor, batch)
        return []

    @asynccontextmanager
    async def consume(
        self, stream: str, consumer: str | ConsumerConfig, *, group: str = "", batch: int = DEFAULT_BATCH
    ) -> AsyncGenerator[Consumption]:
        """Receive from a consumer as long as the block runs: iterate over it. A configuration makes a consumer that
        ends with the block, unless it is durable. `group` is the deliver group of a consumer that has one.

        Raises:
            ConsumerBound: somebody else receives from the consumer, or it has another deliver group.
            ConsumerExists, ConsumerNotFound, InvalidStreamConfig, StreamNotFound
        """
        found = self._registry.get(stream)
        if isinstance(consumer, str):
            cursor = found.consumers.get(consumer)
        else:
            cursor = await found.consumers.add(self._host, consumer, self._host.now)
        if cursor.config.deliver_group != group:
            wanted = cursor.config.deliver_group
            raise ConsumerBound(f"the deliver group of the consumer {cursor.name!r} is {wanted!r}, not {group!r}")
        if not group and cursor.bound:
            raise ConsumerBound(f"somebody receives from the consumer {cursor.name!r} already")
        with receiving(found, cursor, self._host):
            cursor.bound += 1
            try:
                yield Consumption(self, found, cursor, batch)
            finally:
                cursor.bound -= 1
                if not isinstance(consumer, str) and not cursor.config.durable and not cursor.bound:
                    found.delete_consumer(cursor)

    async def next_messages(self, stream: Stream, cursor: ConsumerCursor, batch: int) -> Sequence[ConsumedMessage]:
        """Wait for the next messages of a consumer, up to so many."""
        host = self._host
        await host.pause()
        while stream.consumers.find(cursor.name) is cursor and self._registry.find(stream.name) is stream:
            taken = stream.deliver(cursor, batch, host.now)
            if taken:
                return [ConsumedMessage(host, stream, cursor, delivered) for delivered in taken]
            if cursor.needs is not None:
                await stream.log.fetch(host, cursor.needs)
            else:
                await host.changed(cursor, cursor.next_due)
        raise ConsumerNotFound(stream.name, cursor.name)
