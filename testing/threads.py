"""A broker in a thread of its own, with a trio run of its own: for synchronous code, and for asyncio.

Whatever touches the broker is done in its thread. Plain calls are short and block the caller in any case, in asyncio too.
"""

from __future__ import annotations

import sys
import threading
from concurrent.futures import Future, InvalidStateError
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from traceback import format_stack
from typing import TYPE_CHECKING, Any, Final, TypeVar, TypeVarTuple

import trio

from trunkline.actors.system import innermost
from trunkline.hooks.chain import Hooks
from trunkline.testing.broker import Broker, Face
from trunkline.testing.clock import AdvancingClock
from trunkline.testing.history import HISTORY
from trunkline.testing.inside import opened
from trunkline.testing.reach import Awaiting, Blocking, in_trio
from trunkline.testing.telling import known

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator, Mapping

    from trunkline.hooks.points import Point
    from trunkline.hooks.registration import Callback, Registration
    from trunkline.testing.inside import Inside

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


#: Seconds after which a broker that was told to end is given up. A plugin may take fifteen.
LONGEST_END: Final = 30.0
#: Lines of code that are shown of one that does not.
_FRAMES: Final = 8


class BrokerThread:
    """The thread, from its start to its end. What it offers may be used from any other thread, and by several."""

    def __init__(self, settings: Mapping[str, Any], hooks: Hooks | None, history: int) -> None:
        self._settings = settings
        self._hooks = hooks
        self._history = history
        self._thread = threading.Thread(target=self._live, name="trunkline broker", daemon=True)
        #: What the callers wait for.
        self._waiting: set[Future[Any]] = set()
        self._entered = threading.Event()
        self._token: trio.lowlevel.TrioToken
        self._scope: trio.CancelScope
        self._nursery: trio.Nursery
        self.inside: Inside
        #: Done when clients can connect; has the error if it does not come to that.
        self.started = Future[None]()
        #: Done when nothing is left; has the error that ended the run, if one did.
        self.finished = Future[None]()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Have the broker say goodbye and end. `join` waits for that."""
        self._entered.wait()
        self._cancel(self._scope)

    def outcome(self) -> BaseException | None:
        """Wait for its end. The error that ended the run; or one that says what does not let it end, and then it is left
        as it is."""
        try:
            error = self.finished.exception(LONGEST_END)
        except TimeoutError:
            return RuntimeError("\n".join([f"the broker does not end within {LONGEST_END:g} s", *self._at_work()]))
        self._thread.join()
        return error

    def _at_work(self) -> Iterator[str]:
        """What it is at, as lines, asked from another thread."""
        if self.started.done():
            for name, tasks in self.inside.node.plugins.at_work():
                yield f"the plugin {name} still runs: {', '.join(tasks) or 'it has no tasks'}"
        frame = sys._current_frames().get(self._thread.ident or 0)  # pyright: ignore[reportPrivateUsage]
        yield "its thread is at"
        yield from (line.rstrip() for line in format_stack(frame, -_FRAMES))

    def _live(self) -> None:
        error: BaseException | None = None
        try:
            trio.run(self._run, clock=AdvancingClock())
        except BaseExceptionGroup as group:
            error = innermost(group)
        except BaseException as raised:  # noqa: BLE001 - it is raised where the broker was opened
            error = raised
        for future in list(self._waiting):
            with suppress(InvalidStateError):
                future.set_exception(error or _stopped())
        if not self.started.done():
            self.started.set_exception(error or _stopped())
        if error is not None:
            self.finished.set_exception(error)
        else:
            self.finished.set_result(None)

    async def _run(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        with trio.CancelScope() as self._scope:
            self._entered.set()
            async with (
                opened(self._settings, self._hooks, self._history) as self.inside,
                trio.open_nursery() as self._nursery,
            ):
                self.started.set_result(None)
                await trio.sleep_forever()

    # From outside

    def call(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Have a plain function called in the broker's thread, and wait for what it returns or raises.

        Raises:
            RuntimeError: the broker has been stopped.
        """
        if threading.current_thread() is self._thread:  # a hook, say
            return function(*args)
        future = Future[T]()

        def call() -> None:
            try:
                result = function(*args)
            except BaseException as error:  # noqa: BLE001 - it is the caller's
                future.set_exception(error)
            else:
                future.set_result(result)

        self._soon(call, future)
        return future.result()

    def submit(self, function: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> Future[T]:
        """Have an async function run in the broker's trio run. Cancelling the future cancels it.

        Raises:
            RuntimeError: the broker has been stopped, or this is the broker's own thread.
        """
        if threading.current_thread() is self._thread:
            raise RuntimeError("what runs in the broker's thread, such as a hook, cannot wait for the broker")
        future = Future[T]()

        async def run() -> None:
            with trio.CancelScope() as scope, suppress(InvalidStateError):  # cancelled in this very moment
                future.add_done_callback(lambda _: self._cancel(scope))
                try:
                    result = await function(*args)
                except trio.Cancelled:
                    raise  # by the caller, who has cancelled the future, or by the broker's end, which sees to it
                except BaseException as error:  # noqa: BLE001 - it is the caller's
                    future.set_exception(error)
                else:
                    future.set_result(result)

        def begin() -> None:
            with suppress(RuntimeError):  # the broker ends in this very moment, and tells all who wait
                self._nursery.start_soon(run)

        self._soon(begin, future)
        return future

    def _soon(self, call: Callable[[], object], future: Future[Any]) -> None:
        self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)
        try:
            self._token.run_sync_soon(call)
        except trio.RunFinishedError:
            error = self.finished.exception()
            raise _stopped() if error is None else error from None

    def _cancel(self, scope: trio.CancelScope) -> None:
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(scope.cancel)


