"""Messages, and the subscriptions that give them, for any thread.

The client's thread takes messages from a subscription and lays them down here, where the threads that want them pick
them up. So a call that is interrupted, or whose time is over, takes none.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

import trio

from trunkline.actors.trio_thread import limit
from trunkline.nats.client.message import Message as TrioMessage
from trunkline.nats.client.subscription import BaseSubscription
from trunkline.nats.client.subscription import Subscription as TrioSubscription
from trunkline.nats.errors import ClientClosed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trunkline.actors.context_thread import ContextThread
    from trunkline.nats.protocol.headers import Headers, Status

#: Messages that are laid down at once: crossing threads costs more than they do.
MAX_TAKEN: Final = 256

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

    def __init__(self, subscription: S, thread: ContextThread) -> None:
        self._subscription = subscription
        self._thread = thread
        self._taken: deque[T] = deque()
        self._taking = trio.Lock()

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
        return len(self._taken) + len(self._subscription)

    def __repr__(self) -> str:
        return repr(self._subscription)

    def receive(self, *, timeout: float | None = None) -> M:
        """The next message.

        Raises:
            TimeoutError: none came within so many seconds.
            trio.EndOfChannel: there are no more.
            NatsError: there are no more, as the client has given up.
        """
        until = None if timeout is None else monotonic() + limit(timeout)
        while True:
            try:
                return self._of(self._taken.popleft())
            except IndexError:  # none is there, or another thread was faster
                left = None if until is None else max(0.0, until - monotonic())
            try:
                self._thread.run(left, self._take)
            except TimeoutError:
                if not self._taken:
                    raise TimeoutError(f"no message within {timeout:g} s") from None
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

    # For those that are derived

    def _of(self, message: T) -> M:
        """The message as threads see it."""
        raise NotImplementedError

    async def _take(self) -> None:
        """In the client's thread: lay down a message. One that is there is, also when there is no time to wait."""
        try:
            self._taking.acquire_nowait()
        except trio.WouldBlock:
            await self._taking.acquire()
        try:
            if not self._taken:
                await self._bring()
        finally:
            self._taking.release()

    async def _bring(self) -> None:
        self._taken.append(await self._subscription.receive())


class Subscription(Messages[TrioSubscription, TrioMessage, Message]):
    """The messages of a subject. Leaving its block (`with`) unsubscribes."""

    def unsubscribe(self, *, after: int = 0) -> None:
        """Nothing more comes; or with `after` so many messages in all, counted from the beginning."""
        self._thread.call(self._subscription.unsubscribe, after=after)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ClientClosed):
            self.unsubscribe()

    def _of(self, message: TrioMessage) -> Message:
        return Message(message, self._thread)

    async def _bring(self) -> None:
        await super()._bring()
        while len(self._subscription) and len(self._taken) < MAX_TAKEN:
            self._taken.append(await self._subscription.receive())
