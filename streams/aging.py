"""Messages that go because of the time: those that are too old, and those whose own life is over."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final, Protocol

from trunkline.streams.lives import lives_forever
from trunkline.streams.markers import is_marker
from trunkline.streams.thinning import AGAIN

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.streams.blocks import Piece
    from trunkline.streams.config import StreamConfig
    from trunkline.streams.deadlines import MessageDeadlines
    from trunkline.streams.topics import TopicIndex

#: Removing messages with their topic is as much work as looking at so many, and so is a marker.
REMOVAL: Final = 4
MARKER: Final = 10


class AgingLog(Protocol):
    """What it knows of a stream's log."""

    config: StreamConfig
    deadlines: MessageDeadlines
    topics: TopicIndex
    first: int
    last: int
    messages: int
    patience: int

    def is_live(self, sequence: int) -> bool: ...
    def next_live(self, sequence: int) -> int: ...
    def find(self, sequence: int) -> Piece | None: ...
    def remove_some(self, piece: Piece, sequence: int, limit: int) -> None: ...


class Aging:
    def __init__(self, log: AgingLog) -> None:
        self._log = log
        #: Gets the topic whose last message has gone, and the time.
        self.ended: Callable[[str, float], None] = _nobody
        #: What is left of the messages before this one lives for ever.
        self.passed = 0

    @property
    def next_due(self) -> float:
        """When a message is too old, or its life may be over, in seconds since the epoch."""
        log = self._log
        if log.config.sealed:
            return inf
        due = log.deadlines.next_due
        if log.config.max_age and log.messages and (sequence := self._oldest()) <= log.last:
            piece = log.find(sequence)
            due = min(due, -inf if piece is None else piece.time + log.config.max_age)
        return due

    def _oldest(self) -> int:
        log = self._log
        return log.first if self.passed <= log.first else log.next_live(self.passed)

    def work(self, now: float) -> int | None:
        """As `StreamLog.trim`."""
        if self._log.config.sealed:
            return None
        needed = self._end_lives(now)
        return self._end_old(now) if needed is None else needed

    def _end_lives(self, now: float) -> int | None:
        log, deadlines = self._log, self._log.deadlines
        while deadlines.ending:
            left = deadlines.ending[0].left
            while left:
                if log.patience <= 0:
                    return AGAIN
                if log.is_live(left[-1]):
                    piece = log.find(left[-1])
                    if piece is None:
                        return left[-1]
                    self._end(piece, left[-1], 1, now)
                else:
                    log.patience -= 1
                left.pop()
            deadlines.ended()
        return None

    def _end_old(self, now: float) -> int | None:
        log, config = self._log, self._log.config
        while config.max_age and log.messages and (sequence := self._oldest()) <= log.last:
            piece = log.find(sequence)
            if piece is None:
                return sequence
            if now < piece.time + config.max_age:
                return None
            if log.patience <= 0:
                return AGAIN
            if config.allow_message_ttl and lives_forever(piece.publication.properties):
                log.patience -= 1
                self.passed = piece.end
            else:
                self._end(piece, sequence, log.patience, now)
        return None

    def _end(self, piece: Piece, sequence: int, limit: int, now: float) -> None:
        """Remove up to so many messages of a publication, from this one on."""
        log, topic = self._log, piece.topic(sequence)
        log.remove_some(piece, sequence, limit)  # it is not rolled up: those go first
        log.patience -= REMOVAL
        has_ended = log.topics.get(topic) is None
        if has_ended and log.config.delete_marker_ttl and not is_marker(piece.publication.properties):
            self.ended(topic, now)
            log.patience -= MARKER


def _nobody(topic: str, now: float) -> None:
    """Hears of it."""
