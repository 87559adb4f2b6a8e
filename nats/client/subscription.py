"""The messages of one subscription: they wait here until somebody takes them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, Self, TypeVar

import trio

from trunkline.nats.client.message import Message
from trunkline.nats.protocol import encoder

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from trunkline.nats.errors import NatsError, PermissionDenied
    from trunkline.nats.protocol.headers import Headers
    from trunkline.nats.protocol.operations import Deliver

#: Messages that a loop gets before other tasks have their turn.
MAX_RUN: Final = 256


#: What a subscription gives.
M = TypeVar("M", bound=Message)


class Owner(Protocol):
    def slow(self, subscription: BaseSubscription[Any]) -> None:
        """It drops messages."""

    def unsubscribe(self, subscription: BaseSubscription[Any], after: int = 0) -> None:
        """Nothing more is to come, or so many messages in all."""

    async def stop(self, subscription: BaseSubscription[Any]) -> None:
        """Nothing more is asked for; what has come until then is there when this returns."""

    def answer(
        self,
        subject: str,
        payload: bytes,
        *,
        reply: str = "",
        headers: Headers | Mapping[str, str] | None = None,
        is_last: bool = True,
    ) -> None:
        """Publish an answer, and at once if it is the last one for now."""


class BaseSubscription(Generic[M]):
    """Several tasks may take from it; each message goes to one of them. What finds no room, as nobody takes it, is
    dropped and counted."""

    def __init__(
        self,
        owner: Owner,
        subject: str,
        queue: str,
        sid: bytes,
        max_messages: int,
        max_bytes: int,
    ) -> None:
        self.subject = subject
        self.queue = queue
        self.sid = sid
        #: Messages that found no room.
        self.dropped = 0
        #: Messages that came.
        self.received = 0
        #: After so many it is over; 0 for no limit.
        self.max_received = 0
        self._owner = owner
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._bytes = 0
        self._is_slow = False
        self._waiting: deque[Deliver] = deque()
        self._lot = trio.lowlevel.ParkingLot()
        self._run = 0
        #: Nothing more is asked for, and nothing more comes, perhaps for this reason.
        self.is_stopped = self.is_over = False
        self._failure: NatsError | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.subject!r}, {len(self)} messages wait>"

    def __len__(self) -> int:
        """Messages that wait."""
        return len(self._waiting)

    # From the connection

    def again(self) -> Iterable[bytes]:
        """What a new connection is asked for."""
        if not self.is_stopped:
            yield encoder.subscribe(self.subject.encode(), self.sid, self.queue.encode())
            if self.max_received:
                yield encoder.unsubscribe(self.sid, self.max_received - self.received)

    def put(self, wire: Deliver) -> None:
        self.received += 1
        size = len(wire.payload) + len(wire.block)
        has_room = not self._waiting or self._bytes + size <= self._max_bytes  # what is larger by itself waits alone
        if len(self._waiting) >= self._max_messages or not has_room:
            self.dropped += 1
            if not self._is_slow:
                self._is_slow = True
                self._owner.slow(self)
        else:
            self._bytes += size
            self._waiting.append(wire)
            if self._lot:
                self._lot.unpark()
        if self.received == self.max_received:
            self._owner.unsubscribe(self)

    def denied(self, error: PermissionDenied) -> None:
        if not error.is_publishing and (error.subject, error.queue) == (self.subject, self.queue):
            self.end(error)

    def end(self, failure: NatsError | None = None) -> None:
        """Nothing more comes. What is there can still be taken."""
        self.is_over = True
        self._failure = failure
        self._lot.unpark_all()

    # For the user

    async def receive(self) -> M:
        """The next message.

        Raises:
            trio.EndOfChannel: there are no more.
            PermissionDenied: there are none, as the client may not subscribe to this.
            NatsError: there are no more, as the client has given up.
        """
        raise NotImplementedError

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> M:
        try:
            return await self.receive()
        except trio.EndOfChannel:
            raise StopAsyncIteration from None

    async def drain(self) -> None:
        """Nothing more is asked for, and what the server has sent until then is there when this returns."""
        if not self.is_over:
            self.is_stopped = True
            try:
                await self._owner.stop(self)
            finally:
                self._owner.unsubscribe(self)

    # For those that are derived

    async def _take(self) -> Deliver:
        self._run += 1
        if self._run >= MAX_RUN or not self._waiting:
            self._run = 0
            await self._some()
        return self._pop()

    def _pop(self) -> Deliver:
        wire = self._waiting.popleft()
        self._bytes -= len(wire.payload) + len(wire.block)
        if self._is_slow and not self._waiting:
            self._is_slow = False
        return wire

    async def _some(self) -> None:
        """Until there is a message."""
        if self._waiting or self.is_over:
            await trio.lowlevel.checkpoint()
        while not self._waiting:
            self._check()
            await self._lot.park()

    def _check(self) -> None:
        """Before it waits for a message."""
        if self.is_over:
            raise self._failure or trio.EndOfChannel

    def answer(self, subject: str, payload: bytes, *, headers: Headers | Mapping[str, str] | None = None) -> None:
        """For messages."""
        self._owner.answer(subject, payload, headers=headers, is_last=not self._waiting)


class Subscription(BaseSubscription[Message]):
    """The messages of a subject: `async for message in subscription`."""

    async def receive(self) -> Message:
        return Message(await self._take(), self)

    def unsubscribe(self, *, after: int = 0) -> None:
        """Nothing more comes; or with `after` so many messages in all, counted from the beginning."""
        self._owner.unsubscribe(self, after)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.unsubscribe()
