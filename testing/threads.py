"""A broker in a thread of its own, with a trio run of its own: for synchronous code, and for asyncio.

All that touches the broker is done in its thread. Plain calls are short and block the caller in any case, in asyncio
too.
"""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar, TypeVarTuple

import trio

from trunkline.actors.trio_thread import TrioThread
from trunkline.hooks.chain import Hooks
from trunkline.testing.broker import Broker, BrokerProxy
from trunkline.testing.clock import AdvancingClock
from trunkline.testing.portal import AsyncPortal, BlockingPortal, Portal, in_trio
from trunkline.testing.report import listed
from trunkline.testing.running import opened

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator

    from trunkline.actors.answer import Answer
    from trunkline.hooks.points import Point
    from trunkline.hooks.registration import Registration
    from trunkline.testing.running import Options, RunningBroker

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


#: Seconds to wait for the end of a broker. A plugin may take fifteen.
MAX_END: Final = 30.0


class BrokerThread(TrioThread["RunningBroker"]):
    """The thread, from its start to its end."""

    def __init__(self, options: Options) -> None:
        super().__init__(
            "the broker",
            lambda: opened(options),
            stopped=lambda: RuntimeError("the broker has been stopped"),
            clock=AdvancingClock(),
        )

    @property
    def running(self) -> RunningBroker:
        return self.started.result()

    def at_work(self) -> Iterator[str]:
        if self.started.done:
            for shard in self.running.whole.shards:
                for name, tasks in shard.plugins.at_work():
                    yield f"the plugin {name} still runs: {', '.join(tasks) or 'it has no tasks'}"
        yield from super().at_work()


class _ThreadPortal(Portal):
    def __init__(self, thread: BrokerThread) -> None:
        super().__init__()
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
        return self.thread.run(function, *args)


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

    def check(self) -> None:
        __tracebackhide__ = True
        super().check()
        self.awaitable.check()


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
            if options.checked:
                broker.check()
    finally:
        if not sys.is_finalizing():  # the block was not left, and threads don't run any more
            thread.stop()
            if (error := thread.outcome(MAX_END)) is not None:
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
            broker.check()
    finally:
        leaving = True
        thread.stop()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(MAX_END):
                    await done(thread.finished)  # here clients in this loop still read their last packet
        finally:
            error = thread.outcome(MAX_END)
            if cancelled:
                task.uncancel()
            if error is not None:
                raise error
