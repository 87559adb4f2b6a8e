"""What a stream knows of each topic in it. It takes memory for every topic and for no message."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from trunkline.mqtt.packing import pack, unpack
from trunkline.router.topictree import PATIENCE, TopicTree
from trunkline.streams.keys import STREAM_TOPICS, key, number_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trunkline.store import Row, WriteBatch
    from trunkline.streams.filters import TopicFilters

#: Rows that are written before they are rewritten as fewer; and entries of one of those.
MAX_ROWS: Final = 256
REWRITTEN_AT_ONCE: Final = 1000
#: Topics that are made ready to be found before others get their turn.
PLANTED_AT_ONCE: Final = 500


class TopicFigures:
    """Of one topic in one stream."""

    __slots__ = ("byte_size", "count", "exact", "first", "last")

    def __init__(self, count: int, byte_size: int, first: int, last: int, exact: bool) -> None:
        #: Messages and their bytes.
        self.count = count
        self.byte_size = byte_size
        #: There is none before.
        self.first = first
        #: The last one, if this is `exact`; otherwise there is none after.
        self.last = last
        self.exact = exact


class RolledUp(NamedTuple):
    """The messages of a topic that count no more, and are still to be removed: from one sequence on, before another."""

    low: int
    end: int
    #: How many there are at most.
    left: int


class TopicIndex:
    """Stored as a row a commit, with the topics that have changed: what stands in a later row counts. When the rows
    are many, everything is written again, some topics a commit, and the rows before are deleted."""

    def __init__(self) -> None:
        self._figures: dict[str, TopicFigures] = {}
        self._tree = TopicTree()
        self.rolled_up: dict[str, RolledUp] = {}
        #: Those that are not in the tree yet: nobody has looked for some since they came.
        self._unplanted: dict[str, None] = {}
        self._changed: dict[str, None] = {}
        #: Of the next row, and of the first one there is.
        self._number = self._oldest = 0
        self._rewriting: Iterator[str] | None = None
        self._rewritten_from = 0
        self._is_cleared = False

    def __len__(self) -> int:
        return len(self._figures)

    def get(self, topic: str) -> TopicFigures | None:
        return self._figures.get(topic)

    def plant(self) -> bool:
        """Get ready for `matching`, step by step. Returns whether it is."""
        for topic in list(islice(self._unplanted, PLANTED_AT_ONCE)):
            del self._unplanted[topic]
            self._tree.add(topic)
        return not self._unplanted

    def matching(self, filters: TopicFilters) -> Iterator[tuple[str, TopicFigures] | None]:
        """The topics that match, found while they are asked for, each once; None now and then, after `PATIENCE` of them
        at most. What comes meanwhile may be missed, and what came since `plant`."""
        seen: set[str] = set()
        for topic in self._names(filters):
            if topic is None:
                yield None
            elif (figures := self._figures.get(topic)) is not None and topic not in seen:
                if len(filters.filters) > 1:
                    seen.add(topic)
                yield topic, figures

    def _names(self, filters: TopicFilters) -> Iterator[str | None]:
        if not filters.filters:
            for number, topic in enumerate(list(self._figures), 1):
                yield topic
                if not number % PATIENCE:
                    yield None
        for number, topic_filter in enumerate(filters.filters, 1):
            yield from self._tree.match(topic_filter)
            if not number % PATIENCE:
                yield None

    def add(self, topic: str, first: int, count: int, byte_size: int) -> TopicFigures:
        """So many messages, the last of which has the sequence `first + count - 1` or one above, are the newest."""
        figures = self._figures.get(topic)
        self._changed[topic] = None
        if figures is None:
            figures = self._figures[topic] = TopicFigures(count, byte_size, first, first + count - 1, True)
            self._unplanted[topic] = None
        else:
            figures.count += count
            figures.byte_size += byte_size
            figures.last = first + count - 1
            figures.exact = True
        return figures

    def remove(self, topic: str, sequence: int, byte_size: int, count: int = 1) -> None:
        """`count` of its messages are gone, from this sequence on and without one between them."""
        figures = self._figures[topic]
        self._changed[topic] = None
        figures.count -= count
        figures.byte_size -= byte_size
        if not figures.count:
            self._forget(topic)
            return
        end = sequence + count
        if sequence <= figures.first:
            figures.first = end
        if sequence <= figures.last < end:
            figures.last = sequence - 1
            figures.exact = False

    def _forget(self, topic: str) -> None:
        del self._figures[topic]
        if topic in self._unplanted:
            del self._unplanted[topic]
        else:
            self._tree.discard(topic)

    # Roll-ups

    def roll_up(self, topic: str) -> None:
        """The messages that it has count no more."""
        figures, known = self._figures[topic], self.rolled_up.get(topic)
        low, left = (figures.first, 0) if known is None else (known.low, known.left)
        self.rolled_up[topic] = RolledUp(low, figures.last + 1, left + figures.count)
        self._changed[topic] = None
        self._forget(topic)

    def is_rolled_up(self, topic: str, sequence: int) -> bool:
        """Does a message that there is count no more?"""
        return bool(self.rolled_up) and (known := self.rolled_up.get(topic)) is not None and sequence < known.end

    def removed_rolled_up(self, topic: str, count: int) -> None:
        """So many of those that count no more are gone."""
        known = self.rolled_up[topic]
        self.rolled_up[topic] = known._replace(left=known.left - count)
        if count >= known.left:
            self.forget_rolled_up(topic, known.end)

    def forget_rolled_up(self, topic: str, end: int) -> None:
        """All before this sequence that count no more are gone."""
        known = self.rolled_up.get(topic)
        if known is not None and known.end <= end:
            del self.rolled_up[topic]
            self._changed[topic] = None

    def resolve(self, topic: str, last: int) -> None:
        """The last one has been looked for."""
        figures = self._figures.get(topic)
        if figures is not None and not figures.exact:
            figures.last, figures.exact = last, True
            self._changed[topic] = None

    def clear(self) -> None:
        self._figures.clear()
        self._changed.clear()
        self._unplanted.clear()
        self.rolled_up.clear()
        self._tree = TopicTree()
        self._rewriting, self._is_cleared = None, True

    def write(self, stream: int, batch: WriteBatch) -> bool:
        """Returns whether there is something to be written soon, although nothing changes."""
        changed, self._changed = self._changed, {}
        if self._is_cleared:
            self._is_cleared = False
            batch.delete_range(STREAM_TOPICS, key(stream, self._oldest), key(stream, self._number))
            self._oldest = self._number
        if self._rewriting is None and self._number - self._oldest >= MAX_ROWS:
            self._rewriting, self._rewritten_from = iter([*self._figures, *self.rolled_up]), self._number
        if self._rewriting is not None:
            some = list(islice(self._rewriting, REWRITTEN_AT_ONCE))
            if some:
                changed.update(dict.fromkeys(some))
            else:
                self._rewriting = None
                batch.delete_range(STREAM_TOPICS, key(stream, self._oldest), key(stream, self._rewritten_from))
                self._oldest = self._rewritten_from
        if changed:
            batch.put(STREAM_TOPICS, key(stream, self._number), pack([self._entry(topic) for topic in changed]))
            self._number += 1
        return self._rewriting is not None

    def _entry(self, topic: str) -> tuple[object, ...]:
        figures, rolled_up = self._figures.get(topic), self.rolled_up.get(topic, ())
        if figures is None:
            return topic, 0, 0, 0, 0, True, *rolled_up
        return topic, figures.count, figures.byte_size, figures.first, figures.last, figures.exact, *rolled_up

    def restore(self, row: Row) -> None:
        """A row; all come in their order."""
        self._number = number_in(row[0]) + 1
        if not self._figures and not self._oldest:
            self._oldest = self._number - 1
        for topic, count, byte_size, first, last, exact, *rolled_up in unpack(row[1]):
            if rolled_up:
                self.rolled_up[topic] = RolledUp(*rolled_up)
            else:
                self.rolled_up.pop(topic, None)
            if count:
                self._figures[topic] = TopicFigures(count, byte_size, first, last, exact)
                self._unplanted[topic] = None
            elif topic in self._figures:
                self._forget(topic)
