"""Messages, and the subscriptions that give them, for any thread."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

import trio

from trunkline.actors.trio_thread import Forked
from trunkline.nats.client.message import Message as TrioMessage
from trunkline.nats.client.subscription import BaseSubscription
from trunkline.nats.client.subscription import Subscription as TrioSubscription
from trunkline.nats.errors import ClientClosed
from trunkline.nats.sync.handover import Handover

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trunkline.actors.context_thread import ContextThread
    from trunkline.nats.protocol.headers import Headers, Status

T = TypeVar("T", bound=TrioMessage)
S = TypeVar("S", bound=BaseSubscription[Any])
#: What a subscription gives.
M = TypeVar("M")


class Message:
    """One that has come."""

    __slots__ = ("_message", "_thread")

    def __init__(self, message: TrioMessage, thread: ContextThread) -> None:
        self._message = message
        self._thread = thread

    @property
    def payload(self) -> bytes:
        return self._message.payload

    @property
    def size(self) -> int:
        """Bytes, with those of the headers."""
        return self._message.size

    @property
    def subject(self) -> str:
        return self._message.subject

    @property
    def reply(self) -> str:
        """Where an answer is to go; empty if none is asked for."""
        return self._message.reply

    @property
    def headers(self) -> Headers:
        """
        Raises:
            BadHeaders: what came is no block of headers.
        """
        return self._message.headers

    @property
    def status(self) -> Status | None:
        """What the server says in place of a message.

        Raises:
            BadHeaders: what came is no block of headers.
        """
        return self._message.status

    def respond(self, payload: bytes = b"", *, headers: Headers | Mapping[str, str] | None = None) -> None:
        """
        Raises:
            NatsError: no answer is asked for, or at what is no subject.
            BufferFull, ClientClosed: it cannot be sent.
        """
        self._thread.call(self._message.respond, payload, headers=headers)

    def __repr__(self) -> str:
        return repr(self._message)


class Messages(Generic[S, T, M]):
    """`for message in subscription`. Several threads may loop over one subscription; each message goes to one of
    them. When the client is closed, loops end."""

    #: Several may be laid down: they need no acknowledgement.
    _many: ClassVar[bool] = False

    def __init__(self, subscription: S, thread: ContextThread) -> None:
        self._subscription = subscription
        self._thread = thread
        self._laid_down: Handover[M] = Handover(thread, self._receive, many=self._many)

    @property
    def subject(self) -> str:
        return self._subscription.subject

    @property
    def queue(self) -> str:
        return self._subscription.queue

    @property
    def dropped(self) -> int:
        """Messages that found no room."""
        return self._subscription.dropped

    @property
    def received(self) -> int:
        """Messages that came."""
        return self._subscription.received

    def __len__(self) -> int:
        """Messages that wait."""
        return len(self._laid_down) + len(self._subscription)

    def __repr__(self) -> str:
        return repr(self._subscription)

    def receive(self, *, timeout: float | None = None) -> M:
        """The next message.

        Raises:
            TimeoutError: none came within so many seconds.
            trio.EndOfChannel: there are no more.
            NatsError: there are no more, as the client has given up.
        """
        try:
            return self._laid_down.pick_up(timeout)
        except ClientClosed:
            raise trio.EndOfChannel from None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> M:
        try:
            return self.receive()
        except trio.EndOfChannel:
            raise StopIteration from None

    def drain(self, *, timeout: float | None = None) -> None:
        """Nothing more is asked for, and what the server has sent until then is there when this returns."""
        self._thread.run(timeout, self._subscription.drain)

    async def _receive(self) -> M:
        return self._of(await self._subscription.receive())

    # For those that are derived

    def _of(self, message: T) -> M:
        """The message as threads see it."""
        raise NotImplementedError


class Subscription(Messages[TrioSubscription, TrioMessage, Message]):
    """The messages of a subject. Leaving its block (`with`) unsubscribes."""

    _many = True

    def unsubscribe(self, *, after: int = 0) -> None:
        """Nothing more comes; or with `after` so many messages in all, counted from the beginning."""
        self._thread.call(self._subscription.unsubscribe, after=after)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ClientClosed, Forked):
            self.unsubscribe()

    def _of(self, message: TrioMessage) -> Message:
        return Message(message, self._thread)
