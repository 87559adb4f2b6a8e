"""The consumers of a stream: which there are, who may be added, and which go because nobody receives from them."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any, Final

from trunkline.streams.audience import Audiences
from trunkline.streams.config import AckPolicy, ConsumerConfig, DeliverPolicy, Retention
from trunkline.streams.consumer import ConsumerCursor
from trunkline.streams.errors import ConsumerExists, ConsumerNotFound, InvalidStreamConfig
from trunkline.streams.filters import TopicFilters
from trunkline.streams.info import ConsumerInfo
from trunkline.streams.search import last_sequence, last_sequences, near_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from trunkline.store import WriteBatch
    from trunkline.streams.log import StreamLog, StreamStore

#: Seconds that an ephemeral consumer without receivers stays, unless it says otherwise.
INACTIVE_THRESHOLD: Final = 5.0


class Consumers:
    """`changed` is called when there is something to be written, `attend` if there is something to be worked off as
    well, or by the clock."""

    def __init__(self, log: StreamLog, changed: Callable[[], None], attend: Callable[[], None]) -> None:
        self._log = log
        self._changed = changed
        self._attend = attend
        self._by_name: dict[str, ConsumerCursor] = {}
        self.audiences: Audiences[ConsumerCursor] = Audiences()
        #: There may be messages that nobody wants any more.
        self.interest_ended = False
        #: Those with something to be written, and those that are gone.
        self._unwritten: dict[ConsumerCursor, None] = {}
        self._deleted: list[ConsumerCursor] = []
        self._serial = 0
        #: When those without receivers may have to go: one entry each, which may be too early.
        self._idle: list[tuple[float, int, ConsumerCursor]] = []
        self._idle_numbers = count()

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[ConsumerCursor]:
        return iter(self._by_name.values())

    def find(self, name: str) -> ConsumerCursor | None:
        return self._by_name.get(name)

    def get(self, name: str) -> ConsumerCursor:
        """
        Raises:
            ConsumerNotFound: there is none with this name.
        """
        cursor = self._by_name.get(name)
        if cursor is None:
            raise ConsumerNotFound(self._log.config.name, name)
        return cursor

    # They come, change and go

    async def add(self, store: StreamStore, config: ConsumerConfig, now: float) -> ConsumerCursor:
        """The consumer with this name and configuration; a new one, if there is none.

        Raises:
            ConsumerExists: it has another configuration.
            InvalidStreamConfig: the stream cannot have such a consumer.
        """
        config.check()
        known = self._by_name.get(config.name) if config.name else None
        if known is not None:
            if known.config != config:
                raise ConsumerExists(f"the consumer {config.name!r} has another configuration: update it")
            return known
        self.check(config)
        log = self._log
        position: int | None = None
        starts: list[int] = []
        if config.deliver_policy is DeliverPolicy.LAST:
            position = await last_sequence(log, store, TopicFilters(config.filters)) or log.last + 1
        elif config.deliver_policy is DeliverPolicy.LAST_PER_TOPIC:
            position = end = log.last + 1
            starts = await last_sequences(log, store, TopicFilters(config.filters), end)
        elif config.start_time is not None:
            position = await near_time(log, store, config.start_time)
        if config.name in self._by_name:  # somebody else has made it meanwhile
            return await self.add(store, config, now)
        cursor = self.new(config, now, position, starts)
        while (needed := cursor.count(log)) is not None:
            await log.fetch(store, needed)
        if self._by_name.get(cursor.name) is not cursor:
            raise ConsumerNotFound(log.config.name, cursor.name)
        return cursor

    def new(
        self, config: ConsumerConfig, now: float, position: int | None = None, starts: Sequence[int] = ()
    ) -> ConsumerCursor:
        """A consumer that has still to be counted (`ConsumerCursor.count`). `position` and `starts` are what
        `ConsumerCursor.begin` wants to know.

        Raises:
            InvalidStreamConfig: the stream cannot have such a consumer.
        """
        self.check(config)
        cursor = ConsumerCursor(config.name or self._ephemeral_name(), config, now)
        self._join(cursor)
        cursor.begin(self._log, position, starts)
        self.note(cursor)
        self._attend()
        return cursor

    def _join(self, cursor: ConsumerCursor) -> None:
        self._by_name[cursor.name] = cursor
        cursor.audience = self.audiences.join(cursor)
        self._time(cursor)

    def _ephemeral_name(self) -> str:
        while True:
            self._serial += 1
            name = f"ephemeral-{self._serial}"
            if name not in self._by_name:
                return name

    def check(self, config: ConsumerConfig) -> None:
        """
        Raises:
            InvalidStreamConfig: the stream cannot have such a consumer.
        """
        stream = self._log.config
        if 0 < stream.max_consumers <= len(self):
            raise InvalidStreamConfig(f"the stream {stream.name!r} has {len(self)} consumers, and may have no more")
        self._check_work_queue(config)

    def _check_work_queue(self, config: ConsumerConfig) -> None:
        """Of the consumers of a work queue, no two get the same; they may be updated to what they are."""
        stream = self._log.config
        if stream.retention is Retention.WORK_QUEUE:
            if config.ack_policy is not AckPolicy.EXPLICIT:
                raise InvalidStreamConfig('a consumer of a work queue needs ack_policy = "explicit"')
            if config.deliver_policy is not DeliverPolicy.ALL:
                raise InvalidStreamConfig('a consumer of a work queue needs deliver_policy = "all"')
            filters = TopicFilters(config.filters)
            for cursor in self:
                if cursor.name != config.name and filters.overlap(cursor.audience.filters) is not None:
                    raise InvalidStreamConfig(
                        f"the consumer {cursor.name!r} of the work queue {stream.name!r} gets some of the same topics"
                    )

    def update(self, config: ConsumerConfig, name: str = "") -> ConsumerCursor:
        """With other filters it stays at its place, and has to be counted (`ConsumerCursor.count`). `name` is that of a
        consumer whose configuration has none.

        Raises:
            ConsumerNotFound: there is none with this name.
            InvalidStreamConfig: it cannot become this.
        """
        cursor = self.get(name or config.name)
        cursor.config.check_update(config)
        self._check_work_queue(config)
        has_moved = config.filters != cursor.config.filters
        cursor.configure(config)
        if has_moved:
            self.audiences.move(cursor)
            cursor.has_moved = True
            cursor.go_to(self._log, cursor.position)
            self.interest_ended = True
        self._time(cursor)
        self.note(cursor)
        self._attend()
        return cursor

    def remove(self, cursor: ConsumerCursor) -> bool:
        """Returns whether it was there."""
        if self._by_name.get(cursor.name) is not cursor:
            return False
        del self._by_name[cursor.name]
        self.interest_ended = True
        self.audiences.leave(cursor, cursor.audience)
        if cursor.config.durable:
            self._deleted.append(cursor)
        return True

    def note(self, cursor: ConsumerCursor) -> None:
        """The consumer has delivered something, or got an acknowledgement."""
        self._unwritten[cursor] = None
        self._changed()
        if cursor.watchers:
            cursor.wake()

    # Those that nobody receives from

    def left(self, cursor: ConsumerCursor, now: float) -> None:
        """A receiver has gone."""
        cursor.receivers -= 1
        cursor.last_active = now
        if not cursor.is_timed:
            self._time(cursor)
        self._attend()

    def _time(self, cursor: ConsumerCursor) -> None:
        due = cursor.last_active + inactive_threshold(cursor.config)
        if due < inf:
            cursor.is_timed = True
            heappush(self._idle, (due, next(self._idle_numbers), cursor))

    @property
    def next_idle(self) -> float:
        """When there may be one that has to go, in seconds since the epoch."""
        return self._idle[0][0] if self._idle else inf

    def take_idle(self, now: float) -> Iterator[ConsumerCursor]:
        """Those that nobody has received from for too long."""
        while self.next_idle <= now:
            cursor = heappop(self._idle)[2]
            cursor.is_timed = False
            if cursor.receivers:
                continue
            if cursor.last_active + inactive_threshold(cursor.config) <= now:
                yield cursor
            elif self._by_name.get(cursor.name) is cursor:
                self._time(cursor)

    # The log tells them

    def arrive(self, topics: Sequence[str], first: int, count: int) -> None:
        if self._by_name:
            self.audiences.arrive(topics, first, count)

    def removed(self, sequence: int, count: int, topic: str) -> int:
        """Returns how much work it was."""
        told = 0
        if self._by_name:
            for cursor in self.audiences.active(topic):
                told += 1
                if cursor.removed(sequence, count, topic):
                    self._unwritten[cursor] = None
        return told

    def cleared(self) -> None:
        for cursor in self.audiences.all_active():
            cursor.cleared(self._log)
            self._unwritten[cursor] = None

    # The store

    def write(self, batch: WriteBatch) -> None:
        number = self._log.number
        for cursor in self._deleted:
            cursor.delete(number, batch)
        self._deleted.clear()
        unwritten, self._unwritten = self._unwritten, {}
        for cursor in unwritten:
            if cursor.config.durable and self._by_name.get(cursor.name) is cursor:
                cursor.write(number, batch)
        self.audiences.write(number, batch)

    def restore(
        self, cursor: ConsumerCursor, starts: list[int], replay_to: int, state: list[Any], pending: int
    ) -> None:
        """`pending` is for rows that do not say it."""
        self._join(cursor)
        if not cursor.restore(starts, replay_to, state):
            cursor.pending = pending
            self._unwritten[cursor] = None
        if cursor.has_moved:
            self.audiences.moved[cursor] = None

    def info(self, cursor: ConsumerCursor, now: float) -> ConsumerInfo:
        paused, behind = cursor.config.pause_until, self._log.behind
        return ConsumerInfo(
            self._log.config.name,
            cursor.name,
            cursor.config,
            cursor.created + behind,
            cursor.consumer_sequence,
            cursor.stream_sequence,
            *cursor.ack_floor,
            len(cursor.outstanding),
            cursor.outstanding.redelivered,
            cursor.pending,
            paused is not None and now + behind < paused,
            *(None if time is None else time + behind for time in (cursor.last_delivered, cursor.last_acked)),
        )


def inactive_threshold(config: ConsumerConfig) -> float:
    return config.inactive_threshold or (inf if config.durable else INACTIVE_THRESHOLD)
