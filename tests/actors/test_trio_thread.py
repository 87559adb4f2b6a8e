"""A trio run in a thread: calls from other threads, their timeouts and interrupts, its end, and forks."""

import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress

import pytest
import trio

from trunkline.actors.trio_thread import TrioThread, limit


class Stopped(Exception):
    pass


class Home:
    """What lives in the thread."""

    def __init__(self) -> None:
        self.cancelled = 0
        self.fail = trio.Event()

    async def wait(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            self.cancelled += 1

    async def double(self, number: int) -> int:
        await trio.lowlevel.checkpoint()
        return 2 * number


@asynccontextmanager
async def home() -> AsyncIterator[Home]:
    async with trio.open_nursery() as nursery:
        found = Home()

        async def fails() -> None:
            await found.fail.wait()
            raise LookupError("a bug")

        nursery.start_soon(fails)
        yield found
        nursery.cancel_scope.cancel()


@pytest.fixture
def thread() -> Iterator[TrioThread[Home]]:
    thread = TrioThread("the home", home, stopped=Stopped)
    thread.start()
    yield thread
    thread.stop()
    thread.outcome(60)


def test_calls(thread: TrioThread[Home]) -> None:
    found = thread.started.result()
    assert thread.call(abs, -1) == 1
    assert thread.call(threading.current_thread).name == "trunkline home"
    assert thread.run(found.double, 2) == 4
    assert thread.run(found.double, 2, timeout=60) == 4
    with pytest.raises(ZeroDivisionError):
        thread.call(divmod, 1, 0)


def test_a_call_in_the_thread_itself(thread: TrioThread[Home]) -> None:
    found = thread.started.result()
    assert thread.call(thread.call, abs, -1) == 1
    with pytest.raises(RuntimeError, match="in the thread of the home, such as a hook, cannot wait for the home"):
        thread.call(thread.run, found.wait)


@pytest.mark.parametrize("seconds", [0, 0.01])
def test_a_timeout_cancels(thread: TrioThread[Home], seconds: float) -> None:
    found = thread.started.result()
    with pytest.raises(TimeoutError, match=f"no answer within {seconds:g} s"):
        thread.run(found.wait, timeout=seconds)
    assert thread.call(lambda: len(thread._nursery.child_tasks)) == 0


def test_what_is_ready_at_the_timeout_is_returned(thread: TrioThread[Home]) -> None:
    """As a subscription, which nobody would end otherwise."""

    async def finished() -> str:
        with suppress(trio.Cancelled):
            await trio.sleep_forever()
        return "done"

    assert thread.run(finished, timeout=0) == "done"


def test_a_timeout_of_the_function_is_its_own(thread: TrioThread[Home]) -> None:
    async def fails() -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        thread.run(fails, timeout=60)


def test_timeouts_as_locks_take_them() -> None:
    assert limit(None) == -1
    assert limit(1.5) == 1.5
    assert limit(float("inf")) == threading.TIMEOUT_MAX
    for wrong in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="negative"):
            limit(wrong)


def test_the_end(thread: TrioThread[Home]) -> None:
    found = thread.started.result()
    waiting, errors = threading.Event(), list[BaseException]()

    async def wait() -> None:
        waiting.set()
        await found.wait()

    def wait_there() -> None:
        try:
            thread.run(wait)
        except Stopped as error:
            errors.append(error)

    other = threading.Thread(target=wait_there)
    other.start()
    assert waiting.wait(60)
    thread.stop()
    assert thread.outcome(60) is None
    other.join(60)
    assert len(errors) == found.cancelled == 1
    with pytest.raises(Stopped):
        thread.call(abs, -1)
    with pytest.raises(Stopped):
        thread.run(found.double, 1)
    thread.stop()


def test_an_error_ends_it_and_is_raised_by_all_calls(thread: TrioThread[Home]) -> None:
    found = thread.started.result()

    async def wait() -> None:
        found.fail.set()
        await found.wait()

    with pytest.raises(LookupError, match="a bug"):
        thread.run(wait)
    depths = set[int]()
    for _ in range(3):
        with pytest.raises(LookupError, match="a bug") as caught:
            thread.call(abs, -1)
        depths.add(len(caught.traceback))
    assert len(depths) == 1
    assert isinstance(thread.outcome(60), LookupError)


def test_an_error_at_the_start() -> None:
    @asynccontextmanager
    async def fails() -> AsyncIterator[None]:
        raise LookupError("no home")
        yield

    thread = TrioThread("the home", fails, stopped=Stopped)
    thread.start()
    with pytest.raises(LookupError, match="no home"):
        thread.started.result()
    assert isinstance(thread.outcome(60), LookupError)


def test_a_thread_that_does_not_end_is_shown() -> None:
    go_on = threading.Event()

    @asynccontextmanager
    async def busy() -> AsyncIterator[None]:
        try:
            yield
        finally:
            go_on.wait()

    thread = TrioThread("the home", busy, stopped=Stopped)
    thread.start()
    thread.started.result()
    thread.stop()
    assert "the home does not end within 0.01 s\nits thread is at" in str(thread.outcome(0.01))
    go_on.set()
    assert thread.outcome(60) is None


FORKS = """
import os, warnings
from contextlib import asynccontextmanager
from trunkline.actors.trio_thread import Forked, TrioThread

@asynccontextmanager
async def home():
    yield

warnings.simplefilter("ignore", DeprecationWarning)  # of forks
thread = TrioThread("the home", home, stopped=RuntimeError)
thread.start()
thread.started.result()
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
try:
    print(thread.call(os.getpid) == os.getpid(), flush=True)
except Forked as error:
    print(error, flush=True)
thread.stop()
thread.outcome(60)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="it has no forks")
def test_a_fork_leaves_the_thread_behind() -> None:
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    child, parent = done.stdout.splitlines()
    assert child.startswith("the home was started in process ")
    assert parent == "True"
