"""The run queue: fairness, bounds, and who wakes whom."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

import pytest
import trio

from tests.actors.probes import Probe, settle
from trunkline.actors import Actor, Ref, Scheduler, Supervisor, system

if TYPE_CHECKING:
    from trio.testing import MockClock


class Steps(trio.abc.Instrument):
    """Counts how often the scheduler's task runs."""

    def __init__(self) -> None:
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += "_run_shielded" in task.name


class Shared(Actor[Any]):
    """Writes its name into a list with every batch."""

    def __init__(self, name: str, turns: list[tuple[str, int]]) -> None:
        self.name = name
        self.turns = turns

    def handle_many(self, messages: list[Any]) -> None:
        self.turns.append((self.name, len(messages)))


class ManualClock:
    """A perf counter that moves by itself, a bit with every look at it."""

    def __init__(self, tick: float) -> None:
        self.time = 0.0
        self.tick = tick

    def __call__(self) -> float:
        self.time += self.tick
        return self.time


async def test_step_runs_what_is_ready_and_what_that_makes_ready() -> None:
    class Relay(Probe):
        next: Ref[Any] | None = None

        def handle(self, message: Any) -> None:
            super().handle(message)
            if self.next is not None:
                self.next.cast(message + 1)

    scheduler, supervisor = Scheduler(turn_time=inf), Supervisor()
    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run, scheduler)
        probes = [Relay() for _ in range(5)]
        refs = [supervisor.start(probe) for probe in probes]
        for probe, ref in zip(probes, refs[1:], strict=False):
            probe.next = ref
        assert scheduler.step() is False
        refs[0].cast(0)
        assert len(scheduler.ready) == 1
        assert scheduler.step() is False
        assert [probe.got for probe in probes] == [[0], [1], [2], [3], [4]]
        nursery.cancel_scope.cancel()


async def test_a_flooded_actor_does_not_starve_another() -> None:
    turns: list[tuple[str, int]] = []
    async with system(scheduler=Scheduler(batch=10)) as actors:
        flooded = actors.start(Shared("flooded", turns))
        other = actors.start(Shared("other", turns))
        for i in range(35):
            flooded.cast(i)
        other.cast("x")
        await settle()
    assert turns == [("flooded", 10), ("other", 1), ("flooded", 10), ("flooded", 10), ("flooded", 5)]


async def test_the_rest_of_a_flood_comes_before_what_was_cast_meanwhile() -> None:
    class Echo(Probe):
        def handle(self, message: Any) -> None:
            self.got.append(message)
            if message == 0:
                self.ref.cast("later")

    async with system(scheduler=Scheduler(batch=2)) as actors:
        echo = Echo()
        ref = actors.start(echo)
        for i in range(5):
            ref.cast(i)
        await settle()
        assert echo.got == [0, 1, 2, 3, 4, "later"]


async def test_a_flood_with_calls_and_a_stop_in_it_keeps_to_the_bound() -> None:
    turns: list[tuple[str, int]] = []

    class Answering(Shared):
        def handle_call(self, request: object) -> object:
            turns.append(("call", 1))
            return request

    async with system(scheduler=Scheduler(batch=3)) as actors:
        ref = actors.start(Answering("flooded", turns))
        for i in range(4):
            ref.cast(i)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ref.call, "x")
        ref.cast(1)
        ref.stop()
        for i in range(9):
            ref.cast(i)
        await settle()
        assert ref.ended
    assert turns == [("flooded", 3), ("flooded", 1), ("call", 1), ("flooded", 1)]


async def test_a_turn_is_bounded_in_time() -> None:
    """Each look at this clock finds it 4 ms on: a turn of 10 ms is over after three actors."""
    turns: list[tuple[str, int]] = []
    scheduler, supervisor = Scheduler(turn_time=0.010, clock=ManualClock(0.004)), Supervisor()
    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run, scheduler)
        for i in range(7):
            supervisor.start(Shared(str(i), turns)).cast(i)
        assert scheduler.step() is True
        assert len(turns) == 3
        assert scheduler.step() is True
        assert scheduler.step() is False
        assert [name for name, _ in turns] == list("0123456")
        nursery.cancel_scope.cancel()


