"""A context manager in a thread: opened once, closed by the caller or by the end of the interpreter."""

import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio

from trunkline.actors.context_thread import ContextThread, InThread
from trunkline.actors.trio_thread import Forked

#: Seconds for what should come.
SOON = 60.0


class Closed(Exception):
    pass


class Shop:
    """Is opened in the thread."""

    def __init__(self, opens_in: float = 0.0, closes_in: float = 0.0, failure: Exception | None = None) -> None:
        self.said: list[str] = []
        self.thread = ContextThread("the shop", self.open, stopped=Closed)
        self._opens_in, self._closes_in, self._failure = opens_in, closes_in, failure

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        await trio.sleep(self._opens_in)
        try:
            yield
            self.said.append("left")
            await trio.sleep(self._closes_in)
        except BaseException:  # a nursery may put a group around `Cancelled`
            self.said.append("cancelled")
            raise
        if self._failure is not None:
            raise self._failure

    async def sell(self, name: str) -> str:
        await trio.lowlevel.checkpoint()
        return f"a {name}"

    def price(self, name: str) -> int:
        return len(name)


def test_a_shop_is_opened_once_and_closed() -> None:
    shop = Shop()
    thread = shop.thread
    assert not thread.is_opened
    with pytest.raises(Closed):
        thread.call(shop.price, "lamp")
    thread.close(SOON)  # it was not open
    thread.open(SOON)
    assert thread.is_opened
    assert not thread.is_over
    assert thread.run(SOON, shop.sell, name="lamp") == "a lamp"
    assert thread.call(shop.price, "lamp") == 4
    with pytest.raises(RuntimeError, match="the shop is opened once: make another one"):
        thread.open(SOON)
    thread.close(SOON)
    thread.close(SOON)
    assert thread.is_over
    assert shop.said == ["left"]
    with pytest.raises(Closed):
        thread.run(SOON, shop.sell, "lamp")


def test_one_that_does_not_settle_is_cancelled() -> None:
    shop = Shop()
    shop.thread.open(SOON)
    shop.thread.close(SOON, settles=False)
    assert shop.said == ["cancelled"]


def test_opening_and_closing_take_too_long() -> None:
    slow = Shop(opens_in=SOON * 10)
    with pytest.raises(TimeoutError, match=r"there is no connection within 0\.01 s"):
        slow.thread.open(0.01)
    slow.thread.close(SOON)
    slow = Shop(closes_in=SOON * 10)
    slow.thread.open(SOON)
    with pytest.raises(TimeoutError, match=r"the shop does not close within 0\.01 s"):
        slow.thread.close(0.01)
    slow.thread.close(SOON, settles=False)


def test_the_error_that_ends_it_is_raised_by_close() -> None:
    shop = Shop(failure=OSError("sold out"))
    shop.thread.open(SOON)
    with pytest.raises(OSError, match="sold out"):
        shop.thread.close(SOON)


def test_a_block_opens_and_closes_it() -> None:
    shop = Shop()
    with InThread(shop.thread) as opened:
        assert isinstance(opened, InThread)
        assert shop.thread.call(shop.price, "lamp") == 4
    assert shop.said == ["left"]
    shop = Shop(failure=OSError("sold out"))
    with pytest.raises(OSError, match="sold out"), InThread(shop.thread):
        pass
    shop = Shop()
    with pytest.raises(KeyError), InThread(shop.thread):
        raise KeyError
    assert shop.said == ["cancelled"]
    shop = Shop()
    InThread(shop.thread).open(timeout=SOON).close(timeout=SOON)
    assert shop.said == ["left"]


def test_it_cannot_close_itself() -> None:
    shop = Shop()
    shop.thread.open(SOON)
    with pytest.raises(RuntimeError, match="a hook cannot close the shop"):
        shop.thread.call(shop.thread.close, SOON)
    shop.thread.close(SOON)


