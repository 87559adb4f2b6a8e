"""A trio run in a thread of its own: for synchronous code, for asyncio, and for other trio runs.

This is what anyio's portals do, with three guarantees that they lack: the end is bounded in time, an error that ends
the run is raised where it was started and to all that wait for it, and a process that was forked says so.
"""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import CancelledError
from contextlib import suppress
from traceback import format_stack
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, TypeVarTuple
from weakref import WeakSet

import trio

from trunkline.actors.answer import Answer
from trunkline.actors.exits import innermost

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

C = TypeVar("C")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

#: Frames that are shown of a thread that does not end.
_MAX_FRAMES: Final = 8

#: Seconds for a thread to begin, if it does.
_MAX_BEGIN: Final = 1.0

_threads: WeakSet[TrioThread[Any]] = WeakSet()


class TrioThread(Generic[C]):
    """The thread, from its start to its end, in which an async context manager is open. The methods may be used from
    any other thread, and from several."""

    def __init__(
        self,
        name: str,
        opening: Callable[[], AbstractAsyncContextManager[C]],
        *,
        stopped: Callable[[], Exception],
        clock: trio.abc.Clock | None = None,
    ) -> None:
        """`name` is what lives there, as in "the broker". `stopped` makes the error of calls after the end."""
        self.name = name
        self._opening = opening
        self._stopped = stopped
        self._clock = clock
        self._thread = threading.Thread(target=self._live, name=f"trunkline {name.removeprefix('the ')}", daemon=True)
        #: What callers wait for.
        self._waiting: set[Answer[Any]] = set()
        self._entered = Answer[None]()
        self._token: trio.lowlevel.TrioToken
        self._scope = trio.CancelScope()
        self._leaving = trio.Event()
        self._nursery: trio.Nursery
        #: What the context manager gives when it is entered, or the error if it does not come to that.
        self.started = Answer[C]()
        #: Done when nothing is left; has the error that ended the run, if one did.
        self.finished = Answer[None]()
        self._traceback: TracebackType | None = None

    def start(self) -> None:
        _threads.add(self)
        try:
            self._thread.start()
        except BaseException:  # an interrupt: who would end a thread that has begun all the same?
            with suppress(TimeoutError):
                self._entered.wait(_MAX_BEGIN)
                self._in_run(self._scope.cancel)
            raise

    def stop(self) -> None:
        """Cancel the context manager, and end. `finished` waits for that."""
        self._entered.wait()
        self._in_run(self._scope.cancel)

    def leave(self) -> None:
        """The same, but the context manager ends as a block does that is left. Calls that wait are cancelled."""
        self._entered.wait()
        self._in_run(self._leaving.set)

    def outcome(self, timeout: float) -> BaseException | None:
        """Wait for its end. Returns the error that ended the run, or one that says what does not end: then the thread
        is left as it is."""
        try:
            error = self.finished.exception(timeout)
        except TimeoutError:
            return RuntimeError("\n".join([f"{self.name} does not end within {timeout:g} s", *self.at_work()]))
        self._thread.join()
        return error

    def at_work(self) -> Iterator[str]:
        """The current work of the thread, as lines; called from another thread."""
        frame = sys._current_frames().get(self._thread.ident or 0)  # pyright: ignore[reportPrivateUsage]
        yield "its thread is at"
        yield from (line.rstrip() for line in format_stack(frame, -_MAX_FRAMES))

    def _live(self) -> None:
        error: BaseException | None = None
        try:
            trio.run(self._run, clock=self._clock)
        except BaseExceptionGroup as group:
            error = innermost(group)
        except BaseException as raised:  # noqa: BLE001 - it is raised where the thread was started
            error = raised
        self._end(error)

    def _end(self, error: BaseException | None) -> None:
        self._traceback = None if error is None else error.__traceback__
        for answer in [self.started, *self._waiting]:
            answer.set_exception(error or self._stopped())
        if error is not None:
            self.finished.set_exception(error)
        else:
            self.finished.set_result(None)

    async def _run(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        with self._scope:
            self._entered.set_result(None)
            async with self._opening() as value, trio.open_nursery() as self._nursery:
                self.started.set_result(value)
                await self._leaving.wait()
                self._nursery.cancel_scope.cancel()

    # From outside

    @property
    def is_current(self) -> bool:
        """Whether the caller is in this thread, as a hook is."""
        return threading.current_thread() is self._thread

    def check(self) -> None:
        """
        Raises:
            BaseException: the error that ended the run, or the one that says that it was stopped.
        """
        if self.finished.done:
            raise self._over()

    def call(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Call a plain function in the thread, and wait for its result. It must be short.

        Raises:
            BaseException: as `check`.
        """
        if self.is_current:
            return function(*args)
        answer = Answer[T]()

        def call() -> None:
            try:
                answer.set_result(function(*args))
            except BaseException as error:  # noqa: BLE001 - it is the caller's
                answer.set_exception(error)

        self._soon(call, answer)
        return answer.result()

    def run(
        self,
        function: Callable[[*Ts], Awaitable[T]],
        *args: *Ts,
        timeout: float | None = None,
    ) -> T:
        """Run an async function in the thread, and wait for its result. An interrupt of the caller cancels it.

        Raises:
            TimeoutError: it took longer than `timeout` seconds, and is cancelled.
            RuntimeError: this is the thread itself.
            BaseException: as `check`.
        """
        answer, cancel = self.submit(function, *args)
        try:
            try:
                answer.wait(limit(timeout))
            except TimeoutError:
                cancel()
                if isinstance(answer.exception(), CancelledError):
                    raise TimeoutError(f"no answer within {timeout:g} s") from None
        finally:
            if not answer.done:  # the caller was interrupted
                cancel()
        return answer.result()

    def submit(self, function: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> tuple[Answer[T], Callable[[], None]]:
        """Run an async function in the thread. Returns its answer, and a function that cancels it.

        Raises:
            RuntimeError: this is the thread itself.
            BaseException: as `check`.
        """
        if self.is_current:
            raise RuntimeError(f"code in the thread of {self.name}, such as a hook, cannot wait for {self.name}")
        answer, scope = Answer[T](), trio.CancelScope()

        async def run() -> None:
            with scope:
                try:
                    answer.set_result(await function(*args))
                except trio.Cancelled:
                    raise  # by the caller, or by the end of the run, which sees to the answer
                except BaseException as error:  # noqa: BLE001 - it is the caller's
                    answer.set_exception(error)
            if scope.cancelled_caught:
                answer.set_exception(CancelledError())

        def begin() -> None:
            with suppress(RuntimeError):  # the run ends in this very moment, and notifies all that wait
                self._nursery.start_soon(run)

        self._soon(begin, answer)
        return answer, lambda: self._in_run(scope.cancel)

    def _soon(self, call: Callable[[], object], answer: Answer[Any]) -> None:
        if not self.started.done:
            self.started.wait()
        self.check()
        self._waiting.add(answer)
        answer.add_callback(lambda: self._waiting.discard(answer))
        try:
            self._token.run_sync_soon(call)
        except trio.RunFinishedError:
            self.finished.wait()
            raise self._over() from None

    def _over(self) -> BaseException:
        error = self.finished.exception()
        # it is raised again and again, and its traceback would grow
        return self._stopped() if error is None else error.with_traceback(self._traceback)

    def _in_run(self, call: Callable[[], object]) -> None:
        if not self.finished.done:  # a fork leaves behind what trio has locked at that moment, for ever
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(call)

    def forked(self) -> None:
        """This process is a copy of the one with the thread."""
        self._end(
            Forked(f"{self.name} was started in process {os.getppid()}, which was forked: start another one here")
        )


class Forked(RuntimeError):
    """A thread stays behind when its process is forked."""


def limit(timeout: float | None) -> float:
    """A timeout as locks take it.

    Raises:
        ValueError: it is negative.
    """
    if timeout is None:
        return -1
    if not timeout >= 0:
        raise ValueError(f"timeout {timeout:g} is negative")
    return min(timeout, threading.TIMEOUT_MAX)


def _after_fork() -> None:
    threads = list(_threads)
    _threads.clear()
    for thread in threads:
        thread.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
