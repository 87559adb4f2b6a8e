"""What there is, and then what changes: an ordered subscription that knows when it has told all that was there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar

import trio

from trunkline.nats.jetstream.replies import ConsumerMissing

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from trunkline.nats.client.jetstream.context import JetStream
    from trunkline.nats.client.jetstream.message import JetStreamMessage
    from trunkline.nats.client.jetstream.ordered import OrderedSubscription
    from trunkline.nats.protocol.acknowledging import Origin

#: Of timeouts of a request, in which nothing comes although something should, until the consumer is asked. More than
#: one: the request for a consumer that is made anew is not to be cut short by it each time.
PATIENCE: Final = 1.5

T = TypeVar("T")


class Watch(Generic[T]):
    """`async for entry in watch.initial()` has what is there, and ends; `async for entry in watch` has that, too,
    unless it was taken before, and then each change."""

    def __init__(
        self,
        js: JetStream,
        subscription: OrderedSubscription,
        read: Callable[[JetStreamMessage], T | None],
        *,
        updates_only: bool = False,
    ) -> None:
        """`read` makes something of a message, or nothing."""
        self._js = js
        self._subscription = subscription
        self._read = read
        #: Of the last message.
        self._origin: Origin | None = None
        info = subscription.info
        assert info is not None
        #: All that was there has been taken.
        self.is_current = updates_only or not (info.pending or info.delivered.consumer)

    async def receive(self) -> T:
        """The next one.

        Raises:
            trio.EndOfChannel: there are no more, as the watch was stopped.
            ApiError, NatsError: there are no more, as the bucket is gone, or the client has given up.
        """
        while True:
            found = self._seen(await self._subscription.receive())
            if found is not None:
                return found

    async def receive_initial(self) -> T | None:
        """The next one of those that were there; None: there are no more of them. Raises as `receive` does."""
        while not self.is_current:
            message = None
            with trio.move_on_after(PATIENCE * self._js.timeout):
                message = await self._subscription.receive()
            if message is None:
                await self._compare()
            elif (found := self._seen(message)) is not None:
                return found
        await trio.lowlevel.checkpoint()
        return None

    async def initial(self) -> AsyncGenerator[T]:
        """Raises as `receive` does."""
        while (found := await self.receive_initial()) is not None:
            yield found

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        try:
            return await self.receive()
        except trio.EndOfChannel:
            raise StopAsyncIteration from None

    def stop(self) -> None:
        """Nothing more comes. What is there can still be taken."""
        self._subscription.close()

    def _seen(self, message: JetStreamMessage) -> T | None:
        self._origin = message.origin
        if not self._origin.pending:
            self.is_current = True
        return self._read(message)

    async def _compare(self) -> None:
        """With the consumer: what was there may have been removed before it came, and then no message says that it is
        the last one."""
        try:
            info = await self._js.consumer(self._subscription.stream, self._subscription.consumer)
        except ConsumerMissing:
            return  # it is made anew
        taken = 0
        if self._origin is not None and self._origin.consumer == info.name:
            taken = self._origin.consumer_sequence
        self.is_current = not info.pending and info.delivered.consumer == taken
