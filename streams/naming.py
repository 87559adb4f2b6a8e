"""Under which topics a stream keeps the messages that come."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trunkline.mqtt.message import Message
    from trunkline.streams.config import StreamConfig


class Naming:
    def __init__(self, config: StreamConfig) -> None:
        self._transform = None if config.transform is None else config.transform.transform()
        #: Whether topics may change.
        self.changes = self._transform is not None

    def topic(self, topic: str) -> str:
        """Of a message that comes with this one."""
        return (topic if self._transform is None else self._transform(topic)) or topic

    def message(self, message: Message) -> Message:
        """With its topic in the stream. Others get it as it came."""
        topic = self.topic(message.topic)
        if topic != message.topic:
            message = message.bare()
            message.topic = topic
        return message
