"""What the broker does for its streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from trunkline.streams.log import StreamStore

if TYPE_CHECKING:
    from trunkline.mqtt.message import Message
    from trunkline.mqtt.properties import Properties
    from trunkline.streams.consumer import ConsumerCursor
    from trunkline.streams.following import Following
    from trunkline.streams.registry import StreamRegistry
    from trunkline.streams.stream import Stream


class StreamHost(StreamStore, Protocol):
    registry: StreamRegistry
    following: Following

    @property
    def now(self) -> float:
        """In the store's time."""
        ...

    def message(self, topic: str, payload: bytes, qos: int, properties: Properties) -> Message: ...
    def publish(self, message: Message) -> int: ...
    def route(self, stream: Stream) -> None:
        """The stream gets the messages of its filters, which may have changed; of none, if it is deleted."""
        ...

    async def committed(self) -> None:
        """Wait until all that has changed until now is stored."""
        ...

    async def routed(self) -> None:
        """Wait until all that is published reaches the streams of its topics as they are now."""
        ...

    async def changed(self, cursor: ConsumerCursor, until: float) -> None:
        """Wait until there is something new for a consumer, or until a moment in the store's time."""
        ...
