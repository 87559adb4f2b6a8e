"""What streams take is published once more, where they are configured so: when it is stored, and at most once.

Subscribers of either protocol get it. What has waited too long because more comes than can be published is dropped, and
counted: publishers to the stream do not wait for that.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final, cast

import trio

from trunkline.broker.metrics import DropReason
from trunkline.mqtt.message import Message
from trunkline.streams.filters import TopicFilters
from trunkline.streams.search import next_match

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.broker.session.services import Services
    from trunkline.mqtt.properties import Properties
    from trunkline.mqtt.publication import Publication
    from trunkline.streams.log import StreamStore
    from trunkline.streams.shapes import Republication
    from trunkline.streams.stream import Stream
    from trunkline.streams.transforms import TopicTransform

#: Messages that are published before others get their turn.
STEP: Final = 64
#: Messages that wait, and their bytes, roughly.
MOST: Final = 100_000
MOST_BYTES: Final = 64 << 20


@dataclass(slots=True)
class _Again:
    """A message to be published once more."""

    stream: Stream
    message: Message
    topic: str
    sequence: int
    time: float
    headers_only: bool
    #: The sequence of the message of its topic before it; 0 for none. Where that is not known, none is before `low` or
    #: behind `last`.
    last: int
    low: int | None


class StreamWatcher:
    """Of one stream."""

    def __init__(self, stream: Stream, again: Republication, queue: Callable[[_Again], None]) -> None:
        self.republication = again
        self._stream = stream
        self._transform = cast("TopicTransform", again.change.transform())
        self._queue = queue

    def take(self, first: int, publication: Publication, now: float) -> None:
        """Messages come, and are not there yet."""
        topics, before = self._stream.log.topics, dict[str, int]()
        for sequence, message in enumerate(publication.messages, first):
            topic, low = self._transform(message.topic), None
            last = before.get(message.topic)
            if last is None and (figures := topics.get(message.topic)) is not None:
                last, low = figures.last, None if figures.exact else figures.first
            before[message.topic] = sequence
            if topic is not None:
                headers_only = self.republication.headers_only
                self._queue(_Again(self._stream, message, topic, sequence, now, headers_only, last or 0, low))


class Republishing:
    def __init__(self, services: Services, subject_of: Callable[[str], str], wake: Callable[[], None]) -> None:
        self._services = services
        self._subject_of = subject_of
        self._wake = wake
        self._watchers: dict[Stream, StreamWatcher] = {}
        #: Of the commit that is being gathered, and of those before.
        self._gathering: list[_Again] = []
        self._ready: deque[_Again] = deque()
        self._count = self._weight = 0

    def look(self, stream: Stream, *, is_there: bool) -> None:
        """It is made, changed or deleted."""
        again, known = stream.config.republish if is_there else None, self._watchers.pop(stream, None)
        if known is not None:
            stream.watchers.remove(known.take)
        if again is not None:
            watcher = self._watchers[stream] = StreamWatcher(stream, again, self._queue)
            stream.watchers.append(watcher.take)

    def _queue(self, again: _Again) -> None:
        weight = again.message.weight
        if self._count >= MOST or self._weight + weight > MOST_BYTES:
            publisher = self._services.publisher_of(again.message)
            self._services.dropped(publisher, again.message, DropReason.QUEUE_FULL, "to be published once more")
            return
        self._count += 1
        self._weight += weight
        if not self._gathering:
            committer = self._services.committer
            if committer is None:
                self._ready.append(again)  # the keeper is told that the stream has changed
                return
            committer.after_commit(partial(self._stored, self._gathering))
        self._gathering.append(again)

    def gathered(self) -> None:
        """What comes from here on is in another commit."""
        self._gathering = []

    def _stored(self, some: list[_Again]) -> None:
        self._ready.extend(some)
        self._wake()

    @property
    def is_due(self) -> bool:
        """Is there something to be published?"""
        return bool(self._ready)

    async def step(self, store: StreamStore) -> None:
        """Publish some of it.

        Raises:
            StoreError: a stream cannot be read; it goes on with the message behind.
        """
        for _ in range(min(STEP, len(self._ready))):
            again = self._ready.popleft()
            self._count -= 1
            self._weight -= again.message.weight
            if again.low is not None:
                again.last = await _last_before(again, store)
            now = trio.current_time()
            self._services.pubsub.publish(self._services.stamp(self._made(again), now), now)

    def _made(self, again: _Again) -> Message:
        origin, stream = again.message, again.stream
        time = datetime.fromtimestamp(again.time + stream.log.behind, UTC)
        own = {
            "Nats-Stream": stream.name,
            "Nats-Subject": self._subject_of(origin.topic),
            "Nats-Sequence": str(again.sequence),
            "Nats-Time-Stamp": f"{time:%Y-%m-%dT%H:%M:%S.%f}Z",
            "Nats-Last-Sequence": str(again.last),
        }
        payload = origin.payload
        if again.headers_only:
            own["Nats-Msg-Size"], payload = str(len(payload)), b""
        pairs = [pair for pair in origin.properties.get("user_property", ()) if pair[0] not in own]
        properties = {**origin.properties, "user_property": [*pairs, *own.items()]}
        properties.pop("response_topic", None)  # its publisher has asked others
        properties.pop("message_expiry_interval", None)
        return Message(again.topic, payload, 0, properties=cast("Properties", properties))


async def _last_before(again: _Again, store: StreamStore) -> int:
    """Whatever came since: the last message of the topic before this one; 0 if there is none any more."""
    found, low = 0, again.low or 0
    filters = TopicFilters((again.message.topic,))
    while (following := await next_match(again.stream.log, store, filters, low, again.last + 1)) is not None:
        found = following[0]
        low = found + 1
    return found
