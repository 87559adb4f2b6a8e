"""Whether there is room for messages that a stream is to take all together, or none of them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from trunkline.streams.blocks import message_sizes
from trunkline.streams.config import Discard
from trunkline.streams.errors import StreamFull, StreamRefuses
from trunkline.streams.stream import MAX_UNWRITTEN

if TYPE_CHECKING:
    from trunkline.mqtt.message import Message
    from trunkline.streams.stream import Stream


class Together:
    """Messages that are looked at one after the other, as if those before had been taken, and nothing had gone."""

    def __init__(self, stream: Stream, weight: int) -> None:
        """`weight` is that of all of them.

        Raises:
            StreamRefuses: they have to wait for the store.
        """
        if stream.log.unwritten_weight + weight > MAX_UNWRITTEN:
            stream.changed()  # the next commit may show that the store works again
            raise StreamRefuses(f"the stream {stream.name!r} has no room for so much before it is stored")
        self._stream = stream
        self.count = self._byte_size = 0
        self._topics: Counter[str] = Counter()

    def add(self, message: Message) -> None:
        """A message with the topic under which the stream keeps it.

        Raises:
            MessageTooLarge, StreamFull, StreamSealed
            StreamRefuses: it has to wait for the store.
        """
        stream = self._stream
        stream.check_room(message)
        self.count += 1
        if stream.config.discard is Discard.NEW:
            self._check_limits(message)

    def _check_limits(self, message: Message) -> None:
        log, config, name, topic = self._stream.log, self._stream.config, self._stream.name, message.topic
        self._byte_size += message_sizes(message, config.measure)[0]
        self._topics[topic] += 1
        if not log.has_room(self.count, 0):
            raise StreamFull(f"the stream {name!r} has no room for so many messages", "messages")
        if not log.has_room(0, self._byte_size):
            raise StreamFull(f"the stream {name!r} has no room for so many bytes", "bytes")
        figures = log.topics.get(topic) if config.discard_new_per_topic else None
        before = 0 if figures is None else figures.count
        if config.discard_new_per_topic and before + self._topics[topic] > config.max_messages_per_topic:
            raise StreamFull(f"the stream {name!r} has no room for so many messages of a topic", "topic")
