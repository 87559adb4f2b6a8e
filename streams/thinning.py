"""Removing some messages of some topics: what a topic has too many of, and what is rolled up.

Where they are in the log is not known, so all topics lose theirs in one go through it.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

from trunkline.streams.filters import EVERYTHING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trunkline.streams.blocks import Piece
    from trunkline.streams.config import StreamConfig
    from trunkline.streams.topics import TopicFigures, TopicIndex

#: What a step answers when it is not done, and needs nothing to be read. Sequences begin with 1.
AGAIN: Final = 0
#: Topics whose rolled-up messages are removed in one go.
MAX_ROLLED_UP: Final = 10_000


class Log(Protocol):
    """What it knows of a stream's log."""

    config: StreamConfig
    topics: TopicIndex
    last: int
    patience: int

    def find(self, sequence: int) -> Piece | None: ...
    def next_live(self, sequence: int) -> int: ...
    def remove(self, sequence: int) -> bool: ...
    def remove_rolled_up(self, piece: Piece, sequence: int) -> int: ...


class Thinning:
    def __init__(self, log: Log) -> None:
        self._log = log
        #: Topics that have more messages than they may.
        self._crowded: dict[str, None] = {}
        #: Those that lose messages now, and where what is rolled up of them ends.
        self._topics: dict[str, int] = {}
        #: Between these two sequences.
        self._low = self._end = 0
        #: Those of which it is not known.
        self._unlooked: Iterator[tuple[str, TopicFigures] | None] | None = None

    @property
    def has_work(self) -> bool:
        return bool(self._unlooked is not None or self._crowded or self._topics or self._log.topics.rolled_up)

    def crowd(self, topic: str) -> None:
        """It has more messages than it may."""
        self._crowded[topic] = None

    def look_again(self) -> None:
        """The limit for a topic has changed."""
        self._unlooked = self._log.topics.matching(EVERYTHING)

    def clear(self) -> None:
        """All messages are gone."""
        self._crowded.clear()
        self._topics.clear()
        self._unlooked = None

    def work(self) -> int | None:
        """As `StreamLog.trim`."""
        log = self._log
        if self._unlooked is not None and not self._look():
            return AGAIN
        while self._crowded or self._topics or log.topics.rolled_up:
            if not self._topics:
                self._begin()
                continue
            sequence = log.next_live(self._low)
            if sequence >= self._end:
                self._finish()
                continue
            piece = log.find(sequence)
            if piece is None:
                return sequence
            if log.patience <= 0:
                return AGAIN
            log.patience -= 1
            self._low = self._thin(piece, sequence)
        return None

    def _look(self) -> bool:
        """Find the topics that have too many. Returns whether this is done."""
        log = self._log
        for found in self._unlooked or ():
            log.patience -= 1
            if found is not None and self._has_too_many(found[1]):
                self._crowded[found[0]] = None
            if log.patience <= 0:
                return False
        self._unlooked = None
        return True

    def _has_too_many(self, figures: TopicFigures) -> bool:
        return figures.count > self._log.config.max_messages_per_topic > 0

    def _begin(self) -> None:
        topics = self._log.topics
        self._low, self._end = self._log.last + 1, 0
        for topic in self._crowded:
            figures = topics.get(topic)
            if figures is not None:
                self._include(topic, figures.first, figures.last, 0)  # the last one stays
        self._crowded.clear()
        for topic, rolled_up in islice(topics.rolled_up.items(), MAX_ROLLED_UP):
            self._include(topic, rolled_up.low, rolled_up.end, rolled_up.end)

    def _include(self, topic: str, low: int, end: int, rolled_up_end: int) -> None:
        self._topics[topic] = rolled_up_end
        self._low, self._end = min(self._low, low), max(self._end, end)

    def _thin(self, piece: Piece, sequence: int) -> int:
        """Returns from where on to go on."""
        log, topic = self._log, piece.topic(sequence)
        if topic not in self._topics:
            return piece.end if len(piece.publication.topics) == 1 else sequence + 1
        figures, end = log.topics.get(topic), sequence + 1
        if log.topics.is_rolled_up(topic, sequence):
            end = log.remove_rolled_up(piece, sequence)
        elif figures is not None and self._has_too_many(figures):
            figures.first = sequence
            log.remove(sequence)
        if topic not in log.topics.rolled_up and (figures is None or not self._has_too_many(figures)):
            del self._topics[topic]
        return end

    def _finish(self) -> None:
        for topic, end in self._topics.items():
            self._log.topics.forget_rolled_up(topic, end)
        self._topics.clear()
