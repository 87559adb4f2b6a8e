"""The whole of it, opened and closed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from tests.actors.probes import Probe, settle, tasks_under, waiter
from trunkline.actors import Child, Reason, Ref, Supervisor, TooManyRestarts, system

if TYPE_CHECKING:
    from trio.testing import MockClock


async def test_children_run_for_the_length_of_the_block() -> None:
    log: list[str] = []
    async with system(waiter(log, "a"), waiter(log, "b")) as actors:
        await actors.start_child(waiter(log, "c"))
        assert log == ["+a", "+b", "+c"]
        assert actors["b"].alive
    assert log == ["+a", "+b", "+c", "-c", "-b", "-a"]


async def test_no_task_is_left(caplog: pytest.LogCaptureFixture) -> None:
    log: list[str] = []
    task = trio.lowlevel.current_task()
    before = tasks_under(task)
    async with system(waiter(log, "a")) as actors:
        actors["a"].cast(ValueError())
        await settle()
        assert tasks_under(task) > before
    assert tasks_under(task) == before


async def test_an_error_in_the_block_comes_out_as_it_is(autojump_clock: MockClock) -> None:
    log: list[str] = []
    with pytest.raises(ValueError, match="mine"):
        async with system(waiter(log, "a"), waiter(log, "b", teardown=1)):
            raise ValueError("mine")
    assert log == ["+a", "+b", "-b", "-a"]


async def test_a_group_raised_in_the_block_stays_a_group() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        async with system():
            raise ExceptionGroup("mine", [ValueError(), KeyError()])
    assert len(caught.value.exceptions) == 2


async def test_a_failed_start_comes_out_as_it_is() -> None:
    log: list[str] = []
    with pytest.raises(ValueError, match="no setup of b"):
        async with system(waiter(log, "a"), waiter(log, "b", fail_setup=lambda: True), waiter(log, "c")):
            pytest.fail("it has not started")
    assert log == ["+a", "-a"]


async def test_too_many_restarts_end_the_block(caplog: pytest.LogCaptureFixture) -> None:
    log: list[str] = []

    async def main() -> None:
        async with system(waiter(log, "a"), waiter(log, "b"), intensity=0) as actors:
            actors["a"].cast(ValueError("fault"))
            await trio.sleep_forever()

    with pytest.raises(TooManyRestarts, match="root gave up: a ended too often") as caught:
        await main()
    assert caught.value.child == "a"
    assert isinstance(caught.value.reason, ValueError)
    assert log == ["+a", "+b", "-a", "-b"]


async def test_cancellation_stops_in_reverse_order_and_waits_for_teardown(autojump_clock: MockClock) -> None:
    log: list[str] = []
    with trio.move_on_after(10) as scope:
        async with system(*(waiter(log, name, teardown=1) for name in "abc")):
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert log == ["+a", "+b", "+c", "-c", "-b", "-a"]
    assert trio.current_time() == pytest.approx(13)


async def test_tasks_end_in_order_too_when_all_is_cancelled(autojump_clock: MockClock) -> None:
    """The first child's task isn't cancelled while the second one still tears down."""
    log: list[str] = []

    class Worker(Probe):
        def init(self) -> None:
            self.start_task(self.work)

        async def work(self) -> None:
            try:
                await trio.sleep_forever()
            finally:
                log.append("task of a")

    with trio.move_on_after(10):
        async with system(Child("a", Worker), waiter(log, "b", teardown=1)):
            await trio.sleep_forever()
    assert log == ["+b", "-b", "task of a"]


async def test_a_teardown_may_call_another_actor(autojump_clock: MockClock) -> None:
    heard: list[Any] = []

    class Polite(Probe):
        def __init__(self, other: Ref[Any]) -> None:
            super().__init__()
            self.other = other

        async def teardown(self, reason: Reason) -> None:
            heard.append(await self.other.call("goodbye"))

    with trio.move_on_after(10):
        async with system(Child("a", Probe)) as actors:
            other = actors["a"]
            await actors.start_child(Child("b", lambda: Polite(other)))
            await trio.sleep_forever()
    assert heard == ["goodbye"]


async def test_cancellation_during_a_slow_setup_is_prompt(autojump_clock: MockClock) -> None:
    log: list[str] = []
    with trio.move_on_after(10) as scope:
        async with system(waiter(log, "a"), waiter(log, "b", setup=1000)):
            pytest.fail("it has not started")
    assert scope.cancelled_caught
    assert trio.current_time() == pytest.approx(10)
    assert log == ["+a", "-a"]


@pytest.mark.parametrize("where", ["handler", "task"])
def test_keyboard_interrupt_stops_everything(where: str) -> None:
    log: list[str] = []

    async def interrupt() -> None:
        raise KeyboardInterrupt

    class Interrupted(Probe):
        def handle(self, message: Any) -> None:
            if where == "handler":
                raise KeyboardInterrupt
            self.start_task(interrupt)

    async def main() -> None:
        async with system(waiter(log, "a"), Child("i", Interrupted)) as actors:
            actors["i"].cast("now")
            await trio.sleep_forever()

    with pytest.raises(KeyboardInterrupt):
        trio.run(main)
    assert log[0] == "+a"
    if where == "handler":
        assert log == ["+a", "-a"]


@pytest.mark.parametrize("turns", range(8))
async def test_nothing_is_left_when_it_is_cancelled_while_it_starts(turns: int) -> None:
    log: list[str] = []
    task = trio.lowlevel.current_task()
    before = tasks_under(task)
    async with trio.open_nursery() as nursery:

        async def cancel() -> None:
            for _ in range(turns):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()

        nursery.start_soon(cancel)
        async with system(waiter(log, "a"), Child("nested", lambda: Supervisor(waiter(log, "b")))):
            await trio.sleep_forever()
    assert tasks_under(task) == before
    assert log in ([], ["+a", "-a"], ["+a", "+b", "-b", "-a"])
