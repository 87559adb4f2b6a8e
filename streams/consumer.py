"""Where a consumer is in its stream: what it delivers next, and what is not acknowledged."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import takewhile
from math import inf
from typing import TYPE_CHECKING, Any, Final

from trunkline.mqtt.packing import pack
from trunkline.streams.config import AckPolicy, ConsumerConfig, DeliverPolicy, ReplayPolicy
from trunkline.streams.keys import CONSUMERS, stream_key
from trunkline.streams.log import MAX_STEP
from trunkline.streams.thinning import AGAIN
from trunkline.streams.unacknowledged import Outstanding, Unacknowledged
from trunkline.streams.watched import Watched

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trunkline.mqtt.message import Message
    from trunkline.store import WriteBatch
    from trunkline.streams.audience import Audience
    from trunkline.streams.blocks import Piece
    from trunkline.streams.log import StreamLog

#: Behind a consumer's name, in the keys of its rows: what it is, and where it is.
IDENTITY: Final = b"\0i"
STATE: Final = b"\0s"
#: Rests that a look at the topics takes before the messages are counted one by one: see `TopicIndex.matching`.
MAX_RESTS: Final = 16
#: Messages that wait for their acknowledgements, whatever the configuration says: each commit writes all of them.
MAX_UNACKNOWLEDGED: Final = 100_000


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


class ConsumerCursor(Watched):
    """The state of one consumer, which its stream has put into an audience. `begin` and `count` find its place."""

    audience: Audience[ConsumerCursor]

    def __init__(self, name: str, config: ConsumerConfig, created: float) -> None:
        super().__init__()
        self.name = name
        self.config = config
        self.created = created
        #: The next sequence that is looked at.
        self.position: int = 1
        #: Of the last delivery.
        self.consumer_sequence = 0
        self.stream_sequence = 0
        #: Receivers there are now, those of them that iterate, and when there was one, in seconds since the epoch.
        self.receivers = self.bound = 0
        self.last_active = created
        #: When it has delivered something, and when it was told that something is done with, since the process runs.
        self.last_delivered: float | None = None
        self.last_acked: float | None = None
        #: Does its stream look after it by the clock?
        self.is_timed = False
        self.outstanding = Unacknowledged()
        #: Of the messages that arrived for its audience, those that are not before it.
        self._passed = 0
        #: With `last_per_topic`: what comes before the position, and how much of it came.
        self._starts: Sequence[int] = ()
        self._started = 0
        #: What lies between the two is not counted in `pending`.
        self._counted = self._uncounted = 0
        self._has_looked = False
        #: With `replay_policy = original`: up to this sequence, and the times of the last message.
        self._replay_to = 0
        self._replayed: tuple[float, float] | None = None
        self._identified = False
        #: Messages that the last `take` looked at, about.
        self.looked = 0
        #: The sequence that has to be loaded before `take` can go on.
        self.needs: int | None = None
        #: Had it other filters, of which something is left?
        self.has_moved = False
        #: Is there something to be stored of the last `take`?
        self.has_passed = False
        #: Has the last `take` left a message where it was, since it did not fit?
        self.held_back = False
        #: When `take` may have something that it has not now, in seconds since the epoch.
        self.next_due = inf

    @property
    def pending(self) -> int:
        """Messages for it at or behind the position."""
        return self.audience.arrived - self._passed

    @pending.setter
    def pending(self, pending: int) -> None:
        self._passed = self.audience.arrived - pending

    @property
    def has_left(self) -> bool:
        """Does it know messages, whatever their topics, that are to be acknowledged or to be delivered?"""
        return bool(self.outstanding) or self._started < len(self._starts)

    # Its place

    def begin(self, log: StreamLog, position: int | None = None, starts: Sequence[int] = ()) -> None:
        """Go to where the policy says. What it says of messages that have to be found is in `position`, at or before
        the first one, and `starts`: all before the position. `count` has to be called then until it is done."""
        policy, end = self.config.deliver_policy, log.last + 1
        self._replay_to = log.last if self.config.replay_policy is ReplayPolicy.ORIGINAL else 0
        self._starts = starts
        if policy is DeliverPolicy.BY_START_SEQUENCE:
            position = self.config.start_sequence
        elif policy is DeliverPolicy.NEW:
            position = end
        self.position = min(max(log.first, position or 0), end)
        self._count_from_here(log)

    def go_to(self, log: StreamLog, position: int) -> None:
        """Go on there. What there is has to be counted (`count`)."""
        self._starts, self._started = [each for each in self._starts[self._started :] if log.is_live(each)], 0
        self.position = max(position, log.first)
        self._count_from_here(log)

    def _count_from_here(self, log: StreamLog) -> None:
        end = log.last + 1
        self.pending, self._has_looked = len(self._starts), False
        self._counted = self._uncounted = end
        if self.config.deliver_policy is DeliverPolicy.BY_START_TIME or self.config.filters:
            self._counted = self.position
        else:
            self.pending += end - self.position - log.deleted.count(self.position, end)

    def count(self, log: StreamLog) -> int | None:
        """Count what there was at the beginning. None: it is done; otherwise as `StreamLog.trim`."""
        if self._counted < self._uncounted and not self._has_looked:
            if not log.topics.plant():
                return AGAIN
            self._has_looked = True
            if not log.topics.rolled_up:  # what is known of topics is without these, and they are counted until they go
                self._look_at_topics(log)
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
                if self.audience.match(piece.topic(sequence)):
                    self.pending += end - sequence - log.deleted.count(sequence, end)
                self._counted = end
            else:
                self.pending += self.audience.match(piece.topic(sequence))
                self._counted = sequence + 1
        return AGAIN

    def _look_at_topics(self, log: StreamLog) -> None:
        """What is known of them says between which messages those for it lie, and how many it can get at most. They may
        be too many for that."""
        low, high, pending, rests = self._uncounted, 0, 0, 0
        for found in log.topics.matching(self.audience.filters):
            if found is None:
                rests += 1
                if rests == MAX_RESTS:
                    return
                continue
            figures = found[1]
            low, high = min(low, figures.first), max(high, figures.last)
            pending += figures.count
        if self._counted <= log.first and self.config.start_time is None:
            self.pending, self._counted = pending, self._uncounted
        self.position = max(self.position, low)
        self._counted, self._uncounted = max(self._counted, low), min(self._uncounted, high + 1)

    def removed(self, sequence: int, count: int, topic: str) -> bool:
        """Messages of one topic, one behind the other, are gone. Returns whether that changes what is stored of it."""
        end, passed = sequence + count, self._passed
        before = len(self.outstanding)
        if before:
            for each in range(sequence, end) if count < before else list(self.outstanding):
                if sequence <= each < end:
                    self.outstanding.pop(each, None)
        if self._started < len(self._starts):
            low = max(bisect_left(self._starts, sequence), self._started)
            self._passed += max(bisect_left(self._starts, end) - low, 0)
        low = max(sequence, self.position)
        if low < end and self.audience.match(topic):
            not_counted = min(end, self._uncounted) - max(low, self._counted)
            self._passed += end - low - max(not_counted, 0)
        if len(self.outstanding) < before:
            self.wake()
            return True
        return self._passed > passed

    def cleared(self, log: StreamLog) -> None:
        """All messages are gone."""
        self.outstanding.clear()
        self.pending, self._started = 0, len(self._starts)
        self._counted = self._uncounted
        self.position = max(self.position, log.first)
        self.wake()

    def wants(self, sequence: int, topic: str) -> bool:
        """Has it still to deliver this message, or to get its acknowledgement?"""
        if sequence in self.outstanding:
            return True
        if sequence < self.position:
            place = bisect_left(self._starts, sequence, self._started)
            return place < len(self._starts) and self._starts[place] == sequence
        return self.audience.match(topic)

    # Delivery

    def take(
        self, log: StreamLog, limit: int, now: float, fits: Callable[[Message], bool] | None = None
    ) -> list[Delivered]:
        """The next messages, what comes again first, up to one that does not fit. Then `held_back`, `needs` and
        `next_due` say what else there may be."""
        self.needs, self.next_due, self.looked = None, inf, 0
        self.has_passed = self.held_back = False
        taken: list[Delivered] = []
        if self._counted < self._uncounted and (needed := self.count(log)) is not None:
            self.needs, self.looked = needed, MAX_STEP
            return taken
        if self.config.pause_until is not None and now < (due := self.config.pause_until - log.behind):
            self.next_due = due
            return taken
        limit = min(limit, MAX_STEP)
        self._take_again(log, limit, now, taken, fits)
        acks = self.config.ack_policy is not AckPolicy.NONE
        window = min(self.config.max_ack_pending or MAX_UNACKNOWLEDGED, MAX_UNACKNOWLEDGED)
        looked = 0
        if self.held_back:
            limit = 0
        while len(taken) < limit and self.needs is None and len(self.outstanding) < window:
            sequence = self._next(log)
            if sequence is None:
                break
            piece = log.find(sequence)
            looked += 1
            if piece is None or looked > MAX_STEP:
                self.needs = sequence if piece is None else AGAIN
                break
            topic = piece.topic(sequence)
            is_start, matches = self._started < len(self._starts), self.audience.match(topic)
            if not matches and not is_start:
                self.position = piece.end if len(piece.publication.topics) == 1 else sequence + 1
                continue
            if not matches or log.topics.is_rolled_up(topic, sequence):
                self._pass(sequence)
                continue
            due = self._replay_at(piece, sequence)
            if due > now:
                self.next_due = min(self.next_due, due)
                break
            if fits is not None and not fits(piece.message(sequence)):
                self.held_back = True
                break
            self._pass(sequence)
            if self._replay_to:
                self._replayed = (now, piece.time)
            entry = Outstanding(self.consumer_sequence + 1, 1, inf)
            if acks:
                self.outstanding[sequence] = entry
                self.outstanding.wait(sequence, entry, now + self.config.wait_after(1))
            taken.append(self._deliver(sequence, entry, piece))
        self.looked = looked
        if taken:
            self.last_active = self.last_delivered = now
        self.next_due = min(self.next_due, self.outstanding.next_due)
        return taken

    def _next(self, log: StreamLog) -> int | None:
        while self._started < len(self._starts):
            sequence = self._starts[self._started]
            if log.is_live(sequence):
                return sequence
            self._started += 1
        if self._passed == self.audience.arrived:
            self.position = log.last + 1
            self.audience.caught_up[self] = None
            if not self.outstanding:
                self.audience.active.pop(self, None)
            return None
        sequence = log.next_live(self.position)
        return sequence if sequence <= log.last else None

    def _pass(self, sequence: int) -> None:
        """Go behind a message that is for it."""
        self.has_passed = True
        if self._started < len(self._starts):
            self._started += 1
        else:
            self.position = sequence + 1
        self._passed += 1

    def _take_again(
        self,
        log: StreamLog,
        limit: int,
        now: float,
        taken: list[Delivered],
        fits: Callable[[Message], bool] | None,
    ) -> None:
        outstanding = self.outstanding
        for _ in range(MAX_STEP):
            if outstanding.next_due > now or len(taken) >= limit:
                return
            due = outstanding.first_due()
            if due is None:
                outstanding.pass_first_due()
                continue
            sequence, entry = due
            if 0 < self.config.max_deliver <= entry.count:
                outstanding.pass_first_due()
                del outstanding[sequence]  # it stays in the stream
                continue
            piece = log.find(sequence)
            if piece is None:
                self.needs = sequence
                return
            if log.topics.is_rolled_up(piece.topic(sequence), sequence):
                outstanding.pass_first_due()
                del outstanding[sequence]
                self.has_passed = True
                continue
            if fits is not None and not fits(piece.message(sequence)):
                self.held_back = True
                return
            outstanding.pass_first_due()
            entry.count += 1
            entry.consumer_sequence = self.consumer_sequence + 1
            if self.config.ack_policy is AckPolicy.NONE:  # it is no more
                del outstanding[sequence]
            else:
                outstanding.wait(sequence, entry, now + self.config.wait_after(entry.count))
            taken.append(self._deliver(sequence, entry, piece))
        self.needs = AGAIN

    def _deliver(self, sequence: int, entry: Outstanding, piece: Piece) -> Delivered:
        self.consumer_sequence = entry.consumer_sequence
        self.stream_sequence = max(self.stream_sequence, sequence)
        pending = self.audience.arrived - self._passed
        return Delivered(sequence, entry.consumer_sequence, entry.count, piece.time, pending, piece.message(sequence))

    def _replay_at(self, piece: Piece, sequence: int) -> float:
        if self._replayed is None or sequence > self._replay_to:
            return -inf
        delivered, published = self._replayed
        return delivered + piece.time - published

    # Acknowledgement

    def ack(self, sequence: int) -> list[int]:
        """The messages that are done with it."""
        if sequence not in self.outstanding:
            return []
        if self.config.ack_policy is AckPolicy.ALL:
            done = list(takewhile(sequence.__ge__, self.outstanding))  # they are in the order of their sequences
        else:
            done = [sequence]
        for each in done:
            del self.outstanding[each]
        if not self.outstanding and self in self.audience.caught_up:
            self.audience.active.pop(self, None)
        return done

    def nak(self, sequence: int, delay: float, now: float) -> bool:
        """The message comes again after so many seconds. False: it is not waited for."""
        entry = self.outstanding.get(sequence)
        if entry is not None:
            self.outstanding.wait(sequence, entry, now + delay)
        return entry is not None

    def in_progress(self, sequence: int, now: float) -> bool:
        """The time for the acknowledgement begins anew."""
        entry = self.outstanding.get(sequence)
        if entry is not None:
            self.outstanding.wait(sequence, entry, now + self.config.wait_after(entry.count))
        return entry is not None

    @property
    def ack_floor(self) -> tuple[int, int]:
        """The last consumer sequence and stream sequence up to which nothing is missing."""
        if not self.outstanding:
            return self.consumer_sequence, self.stream_sequence
        consumer = min(entry.consumer_sequence for entry in self.outstanding.values())
        return consumer - 1, min(self.outstanding) - 1

    # The store

    def row(self, stream: int, part: bytes) -> bytes:
        return stream_key(stream) + self.name.encode() + part

    def write(self, stream: int, batch: WriteBatch) -> None:
        if not self._identified:
            self._identified = True
            identity = [self.config.to_plain(), self.created, list(self._starts), self._replay_to]
            batch.put(CONSUMERS, self.row(stream, IDENTITY), pack(identity))
        state = [
            self.position,
            self.consumer_sequence,
            self.stream_sequence,
            self._started,
            *self.outstanding.to_plain(),
            self._passed,
            self._counted,
            self._uncounted,
            self.has_moved and self.has_left,
        ]
        batch.put(CONSUMERS, self.row(stream, STATE), pack(state))

    def configure(self, config: ConsumerConfig) -> None:
        self.config = config
        self._identified = False

    def delete(self, stream: int, batch: WriteBatch) -> None:
        batch.delete(CONSUMERS, self.row(stream, IDENTITY))
        batch.delete(CONSUMERS, self.row(stream, STATE))

    def restore(self, starts: list[int], replay_to: int, state: list[Any]) -> bool:
        """Returns whether the row says how much is pending."""
        self._starts, self._replay_to, self._identified = starts, replay_to, True
        self.position, self.consumer_sequence, self.stream_sequence, self._started = state[:4]
        self.outstanding.restore(state[4:8])
        if len(state) == 8:
            return False
        self._passed, self._counted, self._uncounted, *moved = state[8:]
        self.has_moved = bool(moved and moved[0])  # rows of earlier versions do not say it
        return True
