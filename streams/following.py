"""Streams that take the messages of other streams of the broker: from sources, or as the mirror of one.

How far a stream has come in an origin is stored with its own messages, in the same commit: whatever ends the broker, a
message is taken once. A mirror has the sequences of its origin. Origins are streams with limits retention: what leaves
another one when it is acknowledged would be gone before it was taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from trunkline.mqtt.topics import matches
from trunkline.store import StoreError
from trunkline.streams.blocks import message_sizes
from trunkline.streams.config import Retention
from trunkline.streams.errors import MessageTooLarge, StreamRefuses
from trunkline.streams.search import ROUNDING, near_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.streams.blocks import Piece
    from trunkline.streams.log import StreamStore
    from trunkline.streams.registry import StreamRegistry
    from trunkline.streams.shapes import StreamOrigin
    from trunkline.streams.stream import Stream

#: Messages that are looked at before others get their turn.
STEP: Final = 256
#: Origins that a stream does not have any more, of which it still knows how far it had come.
MOST_FORMER: Final = 100
#: The user property of what comes from a source: the name of that stream, and the sequence there.
SOURCE: Final = "Nats-Stream-Source"


@dataclass(frozen=True, slots=True)
class OriginPlace:
    """How far a stream is in an origin."""

    origin: StreamOrigin
    #: The last sequence that it has looked at; 0 for none.
    sequence: int
    #: How many messages there are behind, at most.
    lag: int
    #: Why it gets nothing; empty if it does.
    trouble: str = ""
    #: There is no such stream.
    is_missing: bool = False


class Follower:
    """Takes the messages of one origin into a stream."""

    def __init__(self, registry: StreamRegistry, stream: Stream, origin: StreamOrigin) -> None:
        self._registry = registry
        self._stream = stream
        self.origin = origin
        self._key = origin.key
        self._transforms = [(change.source, change.transform()) for change in origin.changes]
        self._is_mirror = stream.config.mirror is not None

    @property
    def place(self) -> OriginPlace:
        source = self._registry.find(self.origin.stream)
        number, sequence = self._stream.places.get(self._key, (0, 0))
        if source is None:
            return OriginPlace(self.origin, sequence, 0, f"there is no stream {self.origin.stream!r}", True)
        if trouble := self._trouble(source):
            return OriginPlace(self.origin, sequence, 0, trouble)
        sequence = sequence if number == source.log.number else 0
        return OriginPlace(self.origin, sequence, source.log.last + 1 - max(sequence + 1, source.log.first))

    def _trouble(self, source: Stream) -> str:
        if source.config.retention is not Retention.LIMITS:
            return f"only streams with limits retention can be followed, not {source.name}"
        known = self._stream.places.get(self._key)
        if self._is_mirror and self._stream.log.last and known is not None and known[0] != source.log.number:
            return f"the stream {source.name} is another one than that which is mirrored"
        return ""

    async def step(self, store: StreamStore, now: Callable[[], float]) -> bool:
        """Take some messages. Returns whether there may be more at once.

        Raises:
            StoreError: the origin cannot be read.
        """
        source = self._source()
        if source is None:
            return False
        if self._stream.places.get(self._key, (0, 0))[0] != source.log.number:
            start = await self._start(source, store)
            if self._source() is not source:
                return True
            self._move(source.log.number, start)
        has_more, needed = self._copy(source, now())
        if needed is not None:
            await source.log.fetch(store, needed)
            if self._source() is source:  # nobody else had a turn since it was read: it is there
                has_more, _ = self._copy(source, now())
        return has_more

    def _source(self) -> Stream | None:
        """None: there is none that can be followed, or the stream does not follow it any more."""
        source, stream = self._registry.find(self.origin.stream), self._stream
        is_over = self._registry.find(stream.name) is not stream or self.origin not in stream.config.origins
        return None if source is None or is_over or self._trouble(source) else source

    def _copy(self, source: Stream, now: float) -> tuple[bool, int | None]:
        """Take some messages. Returns whether there may be more at once, and what has to be loaded before."""
        before = self._stream.places[self._key]
        outcome = self._copy_some(source, now)
        if self._stream.places[self._key] != before:
            self._stream.log.trim(now)
            self._stream.changed()
        return outcome

    def _copy_some(self, source: Stream, now: float) -> tuple[bool, int | None]:
        log = source.log
        for _ in range(STEP):
            sequence = log.next_live(self._stream.places[self._key][1] + 1)
            if sequence > log.last:
                return False, None
            piece = log.find(sequence)
            if piece is None:
                return True, sequence
            if not log.topics.is_rolled_up(piece.topic(sequence), sequence) and not self._take(piece, sequence, now):
                return False, None
            self._move(log.number, sequence)
        return True, None

    async def _start(self, source: Stream, store: StreamStore) -> int:
        """The sequence before the first one that is wanted."""
        origin, log = self.origin, source.log
        if origin.start_sequence:
            return max(origin.start_sequence - 1, 0)
        if origin.start_time is None or not log.messages:
            return log.first - 1
        return await near_time(log, store, origin.start_time) - 1

    def _take(self, piece: Piece, sequence: int, now: float) -> bool:
        """Returns False if the stream has no room for it now. What is too large for it is left out."""
        message, stream = piece.message(sequence), self._stream
        topic = self._wanted(message.topic)
        started = self.origin.start_time
        is_early = started is not None and piece.time + stream.log.behind < started - ROUNDING
        if topic is None or is_early or message.expires_at + stream.log.epoch <= now:
            return True
        taken = message.bare()
        taken.topic, taken.retain = stream.naming.topic(topic), False
        if not self._is_mirror:
            pairs = [pair for pair in message.properties.get("user_property", ()) if pair[0] != SOURCE]
            pairs.append((SOURCE, f"{self.origin.stream} {sequence}"))
            taken.properties = {**message.properties, "user_property": pairs}
        try:
            stream.check_room(taken)
        except MessageTooLarge:
            return True
        except StreamRefuses:
            return 0 < stream.config.max_bytes < message_sizes(taken, stream.config.measure)[0]  # it never has room
        if self._is_mirror and (gap := sequence - 1 - stream.log.last) > 0:
            stream.log.skip(gap, piece.time)
        stream.add(taken, piece.time if self._is_mirror else now)
        return True

    def _move(self, number: int, sequence: int) -> None:
        """The stream has come so far."""
        places, key = self._stream.places, self._key
        places.pop(key, None)  # the one that was moved last is the last one
        places[key] = (number, sequence)
        origins = self._stream.config.origins
        while len(places) > len(origins) + MOST_FORMER:
            wanted = {origin.key for origin in origins}
            del places[next(former for former in places if former not in wanted)]

    def _wanted(self, topic: str) -> str | None:
        """The topic that a message gets; None: it is not wanted."""
        if not self._transforms:
            chosen = self.origin.filter
            return topic if not chosen or matches(chosen, topic) else None
        for source, transform in self._transforms:
            if matches(source, topic):
                return topic if transform is None else transform(topic)
        return None


class Following:
    """All of it."""

    def __init__(self, registry: StreamRegistry) -> None:
        self._registry = registry
        self._followers: dict[str, list[Follower]] = {}
        #: By the name of an origin: the names of those that follow it.
        self._by_origin: dict[str, dict[str, None]] = {}
        #: Streams that have changed, and follow or are followed; and those that have more to take.
        self._changed: set[str] = set()
        self._unfinished: dict[str, None] = {}

    def look(self, stream: Stream) -> None:
        """It is made, changed or deleted."""
        for follower in self._followers.pop(stream.name, ()):
            others = self._by_origin.get(follower.origin.stream, {})
            others.pop(stream.name, None)
            if not others:
                self._by_origin.pop(follower.origin.stream, None)
        origins = stream.config.origins if self._registry.find(stream.name) is stream else ()
        if origins:
            self._followers[stream.name] = [Follower(self._registry, stream, origin) for origin in origins]
        for origin in origins:
            self._by_origin.setdefault(origin.stream, {})[stream.name] = None
        self.note(stream)

    def note(self, stream: Stream) -> None:
        """A stream has changed: those that follow it may have something to do, or it has."""
        if stream.name in self._by_origin or stream.name in self._followers:
            self._changed.add(stream.name)

    @property
    def is_due(self) -> bool:
        """Is there something to be done?"""
        return bool(self._changed or self._unfinished)

    def places(self, stream: Stream) -> list[OriginPlace]:
        """How far a stream is in each of its origins."""
        return [follower.place for follower in self._followers.get(stream.name, ())]

    async def step(self, store: StreamStore, now: Callable[[], float]) -> None:
        """Let each stream take some messages.

        Raises:
            StoreError: a stream cannot be read.
        """
        changed, self._changed = self._changed, set()
        due, self._unfinished = self._unfinished, {}
        for name in changed:
            due[name] = None
            due |= self._by_origin.get(name, {})
        for number, name in enumerate(due):
            try:
                for follower in self._followers.get(name, ()):
                    await store.pause()
                    if await follower.step(store, now):
                        self._unfinished[name] = None
            except StoreError:
                self._unfinished |= dict.fromkeys(list(due)[number:])
                raise
