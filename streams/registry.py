"""All streams of a broker: a part of what its commits write."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from trunkline.mqtt.packing import pack, unpack
from trunkline.store.engine import rows
from trunkline.streams.audience import AUDIENCE
from trunkline.streams.config import ConsumerConfig, StreamConfig
from trunkline.streams.consumer import IDENTITY, STATE, ConsumerCursor
from trunkline.streams.errors import FiltersTaken, StreamExists, StreamNotFound, StreamsNotOffered
from trunkline.streams.filters import of_stream
from trunkline.streams.keys import (
    CONSUMERS,
    STREAM_BLOCKS,
    STREAM_DEADLINES,
    STREAM_DELETED,
    STREAM_SIZE,
    STREAM_TOPICS,
    STREAMS,
    key,
    stream_key,
    stream_number,
)
from trunkline.streams.log import MAX_ERASED, StreamLog
from trunkline.streams.reach import check_cycle, contents
from trunkline.streams.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trunkline.mqtt.message import Message
    from trunkline.store import Engine, WriteBatch
    from trunkline.store.clock import StoreClock
    from trunkline.streams.blocks import WrittenOfStream
    from trunkline.streams.log import StreamLog

Logs: TypeAlias = "list[tuple[StreamLog, WrittenOfStream]]"


class StreamChanged(Protocol):
    def __call__(self, stream: Stream, *, has_work: bool) -> None:
        """A stream has something to be written and perhaps to be delivered, and something to be worked off."""
        ...


class StreamRegistry:
    #: No actor ends when a stream cannot be written.
    owner = None

    def __init__(
        self, clock: StoreClock, changed: StreamChanged, stamp: Callable[[Message], Message] | None = None
    ) -> None:
        """`stamp` makes a message of a stream's own one of the broker's."""
        self._clock = clock
        self._stamp = stamp
        self._notify = changed
        self._streams: dict[str, Stream] = {}
        self._next = 1
        self._changed: dict[Stream, None] = {}
        #: Streams that are deleted, by number: the sequences whose blocks are still to be erased.
        self._erasing: dict[int, tuple[int, int]] = {}
        self._written: Logs = []
        #: Why there are no streams here, and none can be made; empty, if there can be some.
        self.refusal = ""

    def __iter__(self) -> Iterator[Stream]:
        return iter(list(self._streams.values()))

    def __len__(self) -> int:
        return len(self._streams)

    def check_offered(self) -> None:
        """
        Raises:
            StreamsNotOffered: there are no streams here.
        """
        if self.refusal:
            raise StreamsNotOffered(self.refusal)

    def find(self, name: str) -> Stream | None:
        return self._streams.get(name)

    def get(self, name: str) -> Stream:
        """
        Raises:
            StreamNotFound: there is none with this name.
            StreamsNotOffered
        """
        try:
            return self._streams[name]
        except KeyError:
            self.check_offered()
            raise StreamNotFound(name) from None

    def find_consumer(self, stream: str, consumer: str) -> tuple[Stream, ConsumerCursor] | None:
        """A consumer and its stream; None if there is none of these names."""
        found = self.find(stream)
        cursor = None if found is None else found.consumers.find(consumer)
        return None if found is None or cursor is None else (found, cursor)

    def check_consumer(self, stream: str, config: ConsumerConfig) -> None:
        """
        Raises:
            InvalidStreamConfig, StreamNotFound, StreamsNotOffered: the stream has no such consumer, and can have none.
        """
        consumers = self.get(stream).consumers
        if consumers.find(config.name) is None:
            consumers.check(config)

    def of_topic(self, topic: str) -> Stream | None:
        """The stream that keeps the messages of a topic."""
        return next((stream for stream in self._streams.values() if stream.filters.match(topic)), None)

    def contents(self, stream: Stream) -> list[str]:
        """Filters that together match all topics that may be in it."""
        return contents(stream.config, self.config)

    def config(self, name: str) -> StreamConfig | None:
        stream = self._streams.get(name)
        return None if stream is None else stream.config

    def check_filters(self, config: StreamConfig) -> None:
        """
        Raises:
            FiltersTaken: another stream takes some of the same topics.
            InvalidStreamConfig: messages would go round for ever.
        """
        check_cycle(config, [stream.config for stream in self._streams.values()])
        filters = of_stream(config.filters)
        for stream in self._streams.values():
            shared = None if stream.name == config.name else filters.overlap(stream.filters)
            if shared is not None:
                raise FiltersTaken(config.name, stream.name, *shared)

    def create(self, config: StreamConfig, now: float) -> Stream:
        """The stream with this name and configuration; a new one, if there is none.

        Raises:
            InvalidStreamConfig: no stream can have this configuration.
            StreamExists: the name or some of the topics are taken.
            StreamsNotOffered: no stream can be made here.
        """
        config.check()
        known = self._streams.get(config.name)
        if known is not None:
            if known.config != config:
                raise StreamExists(
                    f"the stream {config.name!r} is there with other settings: change it with "
                    f"`trunkline streams edit {config.name}`"
                )
            return known
        self.check_offered()
        self.check_filters(config)
        stream = self._add(self._next, config, now)
        stream.attend()
        return stream

    def _add(self, number: int, config: StreamConfig, created: float) -> Stream:
        stream = Stream(number, config, created, self._clock)
        stream.notify = partial(self._note, stream)
        if self._stamp is not None:
            stream.stamp = self._stamp
        self._streams[config.name] = stream
        self._next = max(self._next, number + 1)
        return stream

    def _note(self, stream: Stream, has_work: bool) -> None:
        self._changed[stream] = None
        self._notify(stream, has_work=has_work)

    def update(self, config: StreamConfig) -> Stream:
        """
        Raises:
            InvalidStreamConfig: it cannot become this.
            StreamExists: another stream takes some of the topics.
            StreamNotFound: there is none with this name.
        """
        stream = self.get(config.name)
        self.check_filters(config)
        stream.update(config)
        return stream

    def delete(self, name: str) -> Stream:
        """
        Raises:
            StreamNotFound: there is none with this name.
        """
        stream = self.get(name)
        del self._streams[name]
        log = stream.log
        self._changed.pop(stream, None)
        self._erasing[log.number] = (log.config.first_sequence, log.last + 1)
        self._notify(stream, has_work=True)
        for cursor in stream.consumers:
            cursor.wake()
        return stream

    # The store

    def write(self, batch: WriteBatch) -> bool:
        """Put into the batch what has changed. Returns whether the next commit has something to write, too."""
        changed, self._changed = self._changed, {}
        for stream in changed:
            if stream.write(batch):
                self._changed[stream] = None
            self._written.append((stream.log, stream.log.take_written()))
        for number, (low, end) in list(self._erasing.items()):
            high = min(end, low + MAX_ERASED)
            batch.delete_range(STREAM_BLOCKS, key(number, low), key(number, high))
            batch.delete_range(CONSUMERS, stream_key(number), stream_key(number + 1))
            if high < end:
                self._erasing[number] = (high, end)
                batch.put(STREAMS, stream_key(number), pack([None, high, end]))
            else:
                del self._erasing[number]
                for space in (STREAM_DELETED, STREAM_TOPICS, STREAM_DEADLINES):
                    batch.delete_range(space, stream_key(number), stream_key(number + 1))
                batch.delete(STREAMS, stream_key(number))
        return bool(self._changed or self._erasing)

    def take_written(self) -> Logs:
        """What was written since the last call."""
        written, self._written = self._written, []
        return written

    @staticmethod
    def stored(written: Logs) -> bool:
        """What was written is stored. Returns whether messages have to be removed sooner than was known."""
        is_sooner = [log.stored(part) for log, part in written]
        return any(is_sooner)

    def restore(self, engine: Engine) -> None:
        """Read everything but the messages. In a thread, before anything else happens here."""
        found: dict[int, tuple[Stream, dict[str, int]]] = {}
        first_ids: list[tuple[Stream, int]] = []
        for row_key, value in rows(engine, STREAMS):
            number, (config, *rest) = int.from_bytes(row_key, "big"), unpack(value)
            if config is None:
                self._erasing[number] = (rest[0], rest[1])
                self._next = max(self._next, number + 1)
                continue
            created, head, done, first_id, *more = rest
            stream = self._add(number, StreamConfig.from_plain(config), created)
            stream.restore(head, done, more[1] if len(more) > 1 else {})
            if first_id is not None:
                first_ids.append((stream, first_id))
            found[number] = stream, more[0] if more else {}  # once it said what is pending for each consumer
        for row in rows(engine, STREAM_DELETED):
            if (entry := found.get(stream_number(row[0]))) is not None:
                entry[0].log.deleted.restore(row)
        for row in rows(engine, STREAM_TOPICS):
            if (entry := found.get(stream_number(row[0]))) is not None:
                entry[0].log.topics.restore(row)
        for stream, first_id in first_ids:
            stream.restore_duplicates(engine, first_id)
        self._restore_cursors(engine, found)

    def _restore_cursors(self, engine: Engine, found: dict[int, tuple[Stream, dict[str, int]]]) -> None:
        identities: dict[bytes, Any] = {}
        for row_key, value in rows(engine, CONSUMERS):
            if row_key[STREAM_SIZE:].startswith(AUDIENCE):
                if (entry := found.get(stream_number(row_key))) is not None:
                    entry[0].consumers.audiences.restore(value)
                continue
            if row_key.endswith(IDENTITY):
                identities[row_key.removesuffix(IDENTITY)] = unpack(value)
                continue
            consumer = row_key.removesuffix(STATE)
            entry, identity = found.get(stream_number(consumer)), identities.get(consumer)
            if entry is None or identity is None:
                continue
            (stream, pending), name = entry, consumer[STREAM_SIZE:].decode()
            config, created, starts, replay_to = identity
            cursor = ConsumerCursor(name, ConsumerConfig.from_plain(config), created)
            stream.consumers.restore(cursor, starts, replay_to, unpack(value), pending.get(name, 0))
