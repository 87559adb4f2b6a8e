"""Who wants the messages of a topic: the consumers of a stream, by their filters.

Consumers with the same filters are one audience, found by a trie. A message costs what its audiences cost: a counter
each, and a step for each consumer that waits for it. A consumer that is behind finds it when it comes there.
"""

from __future__ import annotations

import hashlib
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from trunkline.mqtt.packing import pack, unpack
from trunkline.router.trie import FilterTrie
from trunkline.streams.filters import TopicFilters
from trunkline.streams.keys import CONSUMERS, stream_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence, Sized

    from trunkline.store import WriteBatch
    from trunkline.streams.config import ConsumerConfig

#: Before the digest of the filters, in the key of an audience's row. No consumer has a name that begins with it.
AUDIENCE: Final = b"\0"
#: Topics whose audiences are remembered, and audiences of all of them together.
MAX_REMEMBERED: Final = 4096
MAX_REFERENCES: Final = 1 << 16


class Consumer(Protocol):
    """What an audience knows of its consumers."""

    config: ConsumerConfig
    audience: Audience[Any]
    position: int

    @property
    def watchers(self) -> Sized: ...
    @property
    def has_left(self) -> bool: ...
    def wake(self) -> None: ...


C = TypeVar("C", bound=Consumer)


class Audience(Generic[C]):
    """Consumers with the same filters."""

    __slots__ = ("_all", "active", "arrived", "caught_up", "cursors", "durable", "filters", "is_stored")

    def __init__(self, all_of_stream: Audiences[C], filters: tuple[str, ...], arrived: int = 0) -> None:
        self._all = all_of_stream
        self.filters = TopicFilters(filters)
        #: Messages for it that the stream got since it is known.
        self.arrived = arrived
        #: How many there are, and how many of them are durable.
        self.cursors = self.durable = 0
        #: Those that have looked for more in vain, and those that may want a message that is there. Each of them is in
        #: one, or in both while it waits for acknowledgements.
        self.caught_up: dict[C, None] = {}
        self.active: dict[C, None] = {}
        self.is_stored = False

    def join(self, cursor: C) -> None:
        self.cursors += 1
        self.durable += cursor.config.durable
        self.active[cursor] = None

    def leave(self, cursor: C) -> None:
        self.cursors -= 1
        self.durable -= cursor.config.durable
        self.active.pop(cursor, None)
        self.caught_up.pop(cursor, None)

    def match(self, topic: str) -> bool:
        return self in self._all.of(topic)

    def arrive(self, sequence: int, count: int) -> None:
        """So many messages for it are in the stream, the first of them with this sequence."""
        self.arrived += count
        if self.caught_up:
            for cursor in self.caught_up:
                self.active[cursor] = None
                cursor.position = sequence
                if cursor.watchers:
                    cursor.wake()
            self.caught_up.clear()

    def row(self, stream: int) -> bytes:
        digest = hashlib.sha256(pack(list(self.filters.filters))).digest()
        return stream_key(stream) + AUDIENCE + digest

    def write(self, stream: int, batch: WriteBatch) -> None:
        if self.durable:
            self.is_stored = True
            batch.put(CONSUMERS, self.row(stream), pack([list(self.filters.filters), self.arrived]))
        elif self.is_stored:
            self.is_stored = False
            batch.delete(CONSUMERS, self.row(stream))


class Audiences(Generic[C]):
    """Those of one stream."""

    def __init__(self) -> None:
        self._audiences: dict[tuple[str, ...], Audience[C]] = {}
        self._trie: FilterTrie[dict[Audience[C], None]] = FilterTrie()
        self._remembered: dict[str, dict[Audience[C], None]] = {}
        self._references = 0
        #: Consumers that had other filters, and may have something left of what these have found.
        self.moved: dict[C, None] = {}
        #: Those with something to be written.
        self._changed: dict[Audience[C], None] = {}

    def of(self, topic: str) -> dict[Audience[C], None]:
        found = self._remembered.get(topic)
        return self._find(topic) if found is None else found

    def _find(self, topic: str) -> dict[Audience[C], None]:
        found = dict.fromkeys(audience for each in self._trie.match(topic) for audience in each)
        everything = self._audiences.get(())
        if everything is not None:
            found[everything] = None
        if len(self._remembered) >= MAX_REMEMBERED or self._references > MAX_REFERENCES:
            self._forget()
        self._references += len(found)
        self._remembered[topic] = found
        return found

    def _forget(self) -> None:
        self._remembered.clear()
        self._references = 0

    def arrive(self, topics: Sequence[str], first: int, count: int) -> None:
        """So many messages are in the stream: of one topic, or each of one of its own."""
        each = count if len(topics) == 1 else 1
        for sequence, topic in enumerate(topics, first):
            found = self._remembered.get(topic)
            for audience in self._find(topic) if found is None else found:
                audience.arrive(sequence, each)
                self._changed[audience] = None

    def active(self, topic: str) -> Iterator[C]:
        """The consumers that may want a message of this topic that is there."""
        found = self.of(topic)
        cursors = (cursor for audience in found for cursor in audience.active)
        if not self.moved:
            return cursors
        return chain(cursors, [each for each in self.moved if each.has_left and each.audience not in found])

    def all_active(self) -> Iterator[C]:
        """Who waits for an acknowledgement is among them."""
        return (cursor for audience in self._audiences.values() for cursor in audience.active)

    def join(self, cursor: C) -> Audience[C]:
        audience = self._audiences.get(cursor.config.filters)
        if audience is None:
            audience = self.add(Audience(self, cursor.config.filters))
        audience.join(cursor)
        if audience.durable and not audience.is_stored:
            self._changed[audience] = None
        return audience

    def move(self, cursor: C) -> None:
        """The consumer has other filters now."""
        self.leave(cursor, cursor.audience)
        cursor.audience = self.join(cursor)
        self.moved[cursor] = None

    def restore(self, value: bytes) -> None:
        """The row of an audience; its consumers join."""
        filters, arrived = unpack(value)
        self.add(Audience(self, tuple(filters), arrived)).is_stored = True

    def add(self, audience: Audience[C]) -> Audience[C]:
        filters = audience.filters.filters
        self._audiences[filters] = audience
        for topic_filter in filters:
            self._trie.setdefault(topic_filter, {})[audience] = None
        self._forget()
        return audience

    def leave(self, cursor: C, audience: Audience[C]) -> None:
        audience.leave(cursor)
        self.moved.pop(cursor, None)
        self._changed[audience] = None
        if audience.cursors:
            return
        filters = audience.filters.filters
        del self._audiences[filters]
        for topic_filter in dict.fromkeys(filters):
            others = self._trie.get(topic_filter)
            assert others is not None
            del others[audience]
            if not others:
                self._trie.remove(topic_filter)
        self._forget()

    def write(self, stream: int, batch: WriteBatch) -> None:
        self.moved = {cursor: None for cursor in self.moved if cursor.has_left}
        changed, self._changed = self._changed, {}
        for audience in changed:
            audience.write(stream, batch)
