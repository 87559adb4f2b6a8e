"""Subscriptions to consumers, and their messages, for any thread. Where nothing else is said, they do and raise what
those of `trunkline.nats.client.jetstream` do."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from trunkline.nats.client.jetstream.message import JetStreamMessage as TrioMessage
from trunkline.nats.client.jetstream.ordered import OrderedSubscription as TrioOrdered
from trunkline.nats.client.jetstream.pull import PullSubscription as TrioPull
from trunkline.nats.client.jetstream.push import PushSubscription as TrioPush
from trunkline.nats.client.jetstream.subscribed import ConsumerSubscription
from trunkline.nats.errors import NatsError
from trunkline.nats.sync.handover import Block
from trunkline.nats.sync.messages import Message, Messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractAsyncContextManager

    from trunkline.actors.context_thread import ContextThread
    from trunkline.nats.jetstream.replies import ConsumerInfo
    from trunkline.nats.protocol.acknowledging import Origin

C = TypeVar("C", bound=ConsumerSubscription)


class JetStreamMessage(Message):
    """Acknowledge it once, in any thread: `ack`, `nak` or `term`. Raises as the message of the client on trio does."""

    __slots__ = ()

    _message: TrioMessage

    @property
    def origin(self) -> Origin:
        """Where it comes from: stream and consumer, sequences, how often it was delivered.

        Raises:
            NotJetStream: no consumer has sent it.
        """
        return self._message.origin

    @property
    def is_settled(self) -> bool:
        """It was acknowledged, or handed back."""
        return self._message.is_settled

    def ack(self) -> None:
        """It is done."""
        self._thread.call(self._message.ack)

    def nak(self, delay: float = 0.0) -> None:
        """Deliver it again, at once or in so many seconds."""
        self._thread.call(self._message.nak, delay)

    def term(self, reason: str = "") -> None:
        """Never deliver it again, although it is not done. Servers since 2.10 tell the reason in an advisory."""
        self._thread.call(self._message.term, reason)

    def in_progress(self) -> None:
        """More time is needed: the consumer's `ack_wait` begins anew."""
        self._thread.call(self._message.in_progress)

    def ack_sync(self, *, timeout: float = 5.0) -> None:
        """It is done, and the server knows of that when this returns.

        Raises:
            RequestTimeout: it may not, after so many seconds. The message can be acknowledged once more.
            NoResponders: the consumer is gone.
        """

        async def ack_sync() -> None:
            await self._message.ack_sync(timeout=timeout)

        self._thread.run(None, ack_sync)


class ConsumerMessages(Messages[C, TrioMessage, JetStreamMessage], Block):
    """What subscriptions to consumers share. Leaving the block (`with`), or `close`, ends it as the end of its block
    does on trio."""

    def __init__(self, subscribing: AbstractAsyncContextManager[C], subscription: C, thread: ContextThread) -> None:
        super().__init__(subscription, thread)
        Block.__init__(self, subscribing, thread)

    @property
    def stream(self) -> str:
        return self._subscription.stream

    @property
    def consumer(self) -> str:
        return self._subscription.consumer

    @property
    def info(self) -> ConsumerInfo | None:
        """The consumer as it was when the subscription began; None: it was not looked up."""
        return self._subscription.info

    def unsubscribe(self, *, timeout: float | None = None) -> None:
        """Nothing more comes. A consumer that was created for this is deleted.

        Raises:
            ApiError, RequestTimeout, NatsError: it could not be deleted.
        """
        try:
            self._thread.run(timeout, self._subscription.unsubscribe)
        finally:
            self._hand_back()

    def close(self) -> None:
        """As the end of the block does it. It does not wait for the server."""
        super().close()
        self._hand_back()

    def _hand_back(self) -> None:
        """What no call has picked up goes to others at once, and not to this subscription again."""
        with suppress(NatsError):
            taken = self._laid_down.taken
            while taken:
                with suppress(IndexError):  # another thread was faster
                    taken.popleft().nak()

    def _of(self, message: TrioMessage) -> JetStreamMessage:
        return JetStreamMessage(message, self._thread)


class PushSubscription(ConsumerMessages[TrioPush]):
    """Messages that are pushed."""


class OrderedSubscription(ConsumerMessages[TrioOrdered]):
    """All messages in the order of the stream, each once."""


class PullSubscription(ConsumerMessages[TrioPull]):
    """`fetch` and `next` ask for messages when they are called, a loop some ahead of itself."""

    def next(self, *, expires: float = 5.0, timeout: float | None = None) -> JetStreamMessage | None:
        """One message; None if none comes within `expires` seconds. Raises as `fetch` does."""
        found = self.fetch(1, expires=expires, timeout=timeout)
        return found[0] if found else None

    def fetch(
        self,
        max_messages: int,
        *,
        expires: float = 5.0,
        max_bytes: int = 0,
        no_wait: bool = False,
        timeout: float | None = None,
    ) -> list[JetStreamMessage]:
        """So many messages, or those that come within so many seconds, or those that are there with `no_wait`. A fetch
        that is interrupted, or ended by `timeout`, takes nothing: what comes for it is there for the next one.

        Raises:
            StatusError: the server refuses, or the consumer is gone.
            RequestTimeout: the server says nothing at all.
            NatsError: the subscription is over.
        """
        fetched = _Fetched(self._laid_down.taken)

        async def fetch() -> None:
            found = await self._subscription.fetch(max_messages, expires=expires, max_bytes=max_bytes, no_wait=no_wait)
            fetched.put(map(self._of, found))

        try:
            if not fetched.begin(max_messages):
                self._thread.run(timeout, fetch)
            return fetched.take()
        finally:
            fetched.end()

    def consume(self, handler: Callable[[JetStreamMessage], object]) -> None:
        """Call this with each message, one at a time, until the subscription is over."""
        for message in self:
            handler(message)


class _Fetched:
    """What the client's thread brings for one fetch. If that is over, it is laid down for the next one."""

    def __init__(self, taken: deque[JetStreamMessage]) -> None:
        self._taken = taken
        self._messages: deque[JetStreamMessage] = deque()
        self._is_over = False

    def begin(self, most: int) -> bool:
        """With what earlier ones have left, if there is any."""
        with suppress(IndexError):
            while len(self._messages) < most:
                self._messages.append(self._taken.popleft())
        return bool(self._messages)

    def put(self, messages: Iterable[JetStreamMessage]) -> None:
        """In the client's thread, while the other one may end it."""
        self._messages.extend(messages)
        if self._is_over:
            self.end()

    def take(self) -> list[JetStreamMessage]:
        found = list(self._messages)
        self._messages.clear()
        return found

    def end(self) -> None:
        self._is_over = True
        with suppress(IndexError):
            while True:
                self._taken.append(self._messages.popleft())
