"""Retained messages: the last one of each topic, found by topic filter.

Three structures: a dict for topics that are known, a tree for filters with wildcards, a sorted list of topics for
pages. Deadlines of the messages that expire stand in a sorted list of their own.
"""

from collections.abc import Callable, Iterator
from enum import Enum
from math import inf

from sortedcontainers import SortedList

from trunkline.mqtt.message import Message
from trunkline.mqtt.topics import BRIDGE_STATES, matches
from trunkline.mqtt.weight import OVERHEAD
from trunkline.router.table import has_wildcard
from trunkline.router.topictree import TopicTree


class RetainResult(Enum):
    """The outcome of retaining a message."""

    STORED = "stored"
    #: Stored, in place of an older one of the same topic.
    REPLACED = "replaced"
    #: An empty payload has deleted the message of its topic.
    DELETED = "deleted"
    #: An empty payload found nothing to delete.
    ABSENT = "absent"
    #: Not stored: it is larger than allowed. The older one of the topic is deleted all the same.
    TOO_LARGE = "too large"
    #: Not stored: there are as many messages or bytes as allowed. Here, too, the older one of the topic is deleted.
    FULL = "full"

    @property
    def refused(self) -> bool:
        return self in (RetainResult.TOO_LARGE, RetainResult.FULL)


class Retained:
    """A message that is kept for its topic."""

    __slots__ = ("deadline", "message", "sequence", "version", "weight")

    def __init__(self, message: Message, deadline: float, sequence: int, weight: int, version: int) -> None:
        self.message = message
        #: When it expires; infinite if it does not.
        self.deadline = deadline
        #: Its number in the order of storing.
        self.sequence = sequence
        self.weight = weight
        #: Which of several shards' messages is the newest; 0 where there is one shard.
        self.version = version