async def test_other_tasks_run_between_turns() -> None:
    """Two actors that keep each other busy for ever hold up nobody."""

    class Busy(Actor[Any]):
        other: Ref[Any]

        def handle(self, message: Any) -> None:
            self.other.cast(message)

    async with system(scheduler=Scheduler(clock=ManualClock(0.004))) as actors:
        one, two = Busy(), Busy()
        one.other, two.other = actors.start(two), actors.start(one)
        one.other.cast("ball")
        for _ in range(10):
            await trio.lowlevel.checkpoint()
        assert one.other.alive


async def test_a_cast_wakes_the_sleeping_scheduler_once() -> None:
    steps = Steps()
    async with system(scheduler=Scheduler(turn_time=inf)) as actors:
        refs = [actors.start(Probe()) for _ in range(10)]
        await settle()
        trio.lowlevel.add_instrument(steps)
        for ref in refs:
            ref.cast(1)
        await settle()
        trio.lowlevel.remove_instrument(steps)
        assert not any(ref.queued for ref in refs)
    assert steps.count == 1


async def test_a_pollers_turn_wakes_nobody() -> None:
    steps, done = Steps(), list[str]()
    async with system() as actors:
        probe = Probe()
        ref = actors.start(probe)
        await settle()
        trio.lowlevel.add_instrument(steps)
        for i in range(10):
            with actors.scheduler.turn:
                actors.scheduler.at_end(Ending(ref, done, f"{i}"))
                ref.cast(i)
            assert len(probe.got) == len(done) == i + 1
            await trio.lowlevel.checkpoint()
        trio.lowlevel.remove_instrument(steps)
        assert steps.count == 0
        ref.cast("after the turn")
        await settle()
        assert probe.got[-1] == "after the turn"


async def test_what_a_pollers_turn_leaves_over_is_done_by_the_schedulers_task() -> None:
    turns: list[tuple[str, int]] = []
    async with system(scheduler=Scheduler(clock=ManualClock(0.004))) as actors:
        refs = [actors.start(Shared(str(i), turns)) for i in range(10)]
        await settle()
        with actors.scheduler.turn:
            for ref in refs:
                ref.cast(1)
        assert len(turns) == 3
        await settle()
        assert len(turns) == 10


async def test_a_poller_that_fails_in_its_turn_loses_no_message() -> None:
    async with system() as actors:
        probe = Probe()
        ref = actors.start(probe)

        def poll() -> None:
            with actors.scheduler.turn:
                ref.cast(1)
                raise ValueError("poller")

        with pytest.raises(ValueError, match="poller"):
            poll()
        assert probe.got == [1]


async def test_step_without_a_turn_leaves_nothing_over_either() -> None:
    async with system() as actors:
        probe = Probe()
        ref = actors.start(probe)
        await settle()
        ref.cast(1)
        assert actors.scheduler.step() is False
        assert probe.got == [1]
        ref.cast(2)
        await settle()
        assert probe.got == [1, 2]


async def test_now_is_the_time_of_the_turn(autojump_clock: MockClock) -> None:
    seen: list[float] = []

    class Dated(Probe):
        def handle(self, message: Any) -> None:
            seen.append(self.scheduler.now)

    async with system() as actors:
        ref = actors.start(Dated())
        await trio.sleep(60)
        ref.cast(1)
        await settle()
        assert seen == [trio.current_time()]
        await trio.sleep(60)
        with actors.scheduler.turn:
            assert actors.scheduler.now == trio.current_time()


async def test_a_handler_may_not_step(caplog: pytest.LogCaptureFixture) -> None:
    class Nosy(Probe):
        def handle(self, message: Any) -> None:
            self.scheduler.step()

    async with system() as actors:
        ref = actors.start(Nosy())
        ref.cast(1)
        assert isinstance(await ref.join(), RuntimeError)


async def test_a_scheduler_runs_once_at_a_time_and_again_after_that() -> None:
    scheduler, supervisor = Scheduler(), Supervisor()
    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run, scheduler)
        probe = Probe()
        ref = supervisor.start(probe)
        for _ in range(2):
            async with trio.open_nursery() as running:
                await running.start(scheduler.run)
                with pytest.raises(RuntimeError, match="runs already"):
                    await scheduler.run()
                ref.cast(1)
                await settle()
                running.cancel_scope.cancel()
        assert probe.got == [1, 1]
        ref.cast(2)
        assert ref.queued == 1
        nursery.cancel_scope.cancel()


