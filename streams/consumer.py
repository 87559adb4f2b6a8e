"""Where a consumer is in its stream: what it delivers next, and what is not acknowledged."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING, Any, Final

from trunkline.mqtt.packing import pack
from trunkline.streams.config import AckPolicy, ConsumerConfig, DeliverPolicy, ReplayPolicy
from trunkline.streams.filters import TopicFilters
from trunkline.streams.keys import CONSUMERS, stream_key
from trunkline.streams.log import AGAIN, MAX_STEP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trunkline.mqtt.message import Message
    from trunkline.store import WriteBatch
    from trunkline.streams.blocks import Piece
    from trunkline.streams.log import StreamLog

#: Behind a consumer's name, in the keys of its rows: what it is, and where it is.
IDENTITY: Final = b"\0i"
STATE: Final = b"\0s"


@dataclass(slots=True)
class Outstanding:
    """A message that was delivered and is not acknowledged."""

    #: Of its last delivery.
    consumer_sequence: int
    #: Deliveries.
    count: int
    #: It comes again then, in seconds since the epoch.
    deadline: float


@dataclass(frozen=True, slots=True)
class Delivered:
    """A message that leaves a stream, and what is known about it."""

    sequence: int
    consumer_sequence: int
    #: How often it was delivered, this time included.
    count: int
    #: When it was published, in seconds since the epoch.
    time: float
    #: Messages behind it that the consumer has still to get.
    pending: int
    message: Message


class ConsumerCursor:
    """The state of one consumer. Made at a place in the stream; `begin` and `count` find it."""

    def __init__(self, name: str, config: ConsumerConfig, created: float) -> None:
        self.name = name
        self.config = config
        self.created = created
        self.filters = TopicFilters(config.filters)
        #: The next sequence that is looked at.
        self.position = 1
        #: Messages for it at or behind the position.
        self.pending = 0
        #: Of the last delivery.
        self.consumer_sequence = 0
        self.stream_sequence = 0
        #: Receivers there are now, those of them that iterate, and when there was one, in seconds since the epoch.
        self.receivers = self.bound = 0
        self.last_active = created
        self.outstanding: dict[int, Outstanding] = {}
        #: Deadline and sequence, also of some that are acknowledged.
        self._due: list[tuple[float, int]] = []
        #: With `last_per_topic`: what comes before the position, and how much of it came.
        self._starts: Sequence[int] = ()
        self._started = 0
        #: What lies between the two is not counted in `pending`.
        self._counted = self._uncounted = 0
        #: With `replay_policy = original`: up to this sequence, and the times of the last message.
        self._replay_to = 0
        self._replayed: tuple[float, float] | None = None
        self._identified = False
        #: The sequence that has to be loaded before `take` can go on.
        self.needs: int | None = None
        #: When `take` may have something that it has not now, in seconds since the epoch.
        self.next_due = inf

    # Its place

    def begin(self, log: StreamLog, position: int | None = None) -> None:
        """Go to where the policy says. `position` is for `by_start_time`: the first message of that time is there or
        behind. `count` has to be called then until it is done."""
        policy = self.config.deliver_policy
        self._replay_to = log.last if self.config.replay_policy is ReplayPolicy.ORIGINAL else 0
        lasts = [figures.last for _, figures in log.topics.matching(self.filters)] if policy in _LASTS else []
        if policy is DeliverPolicy.LAST_PER_TOPIC:
            self._starts = sorted(lasts)
            self.position, self.pending = log.last + 1, len(lasts)
        elif policy is DeliverPolicy.NEW:
            self.position = log.last + 1
        elif policy is DeliverPolicy.LAST:
            self.position, self.pending = max(lasts, default=log.last + 1), int(bool(lasts))
        elif policy is DeliverPolicy.ALL and self.filters.filters:
            self.position = log.first
            self.pending = sum(figures.count for _, figures in log.topics.matching(self.filters))
        else:
            asked = self.config.start_sequence if policy is DeliverPolicy.BY_START_SEQUENCE else position
            self.position = min(max(log.first, asked or 0), log.last + 1)
            if policy is DeliverPolicy.BY_START_TIME or self.filters.filters:
                self._counted, self._uncounted = self.position, log.last + 1
            else:
                low = self.position
                self.pending = log.last + 1 - low - log.deleted.count(low, log.last + 1)

    def count(self, log: StreamLog) -> int | None:
        """Count what there was at the beginning. None: it is done; otherwise as `StreamLog.trim`."""
        for _ in range(MAX_STEP):
            if self._counted >= self._uncounted:
                return None
            sequence = log.next_live(self._counted)
            if sequence >= self._uncounted:
                self._counted = self._uncounted
                return None
            piece = log.find(sequence)
            if piece is None:
                return sequence
            if piece.time + log.behind < (self.config.start_time or 0.0):
                self.position = self._counted = min(piece.end, self._uncounted)
                continue
            end = min(piece.end, self._uncounted)
            if len(piece.publication.topics) == 1:
                if self.filters.match(piece.topic(sequence)):
                    self.pending += end - sequence - log.deleted.count(sequence, end)
                self._counted = end
            else:
                self.pending += self.filters.match(piece.topic(sequence))
                self._counted = sequence + 1
        return AGAIN

    def appended(self, topics: Sequence[str], count: int) -> bool:
        """So many messages are new: of one topic, or each of one of its own. Returns whether one is for it."""
        match = self.filters.match
        new = (count if match(topics[0]) else 0) if len(topics) == 1 else sum(map(match, topics))
        self.pending += new
        return new > 0

    def removed(self, sequence: int, count: int, topic: str) -> bool:
        """Messages of one topic, one behind the other, are gone. Returns whether one of them was to be acknowledged."""
        end = sequence + count
        before = len(self.outstanding)
        if before:
            for each in range(sequence, end):
                self.outstanding.pop(each, None)
        if self._started < len(self._starts):
            low = max(bisect_left(self._starts, sequence), self._started)
            self.pending -= max(bisect_left(self._starts, end) - low, 0)
        low = max(sequence, self.position)
        if low < end and self.filters.match(topic):
            not_counted = min(end, self._uncounted) - max(low, self._counted)
            self.pending -= end - low - max(not_counted, 0)
        return len(self.outstanding) < before

    def cleared(self, log: StreamLog) -> None:
        """All messages are gone."""
        self.outstanding.clear()
        self.pending, self._started = 0, len(self._starts)
        self._counted = self._uncounted
        self.position = max(self.position, log.first)

    def wants(self, sequence: int, topic: str) -> bool:
        """Has it still to deliver this message, or to get its acknowledgement?"""
        if sequence in self.outstanding:
            return True
        if sequence < self.position:
            place = bisect_left(self._starts, sequence, self._started)
            return place < len(self._starts) and self._starts[place] == sequence
        return self.filters.match(topic)

    # Delivery

    def take(self, log: StreamLog, limit: int, now: float) -> list[Delivered]:
        """The next messages, what comes again first. Then `needs` and `next_due` say what else there may be."""
        self.needs, self.next_due = None, inf
        taken: list[Delivered] = []
        if self.config.pause_until is not None and now < (due := self.config.pause_until - log.behind):
            self.next_due = due
            return taken
        self._take_again(log, limit, now, taken)
        acks = self.config.ack_policy is not AckPolicy.NONE
        window = self.config.max_ack_pending
        looked = 0
        while len(taken) < limit and self.needs is None and not 0 < window <= len(self.outstanding):
            sequence = self._next(log)
            if sequence is None:
                break
            piece = log.find(sequence)
            looked += 1
            if piece is None or looked > MAX_STEP:
                self.needs = sequence if piece is None else AGAIN
                break
            is_start = self._started < len(self._starts)
            if not is_start and not self.filters.match(piece.topic(sequence)):
                self.position = piece.end if len(piece.publication.topics) == 1 else sequence + 1
                continue
            due = self._replay_at(piece, sequence)
            if due > now:
                self.next_due = min(self.next_due, due)
                break
            if is_start:
                self._started += 1
            else:
                self.position = sequence + 1
            self.pending -= 1
            if self._replay_to:
                self._replayed = (now, piece.time)
            entry = Outstanding(self.consumer_sequence + 1, 1, inf)
            if acks:
                self.outstanding[sequence] = entry
                self._wait(sequence, entry, now + self.config.wait_after(1))
            taken.append(self._deliver(sequence, entry, piece, now))
        if self._due:
            self.next_due = min(self.next_due, self._due[0][0])
        return taken

    def _next(self, log: StreamLog) -> int | None:
        while self._started < len(self._starts):
            sequence = self._starts[self._started]
            if log.is_live(sequence):
                return sequence
            self._started += 1
        if not self.pending:
            self.position = log.last + 1
            return None
        sequence = log.next_live(self.position)
        return sequence if sequence <= log.last else None

    def _take_again(self, log: StreamLog, limit: int, now: float, taken: list[Delivered]) -> None:
        while self._due and len(taken) < limit:
            deadline, sequence = self._due[0]
            if deadline > now:
                return
            entry = self.outstanding.get(sequence)
            if entry is None or entry.deadline != deadline:
                heappop(self._due)
                continue
            if 0 < self.config.max_deliver <= entry.count:
                heappop(self._due)
                del self.outstanding[sequence]  # it stays in the stream
                continue
            piece = log.find(sequence)
            if piece is None:
                self.needs = sequence
                return
            heappop(self._due)
            entry.count += 1
            entry.consumer_sequence = self.consumer_sequence + 1
            self._wait(sequence, entry, now + self.config.wait_after(entry.count))
            taken.append(self._deliver(sequence, entry, piece, now))

    def _deliver(self, sequence: int, entry: Outstanding, piece: Piece, now: float) -> Delivered:
        self.consumer_sequence = entry.consumer_sequence
        self.stream_sequence = max(self.stream_sequence, sequence)
        self.last_active = now
        return Delivered(
            sequence, entry.consumer_sequence, entry.count, piece.time, self.pending, piece.message(sequence)
        )

    def _replay_at(self, piece: Piece, sequence: int) -> float:
        if self._replayed is None or sequence > self._replay_to:
            return -inf
        delivered, published = self._replayed
        return delivered + piece.time - published

    def _wait(self, sequence: int, entry: Outstanding, deadline: float) -> None:
        entry.deadline = deadline
        heappush(self._due, (deadline, sequence))
        if len(self._due) > 2 * len(self.outstanding) + 64:
            self._due = sorted((each.deadline, number) for number, each in self.outstanding.items())

    # Acknowledgement

    def ack(self, sequence: int) -> list[int]:
        """The messages that are done with it."""
        if sequence not in self.outstanding:
            return []
        if self.config.ack_policy is AckPolicy.ALL:
            done = [each for each in self.outstanding if each <= sequence]
        else:
            done = [sequence]
        for each in done:
            del self.outstanding[each]
        return done

    def nak(self, sequence: int, delay: float, now: float) -> bool:
        """The message comes again after so many seconds. False: it is not waited for."""
        entry = self.outstanding.get(sequence)
        if entry is not None:
            self._wait(sequence, entry, now + delay)
        return entry is not None

    def in_progress(self, sequence: int, now: float) -> bool:
        """The time for the acknowledgement begins anew."""
        entry = self.outstanding.get(sequence)
        if entry is not None:
            self._wait(sequence, entry, now + self.config.wait_after(entry.count))
        return entry is not None

    @property
    def ack_floor(self) -> tuple[int, int]:
        """The last consumer sequence and stream sequence up to which nothing is missing."""
        if not self.outstanding:
            return self.consumer_sequence, self.stream_sequence
        consumer = min(entry.consumer_sequence for entry in self.outstanding.values())
        return consumer - 1, min(self.outstanding) - 1

    @property
    def redelivered(self) -> int:
        return sum(entry.count > 1 for entry in self.outstanding.values())

    # The store

    def row(self, stream: int, part: bytes) -> bytes:
        return stream_key(stream) + self.name.encode() + part

    def write(self, stream: int, batch: WriteBatch) -> None:
        if not self._identified:
            self._identified = True
            identity = [self.config.to_plain(), self.created, list(self._starts), self._replay_to]
            batch.put(CONSUMERS, self.row(stream, IDENTITY), pack(identity))
        entries = self.outstanding.values()
        state = [
            self.position,
            self.consumer_sequence,
            self.stream_sequence,
            self._started,
            list(self.outstanding),
            [entry.consumer_sequence for entry in entries],
            [entry.count for entry in entries],
            [entry.deadline for entry in entries],
        ]
        batch.put(CONSUMERS, self.row(stream, STATE), pack(state))

    def configure(self, config: ConsumerConfig) -> None:
        self.config = config
        self._identified = False

    def delete(self, stream: int, batch: WriteBatch) -> None:
        batch.delete(CONSUMERS, self.row(stream, IDENTITY))
        batch.delete(CONSUMERS, self.row(stream, STATE))

    def restore(self, starts: list[int], replay_to: int, state: list[Any], pending: int) -> None:
        self._starts, self._replay_to, self._identified, self.pending = starts, replay_to, True, pending
        self.position, self.consumer_sequence, self.stream_sequence, self._started, *entries = state
        for sequence, consumer_sequence, count, deadline in zip(*entries, strict=True):
            self.outstanding[sequence] = Outstanding(consumer_sequence, count, deadline)
        self._due = sorted((entry.deadline, sequence) for sequence, entry in self.outstanding.items())


_LASTS: Final = (DeliverPolicy.LAST, DeliverPolicy.LAST_PER_TOPIC)
