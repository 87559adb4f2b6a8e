"""What one thread lays down and others pick up: nothing is lost, whatever ends a call."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import trio

from trunkline.actors.context_thread import ContextThread
from trunkline.nats.errors import ClientClosed
from trunkline.nats.sync.handover import MAX_TAKEN, Handover

#: Seconds for what should come.
SOON = 60.0


class Source:
    """Gives the numbers below `end`, those below `waiting` without waiting for them, and then an error."""

    def __init__(self, waiting: int, end: int = 1 << 30) -> None:
        self.waiting = waiting
        self.end = end
        self.next = 0
        self.more = trio.Event()

    async def receive(self) -> int:
        if self.next >= self.end:
            raise ValueError(f"{self.next} is the end")
        if self.next >= self.waiting and not self.more.is_set():
            await self.more.wait()
        self.next += 1
        return self.next - 1


@pytest.fixture
def thread() -> Iterator[ContextThread]:
    @asynccontextmanager
    async def nothing() -> AsyncIterator[None]:
        yield

    thread = ContextThread("the client", nothing, stopped=lambda: ClientClosed("the client is not open"))
    thread.open(SOON)
    yield thread
    thread.close(SOON)


def test_one_at_a_time(thread: ContextThread) -> None:
    source = Source(3)
    handover = Handover(thread, source.receive)
    assert handover.pick_up(SOON) == 0
    assert (len(handover), source.next) == (0, 1)


def test_many_at_a_time(thread: ContextThread) -> None:
    source = Source(3)
    handover = Handover(thread, source.receive, many=True)
    assert handover.pick_up(SOON) == 0
    assert (len(handover), source.next) == (2, 3)
    assert [handover.pick_up(0) for _ in range(2)] == [1, 2]
    with pytest.raises(TimeoutError, match=r"nothing came within 0\.01 s"):
        handover.pick_up(0.01)
    thread.call(source.more.set)
    assert handover.pick_up(SOON) == 3
    assert len(handover) == MAX_TAKEN - 1


@pytest.mark.parametrize("many", [False, True])
def test_an_error_comes_behind_what_was_there(thread: ContextThread, many: bool) -> None:
    handover = Handover(thread, Source(2, end=2).receive, many=many)
    assert [handover.pick_up(SOON) for _ in range(2)] == [0, 1]
    for _ in range(2):
        with pytest.raises(ValueError, match="2 is the end"):
            handover.pick_up(SOON)


def test_what_is_laid_down_outlives_the_thread(thread: ContextThread) -> None:
    handover = Handover(thread, Source(2).receive, many=True)
    assert handover.pick_up(None) == 0
    thread.close(SOON)
    assert handover.pick_up(None) == 1
    with pytest.raises(ClientClosed):
        handover.pick_up(None)