async def test_a_scheduler_that_fails_in_its_sleep_is_not_woken_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler, supervisor = Scheduler(), Supervisor()

    def fail(abort: object) -> None:
        raise ValueError("asleep")

    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run, scheduler)
        probe = Probe()
        ref = supervisor.start(probe)
        with monkeypatch.context() as patch:
            patch.setattr("trunkline.actors.scheduler.wait_task_rescheduled", fail)
            with pytest.RaisesGroup(ValueError):
                async with trio.open_nursery() as running:
                    running.start_soon(scheduler.run)
        ref.cast(1)
        await nursery.start(scheduler.run)
        await settle()
        assert probe.got == [1]
        nursery.cancel_scope.cancel()


async def test_who_waits_for_the_rest_waits_for_all_that_came_of_it() -> None:
    turns: list[tuple[str, int]] = []
    clock = ManualClock(1.0)  # each actor's turn is longer than a turn of the scheduler
    async with system(scheduler=Scheduler(turn_time=0.5, clock=clock)) as actors:
        refs = [actors.start(Shared(str(number), turns)) for number in range(5)]
        with actors.scheduler.turn:
            for ref in refs:
                ref.cast(1)
        assert len(turns) < 5
        await actors.scheduler.drained()
        assert len(turns) == 5


async def test_what_is_left_for_later_keeps_nobody_waiting() -> None:
    class Busy(Probe):
        """Has work for ever, a bit at a time."""

        def handle(self, message: Any) -> None:
            super().handle(message)
            self.scheduler.later(self.ref, message + 1)

    async with system() as actors:
        busy, other = Busy(), Probe()
        ref, another = actors.start(busy), actors.start(other)
        ref.cast(0)
        for number in range(20):
            another.cast(number)
            await actors.scheduler.drained()
            assert len(other.got) == number + 1
        assert busy.got == list(range(len(busy.got)))
        before = len(busy.got)
        await settle_some(actors.scheduler)
        assert len(busy.got) > before, "it goes on by itself"
        ref.stop()
        await settle()


async def test_however_many_leave_much_for_later_others_are_served_in_between() -> None:
    """Each look at this clock finds it 4 ms on: in a turn of 10 ms there is room for three of them, not for all."""
    done: list[int] = []

    class Busy(Probe):
        def handle(self, message: Any) -> None:
            done.append(message)
            self.scheduler.later(self.ref, message)

    async with system(scheduler=Scheduler(turn_time=0.010, clock=ManualClock(0.004))) as actors:
        refs = [actors.start(Busy()) for _ in range(50)]
        for number, ref in enumerate(refs):
            ref.cast(number)
        await actors.scheduler.drained()
        other = Probe()
        another = actors.start(other)
        for number in range(20):
            before = len(done)
            another.cast(number)
            await actors.scheduler.drained()
            assert len(other.got) == number + 1
            assert len(done) - before <= 6
        while len(done) < 150:
            await trio.lowlevel.checkpoint()
        assert done[:150] == [*range(50)] * 3, "each has its turn"
        for ref in refs:
            ref.stop()
        await settle()


async def settle_some(scheduler: Scheduler) -> None:
    for _ in range(5):
        await trio.lowlevel.checkpoint()


class Ending:
    """Does something at the end of a turn, on behalf of an actor."""

    def __init__(self, owner: Ref[Any] | None, done: list[str], what: str) -> None:
        self.owner = owner
        self._done = done
        self._what = what

    def end_turn(self) -> None:
        self._done.append(self._what)
        if self._what == "crash":
            raise ValueError(self._what)


async def test_an_error_at_the_end_of_a_turn_ends_the_actor_on_whose_behalf_it_was() -> None:
    done: list[str] = []
    async with system() as actors:
        faulty, other = actors.start(Probe()), actors.start(Probe())
        with actors.scheduler.turn:
            actors.scheduler.at_end(Ending(faulty, done, "crash"))
            actors.scheduler.at_end(Ending(None, done, "crash"))
            actors.scheduler.at_end(Ending(other, done, "fine"))
        assert done == ["crash", "crash", "fine"]
        assert isinstance(await faulty.join(), ValueError)
        assert await other.call("still there") == "still there"
        assert list(actors.scheduler.crashes.values()) == [1]


async def test_who_waits_for_the_queue_to_drain_waits_no_longer_than_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.actors.scheduler.MAX_DRAIN", 0.01)

    class Restless(Actor[int]):
        def handle(self, message: int) -> None:
            self.ref.cast(message)

    async with system() as actors:
        ref = actors.start(Restless())
        ref.cast(1)
        await actors.scheduler.drained()
        assert actors.scheduler.ready
        ref.stop()
