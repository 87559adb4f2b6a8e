"""A broker in a thread of its own, with a trio run of its own: for synchronous code, and for asyncio.

All that touches the broker is done in its thread. Plain calls are short and block the caller in any case, in asyncio
too.

This is what anyio's portals do, with three guarantees that they lack: the end is bounded in time, an error that ends
the broker is raised where it was opened and to all that wait for it, and another trio run may be the caller.
"""

from __future__ import annotations

import sys
import threading
from concurrent.futures import CancelledError
from contextlib import asynccontextmanager, contextmanager, suppress
from traceback import format_stack
from typing import TYPE_CHECKING, Any, Final, TypeVar, TypeVarTuple

import trio

from trunkline.actors.system import innermost
from trunkline.hooks.chain import Hooks
from trunkline.testing.answer import Answer
from trunkline.testing.broker import Broker, BrokerProxy
from trunkline.testing.clock import AdvancingClock
from trunkline.testing.portal import AsyncPortal, BlockingPortal, Portal, in_trio
from trunkline.testing.report import listed
from trunkline.testing.running import opened

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator

    from trunkline.hooks.points import Point
    from trunkline.hooks.registration import Registration
    from trunkline.testing.running import Options, RunningBroker

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


#: Seconds to wait for the end of a broker. A plugin may take fifteen.
MAX_END: Final = 30.0
#: Frames that are shown of one that does not end.
_MAX_FRAMES: Final = 8


