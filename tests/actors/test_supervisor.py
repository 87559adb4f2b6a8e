"""Tests of `supervisor` and `child`: who is started, restarted and stopped, and in which order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from tests.actors.probes import Probe, Waiter, settle, tasks_under, waiter
from trunkline.actors import (
    Child,
    Down,
    Ref,
    Restart,
    Scheduler,
    Shutdown,
    Supervisor,
    TooManyRestarts,
    system,
)

if TYPE_CHECKING:
    from trio.testing import MockClock

ENDS: dict[str, Any] = {"normal": None, "shutdown": Shutdown(), "crash": ValueError("fault")}


def end(ref: Ref[Any], how: str) -> None:
    if how == "crash":
        ref.cast(ENDS[how])
    else:
        ref.stop(ENDS[how])


# -- restarts


@pytest.mark.parametrize("has_setup", [True, False])
@pytest.mark.parametrize("victim", ["a", "b", "c"])
async def test_a_child_that_crashes_is_restarted_alone(
    victim: str, has_setup: bool, caplog: pytest.LogCaptureFixture
) -> None:
    log: list[str] = []
    names = ["a", "b", "c"]
    children = [waiter(log, name) if has_setup else Child(name, Probe) for name in names]
    async with system(*children) as actors:
        before = {name: actors[name] for name in names}
        log.clear()
        before[victim].cast(ValueError("fault"))
        await settle()
        assert [name for name in names if actors[name] is not before[name]] == [victim]
        assert all(actors[name].alive for name in names)
        assert [name for name in names if before[name].ended] == [victim]
        assert log == ([f"-{victim}", f"+{victim}"] if has_setup else [])
    assert len(caplog.records) == 1


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("restart", Restart)
async def test_when_a_child_is_restarted(restart: Restart, how: str, caplog: pytest.LogCaptureFixture) -> None:
    async with system(Child("a", Probe, restart)) as actors:
        ref = actors["a"]
        end(ref, how)
        await settle()
        again = restart is Restart.PERMANENT or (restart is Restart.TRANSIENT and how == "crash")
        assert ("a" in actors.supervisor) == again
        assert actors.supervisor.count == again
        if not again:
            with pytest.raises(KeyError):
                actors["a"]
        # A temporary child's spec goes with it; a transient one's name stays taken.
        if restart is Restart.TEMPORARY:
            await actors.start_child(Child("a", Probe))
        elif restart is Restart.TRANSIENT:
            with pytest.raises(ValueError, match="'a' already"):
                await actors.start_child(Child("a", Probe))
    assert len(caplog.records) == (how == "crash")


async def test_a_restart_is_a_new_object(caplog: pytest.LogCaptureFixture) -> None:
    async with system(Child("a", Probe)) as actors:
        actors["a"].cast("state")
        assert await actors["a"].call("got") == ["state"]
        actors["a"].cast(ValueError())
        await settle()
        assert await actors["a"].call("got") == []


async def test_the_log_names_the_error_and_not_the_nursery_around_it(caplog: pytest.LogCaptureFixture) -> None:
    fault, other = ValueError("fault"), KeyError("other")
    async with system(Child("a", Probe), intensity=2) as actors:
        for error in (
            ExceptionGroup("nursery", [ExceptionGroup("inner", [fault])]),
            ExceptionGroup("two", [fault, other]),
        ):
            actors["a"].cast(error)
            await settle()
    one, two = caplog.records
    assert one.getMessage().endswith("a crashed: ValueError('fault')")
    assert one.exc_info is not None
    assert one.exc_info[1] is fault
    assert "ExceptionGroup('two'" in two.getMessage()


# -- intensity


async def crash(actors: Any, name: str = "a") -> None:
    actors[name].cast(ValueError("fault"))
    await settle()


async def crash_again_and_again(times: int, *, every: float, intensity: int) -> None:
    async with system(Child("a", Probe), intensity=intensity, period=5) as actors:
        for _ in range(times):
            await crash(actors)
            await trio.sleep(every)
        assert actors["a"].alive


@pytest.mark.parametrize("intensity", [0, 1, 3])
async def test_more_restarts_than_the_intensity_allows(
    intensity: int, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    await crash_again_and_again(intensity, every=0.1, intensity=intensity)
    with pytest.raises(TooManyRestarts) as caught:
        await crash_again_and_again(intensity + 1, every=0.1, intensity=intensity)
    assert caught.value.supervisor == "root"


async def test_restarts_outside_the_period_do_not_count(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    await crash_again_and_again(20, every=2.6, intensity=2)  # two in any five seconds
    with pytest.raises(TooManyRestarts):
        await crash_again_and_again(3, every=2.4, intensity=2)


async def test_normal_ends_of_a_permanent_child_count_too(autojump_clock: MockClock) -> None:
    async def stop_twice() -> None:
        async with system(Child("a", Probe), intensity=1) as actors:
            for _ in range(2):
                actors["a"].stop()
                await settle()

    with pytest.raises(TooManyRestarts):
        await stop_twice()


async def test_a_restart_that_fails_is_tried_again_and_counts(caplog: pytest.LogCaptureFixture) -> None:
    log: list[str] = []

    def script(outcomes: list[bool]) -> Child:  # which starts fail, the last entry first
        return waiter(log, "a", fail_setup=outcomes.pop)

    async with system(script([False, True, True, False]), intensity=3) as actors:
        await crash(actors)
        assert log == ["+a", "-a", "+a"]
        assert actors["a"].alive
    assert caplog.text.count("a did not start again") == 2
    log.clear()

    async def give_up() -> None:
        async with system(script([True, True, True, False]), intensity=3) as actors:
            await crash(actors)
            await trio.sleep_forever()

    with pytest.raises(TooManyRestarts) as caught:
        await give_up()
    assert str(caught.value.reason) == "no setup of a"


async def test_one_faulty_child_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async with system(Child("a", Probe), Child("b", Probe)) as actors:
        other = actors["b"]
        await crash(actors)
        assert actors["b"] is other


# -- starting and stopping


async def test_a_failed_start_stops_what_had_started() -> None:
    log: list[str] = []
    supervisor = Supervisor(waiter(log, "a"), waiter(log, "b"), waiter(log, "c", fail_setup=lambda: True))
    with pytest.raises(ValueError, match="no setup of c"):
        await supervisor.run(Scheduler())
    assert log == ["+a", "+b", "-b", "-a"]


async def test_each_child_has_its_own_bound_at_the_end(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    log: list[str] = []
    start = trio.current_time()
    async with system(
        waiter(log, "a", teardown=100, shutdown=1),
        waiter(log, "b", teardown=2),
        waiter(log, "c", teardown=100, shutdown=4),
        waiter(log, "d", teardown=100, shutdown=0),
    ):
        pass
    assert trio.current_time() - start == pytest.approx(1 + 2 + 4)
    assert log[4:] == ["-b"]


async def test_dynamic_children_stop_at_the_same_time(autojump_clock: MockClock) -> None:
    log: list[str] = []

    class Slow(Probe):
        async def teardown(self, reason: object) -> None:
            await trio.sleep(3)
            log.append("-dynamic")

    start = trio.current_time()
    async with system(waiter(log, "a")) as actors:
        for _ in range(100):
            actors.start(Slow())
    assert trio.current_time() - start == pytest.approx(3)
    assert log == ["+a", *["-dynamic"] * 100, "-a"]


async def test_a_crash_in_teardown_does_not_disturb_the_others(caplog: pytest.LogCaptureFixture) -> None:
    log: list[str] = []
    async with system(waiter(log, "a"), waiter(log, "b", fail_teardown=True)):
        pass
    assert log == ["+a", "+b", "-b", "-a"]
    assert len(caplog.records) == 1


async def test_dynamic_start_and_stop(autojump_clock: MockClock) -> None:
    log: list[str] = []
    async with system(waiter(log, "a")) as actors:
        ref = await actors.start_child(waiter(log, "b", setup=1, teardown=2))
        assert actors["b"] is ref
        other = await actors.start_child(Child("c", Probe))
        assert list(actors.supervisor) == [actors["a"], ref, other]
        assert actors.supervisor.count == 3
        reason = await actors.supervisor.stop_child("b")
        assert isinstance(reason, Shutdown)
        assert ref.ended
        assert "b" not in actors.supervisor
        with pytest.raises(KeyError):
            await actors.supervisor.stop_child("b")
        await actors.start_child(waiter(log, "b"))
        log.clear()
    assert log == ["-b", "-a"]


async def test_stop_child_holds_though_its_caller_gives_up(autojump_clock: MockClock) -> None:
    log: list[str] = []
    async with system(waiter(log, "a", teardown=3)) as actors:
        with trio.move_on_after(1):
            await actors.supervisor.stop_child("a")
        assert "a" in actors.supervisor
        await trio.sleep(3)
        assert "a" not in actors.supervisor
    assert log == ["+a", "-a"]


async def test_stop_child_of_one_that_has_ended() -> None:
    async with system(Child("a", Probe, Restart.TRANSIENT)) as actors:
        actors["a"].stop()
        await settle()
        assert await actors.supervisor.stop_child("a") is None
        await actors.start_child(Child("a", Probe))


async def test_a_started_child_is_supervised_like_the_first_ones(caplog: pytest.LogCaptureFixture) -> None:
    async with system() as actors:
        ref = await actors.start_child(Child("a", Probe))
        await crash(actors)
        assert actors["a"] is not ref
        assert actors["a"].alive


async def test_many_dynamic_children_come_and_go() -> None:
    async with system() as actors:
        refs = [actors.start(Probe(), name=str(i)) for i in range(1000)]
        assert actors.supervisor.count == 1000
        for ref in refs[::2]:
            ref.stop()
        await settle()
        assert list(actors.supervisor) == refs[1::2]


async def test_what_start_refuses(autojump_clock: MockClock) -> None:
    log: list[str] = []
    supervisor = Supervisor(name="mine")
    with pytest.raises(RuntimeError, match="mine isn't running"):
        supervisor.start(Probe())
    with pytest.raises(ValueError, match="same name"):
        Supervisor(Child("a", Probe), Child("a", Probe))
    async with system(waiter(log, "a", teardown=1)) as actors:
        with pytest.raises(TypeError, match="await start_child"):
            actors.start(Waiter(log, "w"))
        assert "w" not in actors.supervisor
        with pytest.raises(RuntimeError, match="runs already"):
            await actors.supervisor.run(actors.scheduler)
        late = actors.supervisor
    with pytest.raises(RuntimeError, match="isn't running"):
        late.start(Probe())
    with pytest.raises(RuntimeError, match="isn't running"):
        await late.start_child(Child("c", Probe))
    assert repr(late) == "<Supervisor root>"


async def test_stopping_cuts_a_slow_start_short(autojump_clock: MockClock) -> None:
    log: list[str] = []
    scheduler, supervisor = Scheduler(), Supervisor()
    async with trio.open_nursery() as outer:
        async with trio.open_nursery() as nursery:
            await nursery.start(supervisor.run, scheduler)

            async def start() -> None:
                with pytest.raises(Down) as caught:
                    await supervisor.start_child(waiter(log, "a", setup=1000))
                assert isinstance(caught.value.reason, Shutdown)
                log.append("told")

            outer.start_soon(start)
            await trio.sleep(1)
            nursery.cancel_scope.cancel()
        assert trio.current_time() == pytest.approx(1)
    assert log == ["told"]


async def test_a_restart_waits_for_a_start_that_is_under_way(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    log: list[str] = []
    async with system(waiter(log, "a")) as actors, trio.open_nursery() as nursery:
        nursery.start_soon(actors.start_child, waiter(log, "b", setup=2))
        await settle()
        await crash(actors)
        assert log == ["+a", "-a"]
        await trio.sleep(3)
        assert log == ["+a", "-a", "+b", "+a"]


# -- supervisors of supervisors


async def test_nested_supervisors_start_and_stop_in_order(autojump_clock: MockClock) -> None:
    log: list[str] = []

    def inner() -> Supervisor:
        return Supervisor(waiter(log, "b"), waiter(log, "c", teardown=20, shutdown=30), name="inner")

    # An inner supervisor has the time that its children need, whatever its own `shutdown` says.
    async with system(waiter(log, "a"), Child("inner", inner, shutdown=1), waiter(log, "d")):
        pass
    assert log == ["+a", "+b", "+c", "+d", "-d", "-c", "-b", "-a"]


async def test_too_many_restarts_go_to_the_parent(caplog: pytest.LogCaptureFixture) -> None:
    log: list[str] = []
    inner: list[Supervisor] = []

    def start() -> Supervisor:
        inner.append(Supervisor(waiter(log, "b"), waiter(log, "c"), intensity=0, name="inner"))
        return inner[-1]

    async with system(waiter(log, "a"), Child("inner", start)) as actors:
        ref = actors["inner"]
        log.clear()
        await crash(inner[0], "b")
        assert log == ["-b", "-c", "+b", "+c"]
        assert isinstance(await ref.join(), TooManyRestarts)
        assert actors["inner"].alive
        assert inner[1]["b"].alive
    # The crash with its traceback, the rest one line each.
    assert [record.exc_info is not None for record in caplog.records] == [True, False]


async def test_too_many_restarts_go_all_the_way_up(caplog: pytest.LogCaptureFixture) -> None:
    supervisors: list[Supervisor] = []

    def start() -> Supervisor:
        supervisors.append(Supervisor(Child("a", Probe), intensity=0, name="inner"))
        return supervisors[-1]

    async def crash_twice() -> None:
        async with system(Child("inner", start), intensity=1):
            await crash(supervisors[-1])
            await crash(supervisors[-1])
            await trio.sleep_forever()

    with pytest.raises(TooManyRestarts, match="root gave up: inner") as caught:
        await crash_twice()
    assert isinstance(caught.value.reason, TooManyRestarts)


async def test_a_supervisor_object_may_be_run_again(caplog: pytest.LogCaptureFixture) -> None:
    inner = Supervisor(Child("a", Probe), intensity=0, name="inner")
    async with system(Child("inner", lambda: inner)):
        ref = inner["a"]
        await crash(inner)
        assert inner["a"] is not ref
        assert await inner["a"].call("x") == "x"


async def test_a_nested_supervisor_that_cannot_start() -> None:
    log: list[str] = []

    def inner() -> Supervisor:
        return Supervisor(waiter(log, "b"), waiter(log, "c", fail_setup=lambda: True))

    with pytest.raises(ValueError, match="no setup of c"):
        async with system(waiter(log, "a"), Child("inner", inner)):
            pytest.fail("it has not started")
    assert log == ["+a", "+b", "-b", "-a"]


async def test_a_nested_supervisor_can_be_watched_and_stopped(autojump_clock: MockClock) -> None:
    log: list[str] = []
    async with system() as actors:
        before = tasks_under(trio.lowlevel.current_task())
        inner = Child("inner", lambda: Supervisor(waiter(log, "a", teardown=4)), Restart.TEMPORARY)
        ref = await actors.start_child(inner)
        watcher = Probe()
        ref.monitor(actors.start(watcher))
        ref.stop()
        assert await ref.join() is None
        await settle()
        assert log == ["+a", "-a"]
        assert trio.current_time() == pytest.approx(4)
        assert len(watcher.got) == 1
        assert tasks_under(trio.lowlevel.current_task()) == before


async def test_a_supervision_tree_leaves_no_task_behind(caplog: pytest.LogCaptureFixture) -> None:
    log: list[str] = []

    def middle() -> Supervisor:
        return Supervisor(Child("low", lambda: Supervisor(waiter(log, "a"), name="low")), waiter(log, "b"))

    task = trio.lowlevel.current_task()
    before = tasks_under(task)
    async with trio.open_nursery() as nursery:
        scheduler = Scheduler()
        await nursery.start(scheduler.run)
        async with trio.open_nursery() as inner:
            top = Supervisor(Child("middle", middle))
            await inner.start(top.run, scheduler)
            assert tasks_under(task) > before
            inner.cancel_scope.cancel()
        assert tasks_under(task) == before + 1
        nursery.cancel_scope.cancel()
    assert log == ["+a", "+b", "-b", "-a"]
    assert tasks_under(task) == before
