"""A context manager of trio that code without trio opens and closes: a client, say. Its methods run in its thread, and
the caller waits for them."""

from __future__ import annotations

import atexit
from contextlib import asynccontextmanager, suppress
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self, TypeVar

import trio

from trunkline.actors.trio_thread import Forked, TrioThread, limit

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

#: Seconds for those that are still open when the interpreter exits.
MAX_EXIT: Final = 10.0
#: Seconds for what is still open when the context manager has ended.
MAX_LEAVING: Final = 2.0

A = ParamSpec("A")
T = TypeVar("T")


class ContextThread:
    """The thread begins when the context manager is opened, which happens once."""

    def __init__(
        self,
        name: str,
        opening: Callable[[], AbstractAsyncContextManager[Any]],
        *,
        stopped: Callable[[], Exception],
    ) -> None:
        """`name` is what lives there, as in "the client". `stopped` makes the error of calls when it is not open."""
        self._name = name
        self._opening = opening
        self._stopped = stopped
        self._trio: TrioThread[Any] | None = None
        self._lock = Lock()
        #: What is open within it.
        self._entered: dict[AbstractAsyncContextManager[Any], None] = {}

    # Life

    def open(self, timeout: float | None) -> None:
        """
        Raises:
            TimeoutError: it takes longer than so many seconds.
            RuntimeError: it was opened before.
        """
        with self._lock:
            if self._trio is not None:
                raise RuntimeError(f"{self._name} is opened once: make another one")
            self._trio = thread = TrioThread[Any](self._name, self._opened, stopped=self._stopped)
        atexit.register(self._exit)
        thread.start()
        try:
            thread.started.wait(limit(timeout))
        except TimeoutError:
            thread.stop()
            raise TimeoutError(f"there is no connection within {timeout:g} s") from None
        except BaseException:
            thread.stop()
            raise
        if thread.started.exception() is not None:
            self.close(None)

    def close(self, timeout: float | None, *, settles: bool = True) -> None:
        """As at the end of a block: one that ends without an error `settles`, and waits for what is on its way.

        Raises:
            TimeoutError: it takes longer than so many seconds.
            Exception: what has ended the context manager.
        """
        thread = self._trio
        if thread is None:
            return
        if thread.is_current:
            raise RuntimeError(f"a hook cannot close {self._name}")
        seconds = limit(timeout)
        try:
            if settles and thread.started.done:
                thread.leave()
            else:
                thread.stop()
            error = thread.finished.exception(seconds)
        except TimeoutError:
            raise TimeoutError(f"{self._name} does not close within {timeout:g} s") from None
        except BaseException:  # an interrupt, or what a handler of signals raises: wait for answers no longer
            thread.stop()
            raise
        atexit.unregister(self._exit)
        if error is not None and not isinstance(error, Forked):
            thread.check()

    def _exit(self) -> None:
        with suppress(Exception):
            self.close(MAX_EXIT)

    @property
    def is_opened(self) -> bool:
        """Whether it has been, if only in the past."""
        return self._trio is not None

    @property
    def opened(self) -> TrioThread[Any]:
        """
        Raises:
            Exception: it has not been opened: the error of `stopped`.
        """
        if self._trio is None:
            raise self._stopped()
        return self._trio

    @property
    def is_over(self) -> bool:
        """Whether nothing more can be asked of it."""
        return self.opened.finished.done

    # Calls

    def run(self, timeout: float | None, function: Callable[A, Awaitable[T]], *args: A.args, **kwargs: A.kwargs) -> T:
        """Run an async function in the thread, and wait for its result. An interrupt cancels it.

        Raises:
            TimeoutError: it took longer than so many seconds, and is cancelled.
        """
        return self.opened.run(partial(function, *args, **kwargs), timeout=timeout)

    def enter(self, timeout: float | None, manager: AbstractAsyncContextManager[T]) -> T:
        """Enter a context manager in the thread, which `leave` ends, or the end of the thread. One that an interrupted
        caller knows nothing of is left at once. Raises as `run` does."""
        is_over = trio.Event()

        async def enter() -> T:
            try:
                value = await manager.__aenter__()
                self._entered[manager] = None
            finally:
                is_over.set()
            return value

        async def leave() -> None:
            await is_over.wait()
            await self._leave(manager, None, None, None)

        try:
            return self.run(timeout, enter)
        except BaseException:
            with suppress(Exception):
                self.opened.submit(leave)
            raise

    def leave(
        self,
        manager: AbstractAsyncContextManager[Any],
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        """As the end of its block, which may have raised. Where the thread has ended, so has all that was entered.

        Raises:
            Exception: what the end of a block raises.
        """
        with suppress(Forked):
            self.run(None, self._leave, manager, kind, error, trace)

    async def _leave(
        self,
        manager: AbstractAsyncContextManager[Any],
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if manager in self._entered:
            del self._entered[manager]
            await manager.__aexit__(kind, error, trace)

    @asynccontextmanager
    async def _opened(self) -> AsyncGenerator[Any]:
        try:
            async with self._opening() as value:
                yield value
        finally:  # one by one, or generators within generators would be finalized in any order
            with trio.move_on_after(MAX_LEAVING, shield=True):
                for manager in reversed(list(self._entered)):
                    error = self._stopped()
                    with suppress(Exception):
                        await manager.__aexit__(type(error), error, None)

    def call(self, function: Callable[A, T], *args: A.args, **kwargs: A.kwargs) -> T:
        """Call a function that does not wait."""
        return self.opened.call(partial(function, *args, **kwargs))


class InThread:
    """What runs in such a thread, for code without trio: `with` opens and closes it, and so do `open` and `close`."""

    def __init__(self, thread: ContextThread) -> None:
        self._thread = thread

    def open(self, *, timeout: float | None = None) -> Self:
        """It is closed by `close`, by the end of a block, or when the interpreter exits.

        Raises:
            TimeoutError: it takes longer than so many seconds.
            Exception: as at the beginning of a block.
        """
        self._thread.open(timeout)
        return self

    def close(self, *, timeout: float | None = None) -> None:
        """As at the end of a block. Calls that wait in other threads raise the error of what is closed. In a process
        that was forked later, this has no effect.

        Raises:
            TimeoutError: it takes longer than so many seconds.
            Exception: this has ended it before.
        """
        self._thread.close(timeout)

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._thread.close(None, settles=error is None)
        except Exception:
            if error is None:
                raise
