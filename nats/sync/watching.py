"""What there is, and then what changes, for any thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Self, TypeVar

import trio

from trunkline.nats.errors import ClientClosed
from trunkline.nats.sync.handover import Block, Handover

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractAsyncContextManager

    from trunkline.actors.context_thread import ContextThread
    from trunkline.nats.client.jetstream.watching import Watch as TrioWatch

T = TypeVar("T")


class Watch(Block, Generic[T]):
    """`for entry in watch.initial()` has what is there, and ends; `for entry in watch` has that, too, unless it was
    taken before, and then each change. Leaving the block (`with`), or `close`, ends it. Several threads may loop over
    one watch: each entry goes to one of them."""

    def __init__(
        self, watching: AbstractAsyncContextManager[TrioWatch[T]], watch: TrioWatch[T], thread: ContextThread
    ) -> None:
        super().__init__(watching, thread)
        self._watch = watch
        self._initial = Handover(thread, self._receive_initial, many=True)
        self._changes = Handover(thread, watch.receive, many=True)

    @property
    def is_current(self) -> bool:
        """All that was there has been taken."""
        return self._watch.is_current and not self._initial

    def receive(self, *, timeout: float | None = None) -> T:
        """The next one.

        Raises:
            TimeoutError: none came within so many seconds.
            trio.EndOfChannel: there are no more, as the watch was stopped, or the client is closed.
            ApiError, NatsError: there are no more, as the bucket is gone, or the client has given up.
        """
        found = self.receive_initial(timeout=timeout)
        return self._pick_up(self._changes, timeout) if found is None else found

    def receive_initial(self, *, timeout: float | None = None) -> T | None:
        """The next one of those that were there; None: there are no more of them. Raises as `receive` does."""
        if self.is_current:
            return None
        try:
            return self._pick_up(self._initial, timeout)
        except StopAsyncIteration:
            return None

    def initial(self) -> Iterator[T]:
        """Raises as `receive` does."""
        while (found := self.receive_initial()) is not None:
            yield found

    def stop(self) -> None:
        """Nothing more comes. What is there can still be taken."""
        self._thread.call(self._watch.stop)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        try:
            return self.receive()
        except trio.EndOfChannel:
            raise StopIteration from None

    def _pick_up(self, handover: Handover[T], timeout: float | None) -> T:
        try:
            return handover.pick_up(timeout)
        except ClientClosed:
            raise trio.EndOfChannel from None

    async def _receive_initial(self) -> T:
        found = await self._watch.receive_initial()
        if found is None:
            raise StopAsyncIteration
        return found
