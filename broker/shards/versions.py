"""Which of the retained messages of a topic is the newest, whatever way they came to a shard.

A version is the time in microseconds and the number of the shard, and greater than every one that its shard has seen:
whoever has seen a message publishes a newer one, whatever clocks say. Of two that nobody saw before the other, all
shards keep the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trunkline.mqtt.message import Message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trunkline.router import RetainedStore

#: Between the versions of two messages in a row: shards have numbers below it.
STEP: Final = 256
#: Topics that are remembered of each other shard: it may not have stored its last messages when it ends.
MAX_RECENT: Final = 4096
#: Deletions that are remembered for a message that is older, and on its way.
MAX_DELETED: Final = 100_000


class Versions:
    """Of one shard."""

    __slots__ = ("_deleted", "_last", "_number", "_recent", "_retained")

    def __init__(self, number: int, retained: RetainedStore) -> None:
        self._number = number
        self._retained = retained
        self._last = 0
        self._deleted: dict[str, int] = {}
        #: By shard, the topics of its last messages.
        self._recent: dict[int, dict[str, None]] = {}

    def restored(self) -> None:
        """There are retained messages now that an earlier life has stored."""
        found = [(kept.version, kept.message.topic) for kept in self._retained if kept.version]
        for version, topic in sorted(found):
            self._last = version
            self._remember(version % STEP, topic)

    def next(self, wall: float, count: int) -> int:
        """The first of `count` versions, `STEP` apart."""
        first = max(self._last // STEP + 1, int(wall * 1_000_000)) * STEP + self._number
        self._last = first + (count - 1) * STEP
        return first

    def of(self, topic: str) -> int:
        """Of what is kept, or of the deletion."""
        kept = self._retained.kept(topic)
        return self._deleted.get(topic, 0) if kept is None else kept.version

    def is_newest(self, message: Message, version: int) -> bool:
        """Whether this is the newest message of its topic so far."""
        self._last = max(self._last, version)
        topic, deleted = message.topic, self._deleted
        if version <= self.of(topic):
            return False
        self._remember(version % STEP, topic)
        deleted.pop(topic, None)
        if not message.payload:
            deleted[topic] = version
            if len(deleted) > MAX_DELETED:
                del deleted[next(iter(deleted))]
        return True

    def _remember(self, shard: int, topic: str) -> None:
        if shard == self._number:
            return
        recent = self._recent.setdefault(shard, {})
        recent.pop(topic, None)
        recent[topic] = None
        if len(recent) > MAX_RECENT:
            del recent[next(iter(recent))]

    def recent_of(self, shard: int) -> Iterator[tuple[Message, int]]:
        """Its last messages that are the newest of their topics, and their versions. A deletion is an empty one."""
        for topic in self._recent.get(shard, ()):
            message, version = self.newest(topic)
            if version % STEP == shard:
                yield message, version

    def newest(self, topic: str) -> tuple[Message, int]:
        """The message of a topic and its version. That of a deletion is an empty one, and 0 if nothing is known."""
        kept = self._retained.kept(topic)
        if kept is None:
            return Message(topic, b"", retain=True), self._deleted.get(topic, 0)
        return kept.message, kept.version
