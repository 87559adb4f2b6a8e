"""A test that takes too long fails alone. An exception that a signal raises while trio waits would leave trio's run
behind, for all later tests of the process to find: so the test is cancelled, then what is left of the run ends, and
only then comes the exception."""

import inspect
import signal
from collections.abc import Callable, Generator, Iterator
from functools import partial, wraps
from types import FrameType
from typing import Any, Final

import pytest
import trio

#: Seconds for each of these.
TO_END: Final = 30.0

Fail = Callable[[int, FrameType | None], Any]


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item: pytest.Function) -> Generator[None, object, object]:
    is_set = yield
    fail = signal.getsignal(signal.SIGALRM)
    if callable(fail):  # otherwise a thread watches the time
        ways: Iterator[Fail] = iter([_cancelling(item, fail), partial(_end_run, fail), fail])

        def end(signum: int, frame: FrameType | None) -> None:
            if not trio.lowlevel.in_trio_run():
                fail(signum, frame)
            signal.setitimer(signal.ITIMER_REAL, TO_END)
            next(ways)(signum, frame)

        signal.signal(signal.SIGALRM, end)
    return is_set


def _cancelling(item: pytest.Function, fail: Fail) -> Fail:
    """Lets the test fail by being cancelled; its fixtures end in order."""
    scope, test = trio.CancelScope(), item.obj
    if not inspect.iscoroutinefunction(test):
        return partial(_end_run, fail)

    @wraps(test)
    async def cancellable(*args: Any, **kwargs: Any) -> None:
        with scope:
            await test(*args, **kwargs)
        if scope.cancelled_caught:
            fail(signal.SIGALRM, None)

    item.obj = cancellable
    return lambda signum, frame: scope.cancel()


def _end_run(fail: Fail, signum: int, frame: FrameType | None) -> None:
    trio.lowlevel.current_trio_token().run_sync_soon(fail, signum, frame)
