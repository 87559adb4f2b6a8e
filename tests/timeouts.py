"""A test that takes too long fails alone. An exception that a signal raises while trio waits would leave trio's run
behind, for all later tests of the process to find: in a run, trio raises it, and ends in order."""

import signal
from collections.abc import Generator
from types import FrameType
from typing import Final

import pytest
import trio

#: Seconds for a run to end. After that, or while a task blocks it, the exception is raised wherever the thread is.
TO_END: Final = 30.0


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer() -> Generator[None, object, object]:
    is_set = yield
    fail = signal.getsignal(signal.SIGALRM)
    if not callable(fail):  # it is a thread that watches the time
        return is_set

    def end_run(signum: int, frame: FrameType | None) -> None:
        if not trio.lowlevel.in_trio_run():
            fail(signum, frame)
        signal.signal(signal.SIGALRM, fail)
        signal.setitimer(signal.ITIMER_REAL, TO_END)
        trio.lowlevel.current_trio_token().run_sync_soon(fail, signum, frame)

    signal.signal(signal.SIGALRM, end_run)
    return is_set
