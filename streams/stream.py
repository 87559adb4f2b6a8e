"""A stream: its messages, its consumers, and which message leaves when."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any, Final

from trunkline.streams.audience import Audiences
from trunkline.streams.blocks import block_from_row, message_sizes, read_page, seek_time
from trunkline.streams.config import AckPolicy, ConsumerConfig, DeliverPolicy, Discard, Retention, StreamConfig
from trunkline.streams.consumer import ConsumerCursor, Delivered
from trunkline.streams.duplicates import DuplicateWindow, message_id
from trunkline.streams.errors import (
    ConsumerExists,
    ConsumerNotFound,
    InvalidStreamConfig,
    StreamRefuses,
    WrongLastSequence,
)
from trunkline.streams.filters import TopicFilters
from trunkline.streams.info import ConsumerInfo, StreamInfo
from trunkline.streams.log import AGAIN, StreamLog
from trunkline.streams.search import last_sequence, last_sequences

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trunkline.mqtt.message import Message
    from trunkline.mqtt.publication import Publication
    from trunkline.store import Engine, WriteBatch
    from trunkline.store.clock import StoreClock
    from trunkline.streams.log import StreamStore

#: Bytes of messages that wait for a store that refuses. A stream takes no more then.
MAX_UNWRITTEN: Final = 64 << 20
#: Seconds that an ephemeral consumer without receivers stays, unless it says otherwise.
INACTIVE_THRESHOLD: Final = 5.0

#: Seconds by which a time may be wrong that was turned into the store's. What is found too early is looked at again.
ROUNDING: Final = 0.001


class Stream:
    """`notify` is called when there is something to be written; with True, if there is something to be worked off as
    well (`settle`), or by the clock."""

    def __init__(self, number: int, config: StreamConfig, created: float, clock: StoreClock) -> None:
        self.log = StreamLog(number, config, created, clock)
        self.log.removed = self._removed
        self.filters = TopicFilters(config.filters)
        self.cursors: dict[str, ConsumerCursor] = {}
        self.audiences: Audiences[ConsumerCursor] = Audiences()
        self.duplicates = DuplicateWindow()
        self.notify: Callable[[bool], None] = _nobody
        #: Consumers with something to be written, and those that are gone.
        self._changed_cursors: dict[ConsumerCursor, None] = {}
        self._deleted_cursors: list[ConsumerCursor] = []
        #: Messages that are done with, and have to be read before they can be removed.
        self._done: dict[int, None] = {}
        #: With interest retention: messages from here on may be wanted by nobody, since a consumer has gone.
        self._swept = 0
        self._serial = 0
        #: When consumers without receivers may have to go: one entry each, which may be too early.
        self._idle: list[tuple[float, int, ConsumerCursor]] = []
        self._idle_numbers = count()

    @property
    def config(self) -> StreamConfig:
        return self.log.config

    @property
    def name(self) -> str:
        return self.log.config.name

    def changed(self) -> None:
        self.notify(bool(self._done or self._swept or self.config.max_age) or self.log.has_work)

    def attend(self) -> None:
        self.notify(True)

    # Messages that come

    def refusal(self, publication: Publication, now: float) -> str:
        """Why it cannot be taken; empty if it can. Of several messages the answer may be to ask for each."""
        config = self.config
        if not config.is_refusing and not config.sealed and self.log.unwritten_weight <= MAX_UNWRITTEN:
            return ""
        if publication.count > 1:
            return "" if self._has_room(publication) else "not all of them have room"
        try:
            self.check_message(publication.messages[0], now)
        except StreamRefuses as error:
            return str(error)
        return ""

    def _has_room(self, publication: Publication) -> bool:
        """Surely for all of it."""
        config, sizes = self.config, message_sizes(publication)
        largest = max(sizes)
        return (
            not config.sealed
            and self.log.unwritten_weight <= MAX_UNWRITTEN
            and not 0 < config.max_message_size < largest
            and not 0 < config.max_bytes < largest
            and not config.discard_new_per_topic
            and (config.discard is Discard.OLD or self.log.has_room(publication.count, sum(sizes)))
        )

    def take(self, publication: Publication, now: float) -> None:
        """Keep a publication, which `refusal` allows; but no message whose id is known."""
        has_id = publication.properties and message_id(publication.properties) is not None
        if has_id or self.config.retention is Retention.INTEREST:
            for message in publication.messages:
                self._take_message(message, now)
        else:
            self._append(publication, now)
        self.log.trim(now)
        self.changed()

    def known(self, message: Message, now: float) -> int | None:
        """The sequence of the message that had the same id."""
        identity = message_id(message.properties) if message.properties else None
        if identity is None or not self.config.duplicate_window:
            return None
        return self.duplicates.find(identity, now - self.config.duplicate_window)

    def check_message(self, message: Message, now: float) -> None:
        """
        Raises:
            StreamRefuses: there is no room, or it is too large.
        """
        log, config = self.log, self.config
        if self.known(message, now) is not None:
            return
        if config.sealed:
            raise StreamRefuses(f"the stream {config.name!r} is sealed")
        size = message_sizes(message)[0]
        if 0 < config.max_message_size < size or 0 < config.max_bytes < size:
            limit = min(filter(None, (config.max_message_size, config.max_bytes)))
            raise StreamRefuses(f"the stream {config.name!r} takes messages of {limit} bytes at most")
        if log.unwritten_weight > MAX_UNWRITTEN:
            self.changed()  # the next commit may show that the store works again
            raise StreamRefuses(f"the stream {config.name!r} waits for the store")
        if config.discard is Discard.NEW:
            if not log.has_room(1, size):
                raise StreamRefuses(f"the stream {config.name!r} is full")
            figures = log.topics.get(message.topic) if config.discard_new_per_topic else None
            if figures is not None and figures.count >= config.max_messages_per_topic:
                raise StreamRefuses(f"the stream {config.name!r} has enough messages of this topic")

    def _take_message(self, message: Message, now: float) -> None:
        if self.known(message, now) is not None:
            return
        if self.config.retention is not Retention.INTEREST or self.audiences.of(message.topic):
            self._append(message, now)
        else:
            self.log.skip(1, now)
        identity = message_id(message.properties) if message.properties else None
        if identity is not None and self.config.duplicate_window:
            self.duplicates.add(identity, self.log.last, self.log.last_time)

    def _append(self, publication: Publication, now: float) -> None:
        first = self.log.last + 1
        self.log.append(publication, now)
        if self.cursors:
            self.audiences.arrive(publication.topics, first, publication.count)

    def expect(
        self,
        topic: str,
        last_sequence: int | None = None,
        last_topic_sequence: int | None = None,
        last_id: str | None = None,
    ) -> None:
        """What a publisher knows of the stream is so still. The last sequence of the topic has to be exact
        (`resolve`).

        Raises:
            WrongLastSequence: it is not.
        """
        if last_sequence is not None and last_sequence != self.log.last:
            raise WrongLastSequence(last_sequence, self.log.last, f"the stream {self.name!r}")
        figures = self.log.topics.get(topic)
        last = 0 if figures is None else figures.last
        if last_topic_sequence is not None and last_topic_sequence != last:
            raise WrongLastSequence(last_topic_sequence, last, f"{topic!r} in the stream {self.name!r}")
        if last_id is not None and last_id != self.duplicates.last_id:
            raise StreamRefuses(f"the last id in the stream {self.name!r} is {self.duplicates.last_id!r}")

    # Messages that go

    def _removed(self, sequence: int, count: int, topic: str) -> int:
        """Returns how much work it was."""
        told = 0
        if self.cursors:
            for cursor in self.audiences.active(topic):
                told += 1
                if cursor.removed(sequence, count, topic):
                    self._changed_cursors[cursor] = None
        if self._done:
            for each in range(sequence, sequence + count):
                self._done.pop(each, None)
        return told

    def ack(self, cursor: ConsumerCursor, sequence: int) -> bool:
        """The message is done with. False: nobody waits for that."""
        done = cursor.ack(sequence)
        if self.config.retention is not Retention.LIMITS:
            self._done.update(dict.fromkeys(done))
            self._remove_done()
        self.note(cursor)
        return bool(done)

    def _remove_done(self) -> int | None:
        log = self.log
        log.rest()
        while self._done:
            sequence = next(iter(self._done))
            if log.is_live(sequence):
                piece = log.find(sequence)
                if piece is None:
                    return sequence
                if log.patience <= 0:
                    return AGAIN
                if not self._is_wanted(sequence, piece.topic(sequence)):
                    log.remove(sequence)
            self._done.pop(sequence, None)
        return None

    def _is_wanted(self, sequence: int, topic: str) -> bool:
        for cursor in self.audiences.active(topic):
            self.log.patience -= 1
            if cursor.wants(sequence, topic):
                return True
        return False

    def _sweep(self) -> int | None:
        """Remove what nobody wants any more."""
        log = self.log
        log.rest()
        while log.patience > 0:
            sequence = log.next_live(self._swept)
            if not self._swept or sequence > log.last:
                self._swept = 0
                return None
            piece = log.find(sequence)
            if piece is None:
                return sequence
            log.patience -= 1
            self._swept = sequence + 1
            if not self._is_wanted(sequence, piece.topic(sequence)):
                log.remove(sequence)
        return AGAIN

    def work(self, now: float) -> int | None:
        """Do what limits and acknowledgements demand. None: it is done; otherwise as `StreamLog.trim`."""
        for step in (self._remove_done, lambda: self.log.trim(now), self._sweep):
            needed = step()
            if needed is not None:
                return needed
        return None

    async def settle(self, store: StreamStore, now: Callable[[], float]) -> None:
        """Do all of it."""
        while True:
            needed = self.work(now())
            if needed is None:
                if not self.log.untidy:
                    return
                await self.log.tidy(store)
            else:
                await self.fetch(store, needed)
            self.changed()

    async def fetch(self, store: StreamStore, needed: int) -> None:
        """Load what a step needs, or let others have their turn."""
        if needed == AGAIN:
            await store.pause()
        else:
            await self.log.load(store, needed)

    # What users ask for

    def clear(self) -> None:
        self.log.clear()
        self._done.clear()
        for cursor in self.audiences.all_active():
            cursor.cleared(self.log)
            self._changed_cursors[cursor] = None
        self.changed()

    @property
    def info(self) -> StreamInfo:
        log = self.log
        return StreamInfo(
            log.config,
            log.created + log.behind,
            log.messages,
            log.byte_size,
            log.first,
            log.last,
            log.last_time + log.behind if log.last >= log.config.first_sequence else None,
            len(log.topics),
            log.last + 1 - log.first - log.messages,
            len(self.cursors),
        )

    def update(self, config: StreamConfig) -> None:
        """
        Raises:
            InvalidStreamConfig: it cannot become this.
        """
        self.config.check_update(config)
        self.log.config = config
        self.filters = TopicFilters(config.filters)
        self.log.crowd()
        self.attend()

    # Consumers

    def cursor(self, name: str) -> ConsumerCursor:
        """
        Raises:
            ConsumerNotFound: there is none with this name.
        """
        try:
            return self.cursors[name]
        except KeyError:
            raise ConsumerNotFound(self.name, name) from None

    async def add_consumer(self, store: StreamStore, config: ConsumerConfig, now: float) -> ConsumerCursor:
        """The consumer with this name and configuration; a new one, if there is none.

        Raises:
            ConsumerExists: it has another configuration.
            InvalidStreamConfig: the stream cannot have such a consumer.
        """
        config.check()
        known = self.cursors.get(config.name) if config.name else None
        if known is not None:
            if known.config != config:
                raise ConsumerExists(f"the consumer {config.name!r} has another configuration: update it")
            return known
        self.check_consumer(config)
        position: int | None = None
        starts: list[int] = []
        if config.deliver_policy is DeliverPolicy.LAST:
            position = await last_sequence(self.log, store, TopicFilters(config.filters)) or self.log.last + 1
        elif config.deliver_policy is DeliverPolicy.LAST_PER_TOPIC:
            position = end = self.log.last + 1
            starts = await last_sequences(self.log, store, TopicFilters(config.filters), end)
        elif config.start_time is not None:
            number, low, high = self.log.number, self.log.first, self.log.last + 1
            wanted = config.start_time - self.log.behind - ROUNDING
            position = await store.read(lambda engine: seek_time(engine, number, wanted, low, high))
        if config.name in self.cursors:  # somebody else has made it meanwhile
            return await self.add_consumer(store, config, now)
        cursor = self.new_consumer(config, now, position, starts)
        while (needed := cursor.count(self.log)) is not None:
            await self.fetch(store, needed)
        if self.cursors.get(cursor.name) is not cursor:
            raise ConsumerNotFound(self.name, cursor.name)
        return cursor

    def new_consumer(
        self, config: ConsumerConfig, now: float, position: int | None = None, starts: Sequence[int] = ()
    ) -> ConsumerCursor:
        """A consumer that has still to be counted (`ConsumerCursor.count`). `position` and `starts` are what
        `ConsumerCursor.begin` wants to know.

        Raises:
            InvalidStreamConfig: the stream cannot have such a consumer.
        """
        self.check_consumer(config)
        cursor = ConsumerCursor(config.name or self._ephemeral_name(), config, now)
        self._add(cursor)
        cursor.begin(self.log, position, starts)
        self.note(cursor)
        self.attend()
        return cursor

    def _add(self, cursor: ConsumerCursor) -> None:
        self.cursors[cursor.name] = cursor
        cursor.audience = self.audiences.join(cursor)
        self._time(cursor)

    def _ephemeral_name(self) -> str:
        while True:
            self._serial += 1
            name = f"ephemeral-{self._serial}"
            if name not in self.cursors:
                return name

    def check_consumer(self, config: ConsumerConfig) -> None:
        """
        Raises:
            InvalidStreamConfig: the stream cannot have such a consumer.
        """
        if 0 < self.config.max_consumers <= len(self.cursors):
            raise InvalidStreamConfig(
                f"the stream {self.name!r} has {len(self.cursors)} consumers, and may have no more"
            )
        if self.config.retention is Retention.WORK_QUEUE:
            if config.ack_policy is not AckPolicy.EXPLICIT:
                raise InvalidStreamConfig('a consumer of a work queue needs ack_policy = "explicit"')
            if config.deliver_policy is not DeliverPolicy.ALL:
                raise InvalidStreamConfig('a consumer of a work queue needs deliver_policy = "all"')
            filters = TopicFilters(config.filters)
            for cursor in self.cursors.values():
                if filters.overlap(cursor.audience.filters) is not None:
                    raise InvalidStreamConfig(
                        f"the consumer {cursor.name!r} of the work queue {self.name!r} gets some of the same topics"
                    )

    def update_consumer(self, config: ConsumerConfig) -> ConsumerCursor:
        """
        Raises:
            ConsumerNotFound: there is none with this name.
            InvalidStreamConfig: it cannot become this.
        """
        cursor = self.cursor(config.name)
        cursor.config.check_update(config)
        cursor.configure(config)
        self._time(cursor)
        self.note(cursor)
        self.attend()
        return cursor

    def delete_consumer(self, cursor: ConsumerCursor) -> None:
        if self.cursors.get(cursor.name) is cursor:
            del self.cursors[cursor.name]
            self.audiences.leave(cursor, cursor.audience)
            self._changed_cursors.pop(cursor, None)
            if cursor.config.durable:
                self._deleted_cursors.append(cursor)
            if self.config.retention is Retention.INTEREST:
                self._swept = max(self.log.first, 1)
            self.attend()
            cursor.wake()

    # Consumers that nobody receives from

    def left(self, cursor: ConsumerCursor, now: float) -> None:
        """A receiver has gone."""
        cursor.receivers -= 1
        cursor.last_active = now
        if not cursor.is_timed:
            self._time(cursor)
        self.attend()

    def _time(self, cursor: ConsumerCursor) -> None:
        due = cursor.last_active + inactive_threshold(cursor.config)
        if due < inf:
            cursor.is_timed = True
            heappush(self._idle, (due, next(self._idle_numbers), cursor))

    @property
    def next_idle(self) -> float:
        """When there may be one to be deleted, in seconds since the epoch."""
        return self._idle[0][0] if self._idle else inf

    def delete_idle(self, now: float) -> None:
        """Delete consumers that nobody has received from for too long."""
        while self.next_idle <= now:
            cursor = heappop(self._idle)[2]
            cursor.is_timed = False
            if cursor.receivers:
                continue
            if cursor.last_active + inactive_threshold(cursor.config) <= now:
                self.delete_consumer(cursor)
            elif self.cursors.get(cursor.name) is cursor:
                self._time(cursor)

    # Delivery

    def deliver(self, cursor: ConsumerCursor, limit: int, now: float) -> list[Delivered]:
        """The next messages for a consumer, as `ConsumerCursor.take`."""
        taken = cursor.take(self.log, limit, now)
        if taken:
            if cursor.config.ack_policy is AckPolicy.NONE and self.config.retention is not Retention.LIMITS:
                self._done.update((each.sequence, None) for each in taken)
                self._remove_done()
            self.note(cursor)
        return taken

    def note(self, cursor: ConsumerCursor) -> None:
        """The consumer has delivered something, or got an acknowledgement."""
        self._changed_cursors[cursor] = None
        self.changed()
        if cursor.watchers:
            cursor.wake()

    def consumer_info(self, cursor: ConsumerCursor, now: float) -> ConsumerInfo:
        paused = cursor.config.pause_until
        return ConsumerInfo(
            self.name,
            cursor.name,
            cursor.config,
            cursor.created + self.log.behind,
            cursor.consumer_sequence,
            cursor.stream_sequence,
            *cursor.ack_floor,
            len(cursor.outstanding),
            cursor.redelivered,
            cursor.pending,
            paused is not None and now + self.log.behind < paused,
        )

    # The store

    def write(self, batch: WriteBatch) -> bool:
        """Put into the batch what has changed. Returns whether the next commit has something to write, too."""
        number = self.log.number
        for cursor in self._deleted_cursors:
            cursor.delete(number, batch)
        self._deleted_cursors.clear()
        changed, self._changed_cursors = self._changed_cursors, {}
        for cursor in changed:
            if cursor.config.durable and self.cursors.get(cursor.name) is cursor:
                cursor.write(number, batch)
        self.audiences.write(number, batch)
        return self.log.write(batch, [list(self._done), self.duplicates.first])

    def restore(self, head: list[Any], done: list[int]) -> None:
        self.log.restore(head)
        self._done.update(dict.fromkeys(done))
        if self.config.retention is Retention.INTEREST:
            self._swept = self.log.first  # ephemeral consumers have gone

    def restore_cursor(
        self, cursor: ConsumerCursor, starts: list[int], replay_to: int, state: list[Any], pending: int
    ) -> None:
        """`pending` is for rows that do not say it."""
        self._add(cursor)
        if not cursor.restore(starts, replay_to, state):
            cursor.pending = pending
            self._changed_cursors[cursor] = None

    def restore_duplicates(self, engine: Engine, first: int) -> None:
        """Read the ids from a sequence on. What is deleted is known."""
        low, log = first, self.log
        while rows := read_page(engine, log.number, low):
            for row in rows:
                block = block_from_row(row, low, log.epoch)
                low = block.last + 1
                for piece in block.pieces:
                    for sequence, message in enumerate(piece.publication.messages, piece.first):
                        identity = message_id(message.properties) if message.properties else None
                        if identity is not None and log.is_live(sequence):
                            self.duplicates.add(identity, sequence, piece.time)


def inactive_threshold(config: ConsumerConfig) -> float:
    return config.inactive_threshold or (inf if config.durable else INACTIVE_THRESHOLD)


def _nobody(has_work: bool) -> None:
    """Is notified."""