class BrokerThread:
    """The thread, from its start to its end. Its methods may be used from any other thread, and from several."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._thread = threading.Thread(target=self._live, name="trunkline broker", daemon=True)
        #: What callers wait for.
        self._waiting: set[Answer[Any]] = set()
        self._entered = Answer[None]()
        self._token: trio.lowlevel.TrioToken
        self._scope: trio.CancelScope
        self._nursery: trio.Nursery
        self.running: RunningBroker
        #: Done when clients can connect; has the error if it does not come to that.
        self.started = Answer[None]()
        #: Done when nothing is left; has the error that ended the run, if one did.
        self.finished = Answer[None]()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Let the broker disconnect its clients and end. `outcome` waits for that."""
        self._entered.wait()
        self._cancel(self._scope)

    def outcome(self) -> BaseException | None:
        """Wait for its end. Returns the error that ended the run, or one that says what does not end: then the thread
        is left as it is."""
        try:
            error = self.finished.exception(MAX_END)
        except TimeoutError:
            return RuntimeError("\n".join([f"the broker does not end within {MAX_END:g} s", *self._at_work()]))
        self._thread.join()
        return error

    def _at_work(self) -> Iterator[str]:
        """The current work of the thread, as lines; called from another thread."""
        if self.started.done:
            for name, tasks in self.running.node.plugins.at_work():
                yield f"the plugin {name} still runs: {', '.join(tasks) or 'it has no tasks'}"
        frame = sys._current_frames().get(self._thread.ident or 0)  # pyright: ignore[reportPrivateUsage]
        yield "its thread is at"
        yield from (line.rstrip() for line in format_stack(frame, -_MAX_FRAMES))

    def _live(self) -> None:
        error: BaseException | None = None
        try:
            trio.run(self._run, clock=AdvancingClock())
        except BaseExceptionGroup as group:
            error = innermost(group)
        except BaseException as raised:  # noqa: BLE001 - it is raised where the broker was opened
            error = raised
        for answer in [self.started, *self._waiting]:
            answer.set_exception(error or _stopped())
        if error is not None:
            self.finished.set_exception(error)
        else:
            self.finished.set_result(None)

    async def _run(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        with trio.CancelScope() as self._scope:
            self._entered.set_result(None)
            async with (
                opened(self._options) as self.running,
                trio.open_nursery() as self._nursery,
            ):
                self.started.set_result(None)
                await trio.sleep_forever()

    # From outside

    def call(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Call a plain function in the broker's thread, and wait for its result.

        Raises:
            RuntimeError: the broker has been stopped.
        """
        if threading.current_thread() is self._thread:  # a hook, say
            return function(*args)
        answer = Answer[T]()

        def call() -> None:
            try:
                answer.set_result(function(*args))
            except BaseException as error:  # noqa: BLE001 - it is the caller's
                answer.set_exception(error)

        self._soon(call, answer)
        return answer.result()

    def submit(self, function: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> tuple[Answer[T], Callable[[], None]]:
        """Run an async function in the broker's trio run. Returns its answer, and a function that cancels it.

        Raises:
            RuntimeError: the broker has been stopped, or this is the broker's own thread.
        """
        if threading.current_thread() is self._thread:
            raise RuntimeError("code in the broker's thread, such as a hook, cannot wait for the broker")
        answer, scope = Answer[T](), trio.CancelScope()

        async def run() -> None:
            with scope:
                try:
                    answer.set_result(await function(*args))
                except trio.Cancelled:
                    raise  # by the caller, or by the broker's end, which sees to the answer
                except BaseException as error:  # noqa: BLE001 - it is the caller's
                    answer.set_exception(error)
            if scope.cancelled_caught:
                answer.set_exception(CancelledError())

        def begin() -> None:
            with suppress(RuntimeError):  # the broker ends in this very moment, and notifies all that wait
                self._nursery.start_soon(run)

        self._soon(begin, answer)
        return answer, lambda: self._cancel(scope)

    def _soon(self, call: Callable[[], object], answer: Answer[Any]) -> None:
        self._waiting.add(answer)
        answer.add_callback(lambda: self._waiting.discard(answer))
        try:
            self._token.run_sync_soon(call)
        except trio.RunFinishedError:
            raise self.finished.exception() or _stopped() from None

    def _cancel(self, scope: trio.CancelScope) -> None:
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(scope.cancel)


def _stopped() -> RuntimeError:
    return RuntimeError("the broker has been stopped")


class _ThreadPortal(Portal):
    def __init__(self, thread: BrokerThread) -> None:
        self.thread = thread

    def call(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        __tracebackhide__ = True
        return self.thread.call(function, *args)

    def hooks(self, hooks: Hooks) -> Hooks:
        return _ThreadHooks(hooks, self.thread)


class ThreadBlockingPortal(_ThreadPortal, BlockingPortal):
    """For code that does not await."""

    async def run(self, function: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
        __tracebackhide__ = True
        answer, cancel = self.thread.submit(function, *args)
        try:
            return answer.result()
        finally:
            if not answer.done:  # this thread was interrupted
                cancel()


class ThreadAsyncPortal(_ThreadPortal, AsyncPortal):
    """For code that awaits, in asyncio, or in another trio run."""

    async def run(self, function: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
        __tracebackhide__ = True
        answer, cancel = self.thread.submit(function, *args)
        try:
            await done(answer)
        finally:
            if not answer.done:  # this task was cancelled
                cancel()
        return answer.result()


async def done(answer: Answer[Any]) -> None:
    """Wait for an answer of another thread, in asyncio or in trio."""
    event: Any
    soon: Callable[[Callable[[], object]], object]
    if in_trio():
        event, soon = trio.Event(), trio.lowlevel.current_trio_token().run_sync_soon
    else:
        import asyncio  # imported only in programs that use it

        event, soon = asyncio.Event(), asyncio.get_running_loop().call_soon_threadsafe

    def wake() -> None:
        with suppress(RuntimeError):  # that loop is over, and nothing waits in it
            soon(event.set)

    answer.add_callback(wake)
    await event.wait()


class ThreadBroker(BrokerProxy[BlockingPortal]):
    """A running broker in a thread of its own, for code that does not await."""

    def __init__(self, thread: BrokerThread) -> None:
        super().__init__(thread.running, ThreadBlockingPortal(thread))
        #: The same broker for code that awaits.
        self.awaitable = Broker(thread.running, ThreadAsyncPortal(thread))


class _ThreadHooks(Hooks):
    """The hooks of a broker in another thread: registered there, and called there."""

    def __init__(self, hooks: Hooks, thread: BrokerThread) -> None:
        super().__init__()
        self._hooks = hooks
        self._thread = thread

    def add(self, *args: Any, **options: Any) -> bool:
        return self._thread.call(lambda: self._hooks.add(*args, **options))

    def remove(self, *args: Any, **options: Any) -> bool:
        return self._thread.call(lambda: self._hooks.remove(*args, **options))

    def listing(self, point: Point | str | None = None) -> list[Registration]:
        return self._thread.call(self._hooks.listing, point)


@contextmanager
def in_thread(options: Options) -> Generator[ThreadBroker, None, None]:
    """For the length of a block that does not await."""
    thread = BrokerThread(options)
    thread.start()
    try:
        thread.started.result()
        broker = ThreadBroker(thread)
        with listed(broker, options):
            yield broker
    finally:
        if not sys.is_finalizing():  # the block was not left, and threads don't run any more
            thread.stop()
            if (error := thread.outcome()) is not None:
                raise error


@asynccontextmanager
async def in_asyncio(options: Options) -> AsyncGenerator[Broker, None]:
    """For the length of a block in asyncio. If the broker ends with an error, the block is cancelled and raises it."""
    import asyncio

    thread = BrokerThread(options)
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    cancelled = False

    def cancel() -> None:
        nonlocal cancelled
        if not leaving:
            cancelled = task.cancel("the broker has ended")

    def notify() -> None:
        if thread.finished.exception() is not None:
            loop.call_soon_threadsafe(cancel)

    leaving = False
    thread.start()
    try:
        await done(thread.started)
        thread.started.result()
        thread.finished.add_callback(notify)
        broker = Broker(thread.running, ThreadAsyncPortal(thread))
        with listed(broker, options):
            yield broker
    finally:
        leaving = True
        thread.stop()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(MAX_END):
                    await done(thread.finished)  # here clients in this loop still read their last packet
        finally:
            error = thread.outcome()
            if cancelled:
                task.uncancel()
            if error is not None:
                raise error