class RetainedStore:
    """The retained messages of one node, in memory. A limit of 0 means no limit; what is the broker's own
    (`is_own`) has none."""

    def __init__(
        self, *, max_messages: int = 0, max_bytes: int = 0, max_message_size: int = 0, expiry_interval: float = 0
    ) -> None:
        self.limit(
            max_messages=max_messages,
            max_bytes=max_bytes,
            max_message_size=max_message_size,
            expiry_interval=expiry_interval,
        )
        #: Weight and number of the messages that the limits apply to.
        self.byte_size = 0
        self.limited = 0
        #: Number of the newest message. Only these numbers tell which of two messages was stored first, and whether a
        #: message was stored before a client subscribed: a message id dates from the PUBLISH, which may have waited for
        #: its PUBREL.
        self.sequence = 0
        #: Called with the topic of each message that is stored, replaced or deleted, but for the broker's own, and the
        #: weight of the one that is there now.
        self.changed: Callable[[str, int], object] | None = None
        self._kept: dict[str, Retained] = {}
        self._tree = TopicTree()
        self._topics: SortedList[str] = SortedList()
        # Only of messages that expire.
        self._queue: SortedList[tuple[float, str]] = SortedList()

    def limit(self, *, max_messages: int, max_bytes: int, max_message_size: int, expiry_interval: float) -> None:
        """What is kept already stays, above a limit too."""
        self.max_messages = max_messages
        self.max_bytes = max_bytes
        self.max_message_size = max_message_size
        #: Seconds after which any message expires, if its publisher has not asked for less.
        self.expiry_interval = expiry_interval

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[Retained]:
        """All, in no order, those of `$SYS` and those that have expired as well."""
        return iter(list(self._kept.values()))

    def store(self, message: Message, now: float, version: int = 0) -> RetainResult:
        """Keep the message for its topic, or delete what is there if its payload is empty."""
        deadline = message.expires_at
        if self.expiry_interval > 0:
            deadline = min(deadline, now + self.expiry_interval)
        return self._store(message, deadline, version)

    def restore(self, message: Message, deadline: float, sequence: int, version: int = 0) -> RetainResult:
        """Keep a message that an earlier life of this store has kept, with the number that it had."""
        self.sequence = max(self.sequence, sequence)
        return self._store(message, deadline, version, sequence)

    def _store(self, message: Message, deadline: float, version: int, sequence: int = 0) -> RetainResult:
        topic = message.topic
        if not message.payload:
            # [MQTT-3.3.1-6], [MQTT-3.3.1-7]
            return RetainResult.ABSENT if self.delete(topic) is None else RetainResult.DELETED
        weighs = message.weight
        old = self._kept.get(topic)
        if not is_own(topic):
            refused = self._refusal(weighs, old)
            if refused is not None:
                # The older one must be replaced [MQTT-3.3.1-5]; it is no longer the topic's current value for anybody.
                self.delete(topic)
                return refused
            self.byte_size += weighs - (0 if old is None else old.weight)
            self.limited += old is None
            if self.changed is not None:
                self.changed(topic, weighs)
        if not sequence:
            self.sequence = sequence = self.sequence + 1
        self._kept[topic] = Retained(message, deadline, sequence, weighs, version)
        if old is None:
            self._tree.add(topic)
            self._topics.add(topic)
        elif old.deadline < inf:
            self._queue.remove((old.deadline, topic))
        if deadline < inf:
            self._queue.add((deadline, topic))
        return RetainResult.STORED if old is None else RetainResult.REPLACED

    def _refusal(self, weighs: int, old: Retained | None) -> RetainResult | None:
        if 0 < self.max_message_size < weighs - OVERHEAD:
            return RetainResult.TOO_LARGE
        if old is None and 0 < self.max_messages <= self.limited:
            return RetainResult.FULL
        if 0 < self.max_bytes < self.byte_size + weighs - (0 if old is None else old.weight):
            return RetainResult.FULL
        return None

    def delete(self, topic: str) -> Message | None:
        """The message that was there."""
        old = self._kept.pop(topic, None)
        if old is None:
            return None
        if not is_own(topic):
            self.byte_size -= old.weight
            self.limited -= 1
            if self.changed is not None:
                self.changed(topic, 0)
        self._tree.discard(topic)
        self._topics.discard(topic)
        if old.deadline < inf:
            self._queue.remove((old.deadline, topic))
        return old.message

    def kept(self, topic: str) -> Retained | None:
        """What is kept for one topic, even if it has expired and is not deleted yet."""
        return self._kept.get(topic)

    def find(self, topic: str, now: float) -> Retained | None:
        """The stored entry of one topic, unless it has expired."""
        kept = self._kept.get(topic)
        return None if kept is None or kept.deadline <= now else kept

    def get(self, topic: str, now: float) -> Message | None:
        """The message of one topic, unless it has expired."""
        kept = self.find(topic, now)
        return None if kept is None else kept.message

    def deadline(self, topic: str) -> float:
        """When the message of a topic expires; infinite if it does not."""
        kept = self._kept.get(topic)
        return inf if kept is None else kept.deadline

    def may_match(self, filter: str) -> bool:
        """A quick check whether anything may match."""
        return self._tree.may_match(filter) if has_wildcard(filter) else filter in self._kept

    def match(self, filter: str, now: float) -> Iterator[Retained | None]:
        """The messages of the topics that match, found lazily, and None now and then, so that the caller can pause a
        search that finds little.

        The store may change in between: each message is the newest of its topic when it comes, those deleted meanwhile
        do not come, those of new topics may or may not. `now` is the time of the start; a caller that waits in between
        for long looks at the deadline itself.
        """
        if not has_wildcard(filter):
            yield self.find(filter, now)
            return
        kept = self._kept
        for topic in self._tree.match(filter):
            found = None if topic is None else kept.get(topic)
            yield None if found is None or found.deadline <= now else found

    @property
    def next_deadline(self) -> float:
        """When the next message expires, for `sweep`; infinite if none does."""
        return self._queue[0][0] if self._queue else inf

    def sweep(self, now: float, limit: int = 1000) -> list[Message]:
        """Delete what has expired, no more than `limit` at a time. Returns what was deleted."""
        expired: list[Message] = []
        while self._queue and len(expired) < limit:
            deadline, topic = self._queue[0]
            if deadline > now:
                break
            message = self.delete(topic)
            assert message is not None
            expired.append(message)
        return expired

    def page(
        self, now: float, *, after: str = "", limit: int = 100, filter: str = "", scan: int = 10_000
    ) -> tuple[list[Message], str | None]:
        """The next messages behind the topic `after`, in order of topic, and the cursor of the next page, None at the
        end. Without a filter all messages count.

        It looks at no more than `scan` topics, so a page may be short, even empty, and yet not be the last.
        """
        prefix = filter[: min([at for at in (filter.find("+"), filter.find("#"), len(filter)) if at >= 0])]
        # `a/#` matches `a` too.
        prefix = prefix.removesuffix("/")
        start = max(after, prefix)
        page: list[Message] = []
        seen = 0
        for topic in self._topics.irange(start, inclusive=(start > after, True)):
            if not topic.startswith(prefix):
                return page, None
            if len(page) == limit or seen == scan:
                return page, after
            seen += 1
            after = topic
            if filter and not matches(filter, topic):  # [MQTT-4.7.2-1]
                continue
            message = self.get(topic, now)
            if message is not None:
                page.append(message)
        return page, None


def is_own(topic: str) -> bool:
    """Only the broker publishes there."""
    return topic[:5] == "$SYS/" and not topic.startswith(BRIDGE_STATES)
