"""What pulls and pushes need of the node, and of the clients that they are for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import trio

    from trunkline.actors import Scheduler
    from trunkline.mqtt.message import Message
    from trunkline.streams.consumer import ConsumerCursor
    from trunkline.streams.host import StreamHost
    from trunkline.streams.stream import Stream


class DeliveryHost(Protocol):
    @property
    def host(self) -> StreamHost: ...
    @property
    def scheduler(self) -> Scheduler: ...
    @property
    def pushing(self) -> trio.Lock:
        """Whoever has it publishes what a consumer pushes."""
        ...

    @property
    def epoch(self) -> float:
        """What the store's time has more than the node's."""
        ...

    def is_gone(self, stream: Stream, cursor: ConsumerCursor, /) -> bool:
        """Is the stream or the consumer deleted?"""
        ...

    def in_background(self, async_fn: Callable[..., Awaitable[object]], /, *args: object) -> None: ...
    def is_heard(self, topic: str, /) -> bool: ...
    def publish(self, message: Message, /) -> None: ...
    def forget(self, cursor: ConsumerCursor, /) -> None:
        """Nobody waits for it any more, or nobody gets what it pushes."""
        ...


class PullTarget(Protocol):
    """A subscription that gets the messages of a pull."""

    @property
    def maximum(self) -> int:
        """Messages that it gets in all; 0 for no limit."""
        ...

    @property
    def delivered(self) -> int: ...


class PullingClient(Protocol):
    """A client that pulls."""

    #: How many of its pulls wait for each consumer, by what wakes them.
    queues: dict[Any, int]

    @property
    def is_over(self) -> bool: ...
    @property
    def is_slow(self) -> bool:
        """It does not read what is sent to it as fast as that comes."""
        ...

    def soon(self, action: Callable[[], object], /) -> None:
        """Call `action` in a turn of the client's own."""
        ...

    def is_there(self, inbox: Any, /) -> bool:
        """Does it still subscribe so?"""
        ...

    def may_read(self, message: Message, /) -> bool:
        """If not, that is logged and counted."""
        ...

    def give(self, inbox: Any, /, subject: bytes, payload: bytes, reply: bytes, block: bytes) -> None: ...
