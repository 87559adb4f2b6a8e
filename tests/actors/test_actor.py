"""What an actor may use: init, setup, teardown, tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from tests.actors.probes import Probe, Waiter, settle, tasks_under, waiter
from trunkline.actors import Actor, Child, Down, Reason, Restart, Shutdown, system

if TYPE_CHECKING:
    from trio.testing import MockClock


class Worker(Probe):
    """Runs a task a message: the message is a coroutine function."""

    def handle(self, message: Any) -> None:
        self.got.append(self.start_task(message))


async def test_init_runs_before_the_first_message() -> None:
    class Eager(Probe):
        def init(self) -> None:
            self.ref.cast("from init")
            self.got.append(self.scheduler)

    async with system() as actors:
        eager = Eager()
        actors.start(eager).cast("later")
        await settle()
        assert eager.got == [actors.scheduler, "from init", "later"]


async def test_an_actor_without_anything_to_await_has_no_task() -> None:
    async with system() as actors:
        before = tasks_under(trio.lowlevel.current_task())
        refs = [actors.start(Probe()) for _ in range(100)]
        for ref in refs:
            ref.cast(1)
        await settle()
        assert tasks_under(trio.lowlevel.current_task()) == before


async def test_setup_and_teardown_leave_no_task_in_between() -> None:
    log: list[str] = []
    async with system() as actors:
        before = tasks_under(trio.lowlevel.current_task())
        for name in "abc":
            await actors.start_child(waiter(log, name))
        await settle()
        assert tasks_under(trio.lowlevel.current_task()) == before


async def test_messages_wait_for_the_setup(autojump_clock: MockClock) -> None:
    log: list[str] = []
    probe = Waiter(log, "w", setup=3)
    async with system() as actors, trio.open_nursery() as nursery:
        nursery.start_soon(actors.start_child, Child("w", lambda: probe))
        await settle()
        actors["w"].cast("early")
        await trio.sleep(2.9)
        assert probe.got == []
        await trio.sleep(0.2)
        assert probe.got == ["early"]


@pytest.mark.parametrize("reason", [None, Shutdown(), ValueError()])
async def test_teardown_is_told_the_reason(reason: Reason, caplog: pytest.LogCaptureFixture) -> None:
    told: list[Reason] = []

    class Torn(Probe):
        async def teardown(self, reason: Reason) -> None:
            await trio.lowlevel.checkpoint()
            told.append(reason)

    async with system() as actors:
        ref = actors.start(Torn())
        if isinstance(reason, ValueError):
            ref.cast(reason)
        else:
            ref.stop(reason)
        assert await ref.join() is reason
    assert told == [reason]


async def test_a_crash_in_teardown_becomes_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    log: list[str] = []
    async with system() as actors:
        ref = await actors.start_child(waiter(log, "w", Restart.TEMPORARY, fail_teardown=True))
        ref.stop()
        assert isinstance(await ref.join(), KeyError)
    assert len(caplog.records) == 1


async def test_a_crash_in_teardown_does_not_hide_the_one_before(caplog: pytest.LogCaptureFixture) -> None:
    log: list[str] = []
    async with system() as actors:
        ref = await actors.start_child(waiter(log, "w", Restart.TEMPORARY, fail_teardown=True))
        error = ValueError()
        ref.cast(error)
        assert await ref.join() is error
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [KeyError, ValueError]


async def test_teardown_is_bounded(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    log: list[str] = []
    async with system() as actors:
        ref = await actors.start_child(waiter(log, "w", Restart.TEMPORARY, shutdown=2, teardown=100))
        ref.stop()
        assert await ref.join() is None
        assert trio.current_time() == pytest.approx(2)
    assert log == ["+w"]
    assert "longer than 2" in caplog.text


async def test_tasks_are_cancelled_and_awaited_before_teardown(autojump_clock: MockClock) -> None:
    log: list[str] = []

    class Busy(Probe):
        def init(self) -> None:
            self.start_task(self.work)

        async def work(self) -> None:
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await trio.sleep(1)
                log.append("task")

        async def teardown(self, reason: Reason) -> None:
            await trio.lowlevel.checkpoint()
            log.append("teardown")

    async with system() as actors:
        before = tasks_under(trio.lowlevel.current_task())
        ref = actors.start(Busy())
        await settle()
        assert tasks_under(trio.lowlevel.current_task()) == before + 1
        ref.stop()
        await ref.join()
        assert log == ["task", "teardown"]
        assert trio.current_time() == pytest.approx(1)
        await settle()
        assert tasks_under(trio.lowlevel.current_task()) == before


async def test_a_task_that_will_not_end_is_left_behind(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def stubborn() -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(60)

    async with system() as actors:
        ref = actors.start(Worker(), shutdown=2)
        ref.cast(stubborn)
        await settle()
        ref.stop()
        await ref.join()
        assert trio.current_time() == pytest.approx(2)
    assert "tasks still run" in caplog.text


async def test_a_task_that_raises_crashes_its_actor(caplog: pytest.LogCaptureFixture) -> None:
    error = ValueError()

    async def faulty() -> None:
        await trio.lowlevel.checkpoint()
        raise error

    async with system() as actors:
        ref = actors.start(Worker())
        ref.cast(trio.sleep_forever)
        ref.cast(faulty)
        assert await ref.join() is error
    assert len(caplog.records) == 1


async def test_a_task_that_raises_while_it_is_cancelled_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def faulty() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError

    async with system() as actors:
        ref = actors.start(Worker())
        ref.cast(faulty)
        await settle()
        ref.stop()
        assert await ref.join() is None
    assert "task crashed while it ended" in caplog.text


async def test_one_task_can_be_cancelled_alone() -> None:
    async with system() as actors:
        worker = Worker()
        ref = actors.start(worker)
        ref.cast(trio.sleep_forever)
        ref.cast(trio.sleep_forever)
        await settle()
        assert ref._bonds is not None
        assert ref._bonds.scopes == set(worker.got)
        worker.got[0].cancel()
        await settle()
        assert ref._bonds.scopes == {worker.got[1]}
        assert ref.alive


async def test_an_actor_that_has_ended_starts_no_task() -> None:
    async with system() as actors:
        worker = Worker()
        ref = actors.start(worker)
        ref.stop()
        await settle()
        with pytest.raises(RuntimeError, match="has ended"):
            worker.start_task(trio.sleep_forever)


async def test_a_failed_init_is_raised_to_the_starter() -> None:
    class Faulty(Probe):
        def init(self) -> None:
            self.start_task(trio.sleep_forever)
            raise ValueError("no init")

    async with system() as actors:
        before = tasks_under(trio.lowlevel.current_task())
        with pytest.raises(ValueError, match="no init"):
            actors.start(Faulty())
        with pytest.raises(ValueError, match="no init"):
            await actors.start_child(Child("f", Faulty))
        assert actors.supervisor.count == 0
        await settle()
        assert tasks_under(trio.lowlevel.current_task()) == before


async def test_a_failed_setup_is_raised_to_the_starter(caplog: pytest.LogCaptureFixture) -> None:
    log: list[str] = []
    async with system() as actors:
        with pytest.raises(ValueError, match="no setup of w"):
            await actors.start_child(waiter(log, "w", fail_setup=lambda: True))
        assert "w" not in actors.supervisor
        await actors.start_child(waiter(log, "w"))
    # No teardown without a setup; and who is told of an error needn't find it in the log.
    assert log == ["+w", "-w"]
    assert not caplog.records


async def test_a_setup_can_be_cancelled_by_its_starter(autojump_clock: MockClock) -> None:
    log: list[str] = []
    async with system() as actors:
        with trio.move_on_after(1) as scope:
            await actors.start_child(waiter(log, "w", setup=60))
        assert scope.cancelled_caught
        assert "w" not in actors.supervisor
    assert log == []


async def test_calls_that_wait_for_a_setup_fail_with_it(autojump_clock: MockClock) -> None:
    log: list[str] = []
    failed: list[str] = []
    async with system() as actors:

        async def start() -> None:
            with pytest.raises(ValueError, match="no setup"):
                await actors.start_child(waiter(log, "w", setup=1, fail_setup=lambda: True))
            failed.append("start")

        async def ask() -> None:
            with pytest.raises(Down):
                await actors["w"].call("x")
            failed.append("call")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(start)
            await settle()
            nursery.start_soon(ask)
    assert sorted(failed) == ["call", "start"]
    assert trio.current_time() == pytest.approx(1)


async def test_send_after_is_never_early(autojump_clock: MockClock) -> None:
    times: list[float] = []

    class Timed(Actor[float]):
        def handle(self, message: float) -> None:
            times.append(trio.current_time() - message)

    async with system() as actors:
        timed = Timed()
        actors.start(timed)
        await trio.sleep(60)  # the scheduler's own idea of the time is a minute old now
        for delay in (3, 1, 2, 0.5):
            timed.send_after(delay, trio.current_time() + delay)
        await trio.sleep(5)
    assert len(times) == 4
    assert all(0 <= late < 1e-6 for late in times)


async def test_a_timer_of_an_ended_actor_does_nothing(autojump_clock: MockClock) -> None:
    async with system() as actors:
        probe = Probe()
        ref = actors.start(probe)
        await settle()
        timer = probe.send_after(10, "late")
        ref.stop()
        await trio.sleep(11)
        assert not timer.armed
        assert probe.got == []
