"""What comes one after the other in the client's thread, laid down there for the threads that want it: a call that is
interrupted, or whose time is over, takes none."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from itertools import repeat
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

import trio

from trunkline.actors.trio_thread import limit
from trunkline.nats.errors import ClientClosed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    from trunkline.actors.context_thread import ContextThread

#: Of what waits, so much is laid down at once: crossing threads costs more than that.
MAX_TAKEN: Final = 256

T = TypeVar("T")


class Block:
    """What was entered in the client's thread, for the length of a `with` block, or until `close`."""

    def __init__(self, entered: AbstractAsyncContextManager[Any], thread: ContextThread) -> None:
        self._entered = entered
        self._thread = thread

    def close(self) -> None:
        """As the end of the block does it."""
        with suppress(ClientClosed):
            self._thread.leave(self._entered)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Handover(Generic[T]):
    def __init__(self, thread: ContextThread, receive: Callable[[], Awaitable[T]], *, many: bool = False) -> None:
        """With `many`, all that waits is laid down at once. Then an error of `receive` must come again."""
        self._thread = thread
        self._receive = receive
        self._many = many
        self.taken: deque[T] = deque()
        self._each = map(deque[T].popleft, repeat(self.taken))
        self._taking = trio.Lock()

    def __len__(self) -> int:
        """How much is laid down."""
        return len(self.taken)

    def pick_up(self, timeout: float | None) -> T:
        """The next one.

        Raises:
            TimeoutError: none came within so many seconds.
            Exception: that of `receive`, or of the thread.
        """
        until = None if timeout is None else monotonic() + limit(timeout)
        while True:
            try:
                # Python looks for signals behind a call, and not behind the step of a loop: what is taken is returned
                for found in self._each:
                    return found
            except IndexError:  # none is there, or another thread was faster
                pass
            left = None if until is None else max(0.0, until - monotonic())
            try:
                self._thread.run(left, self._take)
            except TimeoutError:
                if not self.taken:
                    raise TimeoutError(f"nothing came within {timeout:g} s") from None

    async def _take(self) -> None:
        """In the client's thread. What is there is laid down also when there is no time to wait."""
        try:
            self._taking.acquire_nowait()
        except trio.WouldBlock:
            await self._taking.acquire()
        try:
            if not self.taken:
                self.taken.append(await self._receive())
                if self._many:
                    await self._take_more()
        finally:
            self._taking.release()

    async def _take_more(self) -> None:
        with trio.CancelScope() as scope, suppress(Exception):
            scope.cancel()  # it does not wait
            while len(self.taken) < MAX_TAKEN:
                self.taken.append(await self._receive())
