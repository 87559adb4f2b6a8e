"""A stream: which messages it takes, and when they go."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final

from trunkline.streams.blocks import block_from_row, content_sizes, message_sizes, read_page
from trunkline.streams.config import AckPolicy, Discard, Retention, StreamConfig
from trunkline.streams.consumers import Consumers
from trunkline.streams.demands import check_demands, is_demanding
from trunkline.streams.duplicates import DuplicateWindow, message_id
from trunkline.streams.errors import (
    MessageTooLarge,
    StreamFull,
    StreamRefuses,
    StreamSealed,
    WrongLastId,
    WrongLastSequence,
)
from trunkline.streams.filters import of_stream
from trunkline.streams.info import StreamInfo
from trunkline.streams.lives import life
from trunkline.streams.log import StreamLog
from trunkline.streams.markers import marker
from trunkline.streams.naming import Naming
from trunkline.streams.rollups import STREAM, TOPIC, rollup
from trunkline.streams.search import check_last
from trunkline.streams.thinning import AGAIN

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.mqtt.message import Message
    from trunkline.mqtt.publication import Publication
    from trunkline.store import Engine, WriteBatch
    from trunkline.store.clock import StoreClock
    from trunkline.streams.consumer import ConsumerCursor, Delivered
    from trunkline.streams.log import StreamStore
    from trunkline.streams.search import FilterLast

#: Bytes of messages that wait for a store that refuses. A stream takes no more then.
MAX_UNWRITTEN: Final = 64 << 20
#: Steps of work for one stream before others have their turn.
STEPS: Final = 16


class Stream:
    """`notify` is called when there is something to be written; with True, if there is something to be worked off as
    well (`settle`), or by the clock."""

    def __init__(self, number: int, config: StreamConfig, created: float, clock: StoreClock) -> None:
        self.log = StreamLog(number, config, created, clock)
        self.log.removed = self._removed
        self.log.aging.ended = partial(_mark, self)
        self.filters = of_stream(config.filters)
        self.consumers = Consumers(self.log, self.changed, self.attend)
        self.duplicates = DuplicateWindow()
        self.notify: Callable[[bool], None] = _nobody
        #: Makes a message of the stream's own one of the broker's.
        self.stamp: Callable[[Message], Message] = _as_it_is
        #: Messages are gone, which is still to be written.
        self._has_removed = False
        #: Messages that are done with, and have to be read before they can be removed.
        self._done: dict[int, None] = {}
        #: How far it has come in its origins, by their keys: the number of the stream, and a sequence.
        self.places: dict[str, tuple[int, int]] = {}
        #: Are told of messages before they are there: the sequence of the first, the publication, and the time.
        self.watchers: list[Callable[[int, Publication, float], None]] = []
        self.naming = Naming(config)
        #: With interest retention: messages from here on may be wanted by nobody, since a consumer has gone.
        self._swept = 0

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
        demands = bool(publication.properties) and is_demanding(publication.properties)
        if not (config.is_refusing or config.sealed or demands) and self.log.unwritten_weight <= MAX_UNWRITTEN:
            return ""
        if publication.count > 1:
            has_room = not demands and not self.naming.changes and _has_room(self.log, publication)
            return "" if has_room else "not all of them have room"
        try:
            self.check_message(publication.messages[0], now)
        except StreamRefuses as error:
            return str(error)
        return ""

    def take(self, publication: Publication, now: float) -> None:
        """Keep a publication, which `refusal` allows; but no message whose id is known."""
        properties = publication.properties
        is_special = properties and (message_id(properties) is not None or rollup(properties) != "")
        if is_special or self.config.retention is Retention.INTEREST or self.naming.changes:
            for message in publication.messages:
                self.take_message(self.naming.message(message), now)
        else:
            _tell(self, publication, now)
            self.append(publication, now)
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
            InvalidLife, LifeForbidden, MessageTooLarge, RollupForbidden, StreamFull, StreamSealed
            StreamRefuses: it has to wait for the store.
        """
        if self.known(message, now) is not None:
            return
        if message.properties and not self.config.sealed:
            check_demands(self.config, message.properties)
        self.check_room(self.naming.message(message))

    def check_room(self, message: Message) -> None:
        """For a message with the topic under which the stream keeps it.

        Raises:
            MessageTooLarge, StreamFull, StreamSealed
            StreamRefuses: it has to wait for the store.
        """
        log, config = self.log, self.config
        if config.sealed:
            raise StreamSealed(f"the stream {config.name!r} is sealed")
        if log.unwritten_weight > MAX_UNWRITTEN:
            self.changed()  # the next commit may show that the store works again
            raise StreamRefuses(f"the stream {config.name!r} waits for the store")
        if not config.is_refusing:
            return
        size = message_sizes(message, config.measure)[0]
        is_long = 0 < config.max_message_size < content_sizes(message, config.measure)[0]
        if is_long or 0 < config.max_bytes < size:
            limit = min(filter(None, (config.max_message_size, config.max_bytes)))
            text = f"the stream {config.name!r} takes messages of {limit} bytes at most"
            raise MessageTooLarge(text) if is_long else StreamFull(text, "bytes")
        if config.discard is Discard.NEW:
            if not log.has_room(1, 0):
                raise StreamFull(f"the stream {config.name!r} is full", "messages")
            if not log.has_room(0, size):
                raise StreamFull(f"the stream {config.name!r} is full", "bytes")
            figures = log.topics.get(message.topic) if config.discard_new_per_topic else None
            if figures is not None and figures.count >= config.max_messages_per_topic:
                raise StreamFull(f"the stream {config.name!r} has enough messages of this topic", "topic")

    def take_message(self, message: Message, now: float) -> None:
        if self.known(message, now) is not None:
            return
        self.add(message, now)
        identity = message_id(message.properties) if message.properties else None
        if identity is not None and self.config.duplicate_window:
            self.duplicates.add(identity, self.log.last, self.log.last_time)

    def add(self, message: Message, now: float) -> None:
        """A message with its topic in the stream, for which there is room, and whatever its id is."""
        if self.config.retention is not Retention.INTEREST or self.consumers.audiences.of(message.topic):
            _tell(self, message, now)
            if message.properties and self.config.allow_rollup:
                _roll_up(self, message)
            self.append(message, now)
        else:
            self.log.skip(1, now)

    def append(self, publication: Publication, now: float) -> None:
        """Keep a publication, whatever it demands."""
        log = self.log
        first = log.last + 1
        log.append(publication, now)
        if log.config.allow_message_ttl and publication.properties:
            seconds = life(log.config, publication.properties)
            if seconds < inf:
                log.deadlines.note(first, publication.count, log.last_time + seconds)
        self.consumers.arrive(publication.topics, first, publication.count)

    def expect(
        self,
        topic: str,
        last_sequence: int | None = None,
        last_topic_sequence: int | None = None,
        last_id: str | None = None,
        of: FilterLast | None = None,
    ) -> None:
        """What a publisher knows of the stream is so still. The last sequence of the topic has to be exact
        (`resolve`); `of` says that it is that of all topics which match a filter (`filter_last`).

        Raises:
            WrongLastId, WrongLastSequence: it is not.
        """
        if last_sequence is not None and last_sequence != self.log.last:
            raise WrongLastSequence(last_sequence, self.log.last, f"the stream {self.name!r}")
        if last_topic_sequence is not None:
            check_last(self.log, topic, last_topic_sequence, of)
        if last_id is not None and last_id != self.duplicates.last_id:
            raise WrongLastId(self.name, self.duplicates.last_id)

    # Messages that go

    def _removed(self, sequence: int, count: int, topic: str) -> int:
        """Returns how much work it was."""
        self._has_removed = True
        if self._done:
            for each in range(sequence, sequence + count):
                self._done.pop(each, None)
        return self.consumers.removed(sequence, count, topic)

    def ack(self, cursor: ConsumerCursor, sequence: int, now: float | None = None) -> bool:
        """The message is done with. False: nobody waits for that. Who wants to be told when it was gives the time."""
        done = cursor.ack(sequence)
        if done and now is not None:
            cursor.last_acked = now
        if self.config.retention is not Retention.LIMITS:
            self._done.update(dict.fromkeys(done))
            self._remove_done()
        self.consumers.note(cursor)
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
        for cursor in self.consumers.audiences.active(topic):
            self.log.patience -= 1
            if cursor.wants(sequence, topic):
                return True
        return False

    def _sweep(self) -> int | None:
        """Remove what nobody wants any more."""
        log = self.log
        log.rest()
        if self.consumers.interest_ended and self.config.retention is Retention.INTEREST:
            self._swept = max(log.first, 1)
        self.consumers.interest_ended = False
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

    async def settle(self, store: StreamStore, now: Callable[[], float]) -> bool:
        """Do some of it. Returns whether that was the last: other streams have their turn before the rest."""
        for _ in range(STEPS):
            needed = self.work(now())
            if self._has_removed:
                self._has_removed = False
                self.changed()
            if needed is not None:
                await self.log.fetch(store, needed)
            elif not await self.log.tend(store, now()):
                return True
            self.changed()
        return False

    # What users ask for

    def clear(self) -> None:
        self.log.clear()
        self._done.clear()
        self.consumers.cleared()
        self.changed()

    @property
    def info(self) -> StreamInfo:
        log, first_time = self.log, self.log.first_time
        return StreamInfo(
            log.config,
            log.created + log.behind,
            log.messages,
            log.byte_size,
            log.first,
            log.last,
            None if first_time is None else first_time + log.behind,
            log.last_time + log.behind if log.last >= log.config.first_sequence else None,
            len(log.topics),
            log.last + 1 - log.first - log.messages,
            len(self.consumers),
        )

    def update(self, config: StreamConfig) -> None:
        """
        Raises:
            InvalidStreamConfig: it cannot become this.
        """
        self.config.check_update(config)
        self.log.config = config
        self.filters = of_stream(config.filters)
        self.naming = Naming(config)
        self.log.thinning.look_again()
        self.attend()

    # Consumers

    def delete_consumer(self, cursor: ConsumerCursor) -> None:
        if self.consumers.remove(cursor):
            self.attend()
            cursor.wake()

    def delete_idle(self, now: float) -> None:
        """Delete consumers that nobody has received from for too long."""
        for cursor in self.consumers.take_idle(now):
            self.delete_consumer(cursor)

    def deliver(
        self, cursor: ConsumerCursor, limit: int, now: float, fits: Callable[[Message], bool] | None = None
    ) -> list[Delivered]:
        """The next messages for a consumer, as `ConsumerCursor.take`."""
        taken = cursor.take(self.log, limit, now, fits)
        if taken or cursor.has_passed:
            if cursor.config.ack_policy is AckPolicy.NONE and self.config.retention is not Retention.LIMITS:
                self._done.update((each.sequence, None) for each in taken)
                self._remove_done()
            self.consumers.note(cursor)
        return taken

    # The store

    def write(self, batch: WriteBatch) -> bool:
        """Put into the batch what has changed. Returns whether the next commit has something to write, too."""
        self.consumers.write(batch)
        # an empty object is where the messages for each consumer once were
        places = [{}, self.places] if self.places else []
        return self.log.write(batch, [list(self._done), self.duplicates.first, *places])

    def restore(self, head: list[Any], done: list[int], places: dict[str, list[int]]) -> None:
        self.log.restore(head)
        self.places = {origin: (number, sequence) for origin, (number, sequence) in places.items()}
        self._done.update(dict.fromkeys(done))
        if self.config.retention is Retention.INTEREST:
            self._swept = self.log.first  # ephemeral consumers have gone

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
                        if identity is not None and log.is_there(sequence, message.topic):
                            self.duplicates.add(identity, sequence, piece.time)


