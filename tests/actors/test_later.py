"""Work that an actor does later: after a delay, in slices, in a task."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import trio
import trio.testing
from trio.testing import MockClock

from trunkline.actors import Actor, Due, Later, Paced, system


class Worker(Actor[Due]):
    def __init__(self) -> None:
        self.turn = 0

    def init(self) -> None:
        self.later = Later(self.ref, self.scheduler)

    def handle_many(self, messages: list[Due]) -> None:
        self.turn += 1
        for message in messages:
            message.action()


@asynccontextmanager
async def worker() -> AsyncIterator[Worker]:
    async with system() as running:
        actor = Worker()
        running.supervisor.start(actor)
        yield actor


async def test_a_timer_calls_in_the_actors_turn_unless_it_is_stopped(autojump_clock: MockClock) -> None:
    async with worker() as actor:
        done: list[tuple[str, int]] = []
        actor.later.after(5, lambda: done.append(("five", actor.turn)))
        actor.later.after(3, lambda: done.append(("three", actor.turn)))
        stop = actor.later.after(4, lambda: done.append(("four", actor.turn)))
        stop()
        await trio.sleep(6)
    assert done == [("three", 1), ("five", 2)]


async def test_one_slice_a_turn() -> None:
    async with worker() as actor:
        turns: list[int] = []

        def slices() -> Iterator[None]:
            for _ in range(4):
                turns.append(actor.turn)
                yield

        actor.later.soon(lambda: actor.later.in_slices(slices()))
        await trio.testing.wait_all_tasks_blocked()
    assert turns == [1, 2, 3, 4]


async def test_slices_that_are_closed_end_there() -> None:
    async with worker() as actor:
        done = 0

        def work() -> Iterator[None]:
            nonlocal done
            while True:
                done += 1
                if done == 3:
                    actor.later.soon(slices.close)
                yield

        slices = work()
        actor.later.soon(lambda: actor.later.in_slices(slices))
        await trio.testing.wait_all_tasks_blocked()
    assert done in (3, 4)


async def test_a_task_ends_with_the_actor() -> None:
    async with worker() as actor:
        ended = False

        async def task() -> None:
            nonlocal ended
            try:
                await trio.sleep_forever()
            finally:
                ended = True

        actor.later.start_task(task)
        await trio.testing.wait_all_tasks_blocked()
        assert not ended
        actor.stop()
        await trio.testing.wait_all_tasks_blocked()
        assert ended


async def test_others_run_after_so_many_items() -> None:
    log: list[str | int] = []

    async def other() -> None:
        while True:
            log.append("other")
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        await trio.lowlevel.checkpoint()
        log.clear()
        async for item in Paced(range(7), 3):
            log.append(item)
        nursery.cancel_scope.cancel()
    assert [entry for entry in log if entry != "other"] == list(range(7))
    assert log[:3] == [0, 1, 2]
    assert "other" in log[: log.index(6)]