def test_what_is_open_is_closed_when_the_interpreter_exits() -> None:
    program = """
from contextlib import asynccontextmanager
from trunkline.actors.context_thread import ContextThread

@asynccontextmanager
async def shop():
    yield
    print("left")

ContextThread("the shop", shop, stopped=ValueError).open(60)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr) == ("left\n", "")


class Stand:
    """A context manager in the shop."""

    def __init__(self, said: list[str], opens_in: float = 0.0) -> None:
        self.said = said
        self.name = ""
        self.error: object = None
        self.ended = threading.Event()
        self._opens_in = opens_in

    async def __aenter__(self) -> str:
        try:
            await trio.sleep(self._opens_in)
        except trio.Cancelled:
            self.said.append("not opened")
            self.ended.set()
            raise
        self.said.append(f"{self.name}opened")
        return "stand"

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        self.error = error
        self.said.append(f"{self.name}closed")
        self.ended.set()


def test_what_is_entered_is_left_by_the_caller() -> None:
    shop = Shop()
    shop.thread.open(SOON)
    stand = Stand(shop.said)
    assert shop.thread.enter(SOON, stand) == "stand"
    shop.thread.leave(stand)
    assert shop.said == ["opened", "closed"]
    shop.thread.close(SOON)


def test_what_an_interrupted_caller_knows_nothing_of_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop()
    shop.thread.open(SOON)
    run = shop.thread.run

    def interrupted(timeout: float | None, function: Callable[[], Awaitable[object]]) -> None:
        run(timeout, function)
        raise KeyboardInterrupt

    monkeypatch.setattr(shop.thread, "run", interrupted)
    stand = Stand(shop.said)
    with pytest.raises(KeyboardInterrupt):
        shop.thread.enter(SOON, stand)
    assert stand.ended.wait(SOON)
    assert shop.said == ["opened", "closed"]
    shop.thread.close(SOON)


def test_what_is_entered_while_the_caller_goes_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop()
    shop.thread.open(SOON)

    def interrupted(_: float | None, function: Callable[[], Awaitable[object]]) -> None:
        shop.thread.opened.submit(function)
        raise KeyboardInterrupt

    monkeypatch.setattr(shop.thread, "run", interrupted)
    stand = Stand(shop.said, opens_in=0.05)
    with pytest.raises(KeyboardInterrupt):
        shop.thread.enter(SOON, stand)
    assert stand.ended.wait(SOON)
    assert shop.said == ["opened", "closed"]
    shop.thread.close(SOON)


def test_what_is_not_entered_in_time_is_not_left() -> None:
    shop = Shop()
    shop.thread.open(SOON)
    stand = Stand(shop.said, opens_in=SOON)
    with pytest.raises(TimeoutError):
        shop.thread.enter(0.01, stand)
    assert shop.said == ["not opened"]
    assert shop.thread.run(SOON, shop.sell, name="lamp") == "a lamp"
    assert shop.said == ["not opened"]
    shop.thread.close(SOON)


def test_what_is_still_entered_is_left_when_the_thread_ends() -> None:
    """The last one first, behind the end of what is open."""
    shop = Shop()
    shop.thread.open(SOON)
    one, two, left = Stand(said := []), Stand(said), Stand(said)
    for stand in (one, left, two):
        stand.name = f"{'one' if stand is one else 'two' if stand is two else 'left'} "
        shop.thread.enter(SOON, stand)
    shop.thread.leave(left)
    shop.thread.leave(left)
    shop.thread.close(SOON)
    assert shop.said == ["left"]
    assert said == ["one opened", "left opened", "two opened", "left closed", "two closed", "one closed"]
    with pytest.raises(Closed):
        shop.thread.leave(one)
    assert len(said) == 6


def test_an_error_of_a_block_goes_to_its_end() -> None:
    shop = Shop()
    shop.thread.open(SOON)
    stand = Stand(shop.said)
    shop.thread.enter(SOON, stand)
    error = KeyError("mine")
    shop.thread.leave(stand, KeyError, error, None)
    assert stand.error is error
    shop.thread.close(SOON)


def test_leaving_has_no_effect_in_a_process_that_was_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop()

    def forked(*_: object) -> None:
        raise Forked

    monkeypatch.setattr(shop.thread, "run", forked)
    shop.thread.leave(Stand(shop.said))
    assert shop.said == []