def _tell(stream: Stream, publication: Publication, now: float) -> None:
    """It will be there next."""
    for watcher in stream.watchers:
        watcher(stream.log.last + 1, publication, now)


def _mark(stream: Stream, topic: str, now: float) -> None:
    """The last message of a topic has gone by its age."""
    config = stream.config
    if config.retention is Retention.INTEREST and not stream.consumers.audiences.of(topic):
        return
    mark = stream.stamp(marker(topic, config.delete_marker_ttl))
    if config.discard is Discard.OLD or stream.log.has_room(1, message_sizes(mark, config.measure)[0]):
        _tell(stream, mark, now)
        stream.append(mark, now)


def _roll_up(stream: Stream, message: Message) -> None:
    """Remove what the message, which comes then, takes the place of."""
    whose = rollup(message.properties)
    figures = stream.log.topics.get(message.topic)
    if whose == STREAM or (whose == TOPIC and figures is not None and figures.count == stream.log.messages):
        stream.clear()
    elif whose == TOPIC:
        stream.log.roll_up(message.topic)


def _has_room(log: StreamLog, publication: Publication) -> bool:
    """Surely for all of it."""
    config = log.config
    sizes = message_sizes(publication, config.measure)
    return (
        not config.sealed
        and log.unwritten_weight <= MAX_UNWRITTEN
        and not 0 < config.max_message_size < max(content_sizes(publication, config.measure))
        and not 0 < config.max_bytes < max(sizes)
        and not config.discard_new_per_topic
        and (config.discard is Discard.OLD or log.has_room(publication.count, sum(sizes)))
    )


def _nobody(has_work: bool) -> None:
    """Is notified."""


def _as_it_is(message: Message) -> Message:
    return message