def _stopped() -> RuntimeError:
    return RuntimeError("the broker has been stopped")


class FromThread(Blocking):
    """For code that does not await."""

    def __init__(self, thread: BrokerThread) -> None:
        self.thread = thread

    def call(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        __tracebackhide__ = True
        return self.thread.call(function, *args)

    async def run(self, function: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
        __tracebackhide__ = True
        future = self.thread.submit(function, *args)
        try:
            return future.result()
        finally:
            future.cancel()  # of use when this thread was interrupted

    def hooks(self, hooks: Hooks) -> Hooks:
        return HooksInThread(hooks, self.thread)


class FromLoop(Awaiting):
    """For code that awaits, in asyncio, or in another trio run."""

    def __init__(self, thread: BrokerThread) -> None:
        self.thread = thread

    def call(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        __tracebackhide__ = True
        return self.thread.call(function, *args)

    async def run(self, function: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
        __tracebackhide__ = True
        future = self.thread.submit(function, *args)
        try:
            await done(future)
        finally:
            future.cancel()  # of use when this task was cancelled
        return future.result()

    def hooks(self, hooks: Hooks) -> Hooks:
        return HooksInThread(hooks, self.thread)


async def done(future: Future[Any]) -> None:
    """Wait for a future of another thread, in asyncio or in trio."""
    wait, wake = _trio_event() if in_trio() else _asyncio_event()

    def tell(_: Future[Any]) -> None:
        with suppress(RuntimeError):  # that loop is over, and nobody waits
            wake()

    future.add_done_callback(tell)
    await wait()


def _trio_event() -> tuple[Callable[[], Awaitable[object]], Callable[[], object]]:
    event, token = trio.Event(), trio.lowlevel.current_trio_token()
    return event.wait, partial(token.run_sync_soon, event.set)


def _asyncio_event() -> tuple[Callable[[], Awaitable[object]], Callable[[], object]]:
    import asyncio  # not there yet where nobody uses it

    event, loop = asyncio.Event(), asyncio.get_running_loop()
    return event.wait, lambda: loop.call_soon_threadsafe(event.set)


class ThreadBroker(Face[Blocking]):
    """A running broker in a thread of its own, for code that does not await."""

    def __init__(self, thread: BrokerThread) -> None:
        super().__init__(thread.inside, FromThread(thread))
        #: The same broker for code that awaits.
        self.awaitable = Broker(thread.inside, FromLoop(thread))


class HooksInThread(Hooks):
    """The hooks of a broker in another thread: registered there, and called there."""

    def __init__(self, hooks: Hooks, thread: BrokerThread) -> None:
        super().__init__()
        self._theirs = hooks
        self._thread = thread

    def add(
        self,
        point: Point | str,
        callback: Callback,
        *,
        priority: int = 0,
        filter: Callback | None = None,
        args: tuple[object, ...] = (),
        burst: Callback | None = None,
    ) -> bool:
        return self._thread.call(
            lambda: self._theirs.add(point, callback, priority=priority, filter=filter, args=args, burst=burst)
        )

    def remove(self, point: Point | str, callback: Callback) -> bool:
        return self._thread.call(self._theirs.remove, point, callback)

    def listing(self, point: Point | str | None = None) -> list[Registration]:
        return self._thread.call(self._theirs.listing, point)


@contextmanager
def in_thread(
    settings: Mapping[str, Any], hooks: Hooks | None, history: int = HISTORY
) -> Generator[ThreadBroker, None, None]:
    """For the length of a block that does not await."""
    thread = BrokerThread(settings, hooks, history)
    thread.start()
    try:
        thread.started.result()
        face = ThreadBroker(thread)
        with known(face):
            yield face
    finally:
        if not sys.is_finalizing():  # nobody has left the block, and threads don't run any more
            thread.stop()
            if (error := thread.outcome()) is not None:
                raise error


@asynccontextmanager
async def in_asyncio(
    settings: Mapping[str, Any], hooks: Hooks | None, history: int = HISTORY
) -> AsyncGenerator[Broker, None]:
    """For the length of a block in asyncio. If the broker ends with an error, the block is cancelled and raises it."""
    import asyncio

    thread = BrokerThread(settings, hooks, history)
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    cancelled = False

    def cancel() -> None:
        nonlocal cancelled
        if not leaving:
            cancelled = task.cancel("the broker has ended")

    def tell(finished: Future[None]) -> None:
        if finished.exception() is not None:
            loop.call_soon_threadsafe(cancel)

    leaving = False
    thread.start()
    try:
        await done(thread.started)
        thread.started.result()
        thread.finished.add_done_callback(tell)
        face = Broker(thread.inside, FromLoop(thread))
        with known(face):
            yield face
    finally:
        leaving = True
        thread.stop()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(LONGEST_END):
                    await done(thread.finished)  # here clients in this loop still read their last packet
        finally:
            error = thread.outcome()
            if cancelled:
                task.uncancel()
            if error is not None:
                raise error
