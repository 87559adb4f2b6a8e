"""Who receives messages: subscriptions, and what takes the answers to requests. They outlive connections, and each new
one is asked for them again."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from trunkline.nats.client.connection import Receiver
from trunkline.nats.client.events import SlowConsumer
from trunkline.nats.client.subscription import BaseSubscription
from trunkline.nats.protocol import encoder
from trunkline.nats.protocol.subjects import check_pattern, check_queue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from trunkline.nats.client.events import Event
    from trunkline.nats.client.settings import Settings
    from trunkline.nats.errors import NatsError, PermissionDenied
    from trunkline.nats.protocol.headers import Headers

S = TypeVar("S", bound=BaseSubscription[Any])


class Client(Protocol):
    @property
    def settings(self) -> Settings: ...

    @property
    def is_connected(self) -> bool: ...

    def check(self) -> None: ...

    def write(self, data: bytes) -> None: ...

    def tell(self, event: Event) -> None: ...

    async def flush(self) -> None: ...

    def answer(
        self,
        subject: str,
        payload: bytes,
        *,
        reply: str = "",
        headers: Headers | Mapping[str, str] | None = None,
        is_last: bool = True,
    ) -> None: ...


class Lasting(Receiver, Protocol):
    """It outlives connections."""

    @property
    def sid(self) -> bytes: ...

    @property
    def is_over(self) -> bool:
        """Nothing more comes."""
        ...

    def again(self) -> Iterable[bytes]:
        """What a new connection is asked for."""
        ...

    def denied(self, error: PermissionDenied) -> None:
        """The server does not allow something, which may be for this one."""

    def end(self, failure: NatsError | None = None) -> None:
        """Nothing more comes."""


class Receivers:
    def __init__(self, client: Client) -> None:
        #: By the id of the subscription.
        self.by_id: dict[bytes, Lasting] = {}
        self.answer = client.answer
        self._client = client
        self._numbers = count(1)

    @property
    def subscriptions(self) -> list[BaseSubscription[Any]]:
        return [each for each in self.by_id.values() if isinstance(each, BaseSubscription)]

    def open(
        self,
        kind: Callable[..., S],
        subject: str,
        *,
        queue: str = "",
        max_messages: int | None = None,
        max_bytes: int | None = None,
    ) -> S:
        """Subscribe, with a subscription of this kind. Raises as `Client.subscribe` does."""
        self._client.check()
        check_pattern(subject)
        if queue:
            check_queue(queue)
        settings = self._client.settings
        subscription = kind(
            self,
            subject,
            queue,
            self.next_id(),
            settings.max_messages if max_messages is None else max_messages,
            settings.max_bytes if max_bytes is None else max_bytes,
        )
        self.add(subscription)
        return subscription

    def move(self, subscription: BaseSubscription[Any], subject: str) -> None:
        """From now on it has the messages of another subject, and no more of the one before."""
        if subscription.sid in self.by_id:
            self.remove(subscription)
            subscription.subject, subscription.sid = subject, self.next_id()
            self.add(subscription)

    def add(self, receiver: Lasting) -> None:
        self.by_id[receiver.sid] = receiver
        if self._client.is_connected:
            for data in receiver.again():
                self._client.write(data)

    def remove(self, receiver: Lasting) -> None:
        """Nothing more is asked for."""
        if self.by_id.pop(receiver.sid, None) is not None and self._client.is_connected:
            self._client.write(encoder.unsubscribe(receiver.sid))

    def next_id(self) -> bytes:
        return b"%d" % next(self._numbers)

    # For subscriptions

    def slow(self, subscription: BaseSubscription[Any]) -> None:
        self._client.tell(SlowConsumer(subscription))

    def unsubscribe(self, subscription: BaseSubscription[Any], after: int = 0) -> None:
        if subscription.sid not in self.by_id:
            return
        if self._client.is_connected:
            self._client.write(encoder.unsubscribe(subscription.sid, after))
        if after > subscription.received:
            subscription.max_received = after
        else:
            del self.by_id[subscription.sid]
            subscription.end()

    async def stop(self, subscription: BaseSubscription[Any]) -> None:
        if subscription.sid in self.by_id and self._client.is_connected:
            self._client.write(encoder.unsubscribe(subscription.sid))
            await self._client.flush()

    # For connections

    def again(self) -> Iterable[bytes]:
        """What a new one begins with."""
        for receiver in self.by_id.values():
            yield from receiver.again()

    def denied(self, error: PermissionDenied) -> None:
        for receiver in list(self.by_id.values()):
            receiver.denied(error)
            if receiver.is_over:
                del self.by_id[receiver.sid]

    def end(self, failure: NatsError | None) -> None:
        """There will be no more."""
        for receiver in list(self.by_id.values()):
            receiver.end(failure)
        self.by_id.clear()
