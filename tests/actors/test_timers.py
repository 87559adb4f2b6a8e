"""Deadlines: order, never early, cheap to push back."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from tests.actors.probes import Probe
from trunkline.actors import system
from trunkline.actors.timers import MIN_STALE, Deadlines, Timer

if TYPE_CHECKING:
    from trio.testing import MockClock


def deadlines() -> Deadlines:
    return Deadlines(lambda due: None)


def fire(queue: Deadlines, now: float) -> None:
    for timer in queue.pop_due(now):
        timer.fire(now)


def test_timers_fire_in_the_order_of_their_deadlines() -> None:
    queue = deadlines()
    fired: list[str] = []
    for name, deadline in (("c", 3.0), ("a", 1.0), ("b", 2.0), ("b2", 2.0)):
        Timer(queue, fired.append, (name,)).restart_at(deadline)
    assert len(queue) == 4
    assert queue.next == 1.0
    fire(queue, 0.999)
    assert fired == []
    fire(queue, 2.0)
    assert fired == ["a", "b", "b2"]
    fire(queue, 10)
    assert fired == ["a", "b", "b2", "c"]
    assert len(queue) == 0
    assert queue.next == inf


def test_a_timer_pushed_back_fires_once_at_its_last_deadline() -> None:
    queue = deadlines()
    fired: list[str] = []
    timer = Timer(queue, fired.append, ("x",))
    timer.restart_at(1)
    for deadline in range(2, 1000):
        timer.restart_at(deadline)
    assert len(queue._entries) == 1
    fire(queue, 998.9)
    assert fired == []
    fire(queue, 999)
    fire(queue, 2000)
    assert fired == ["x"]


def test_a_timer_pushed_back_fires_in_its_new_place() -> None:
    queue = deadlines()
    fired: list[str] = []
    for name, deadline in (("pushed back", 1), ("other", 2)):
        timer = Timer(queue, fired.append, (name,))
        timer.restart_at(deadline)
        if name == "pushed back":
            timer.restart_at(3)
    fire(queue, 5)
    assert fired == ["other", "pushed back"]


def test_a_timer_brought_forward_fires_once() -> None:
    queue = deadlines()
    fired: list[str] = []
    timer = Timer(queue, fired.append, ("x",))
    timer.restart_at(10)
    timer.restart_at(5)
    assert len(queue) == 1
    fire(queue, 5)
    fire(queue, 10)
    assert fired == ["x"]
    assert len(queue) == 0


def test_cancel_and_arm_again() -> None:
    queue = deadlines()
    fired: list[str] = []
    timer = Timer(queue, fired.append, ("x",))
    timer.restart_at(1)
    timer.cancel()
    timer.cancel()
    assert not timer.armed
    assert len(queue) == 0
    fire(queue, 2)
    assert fired == []
    timer.restart_at(3)
    assert timer.armed
    timer.cancel()
    timer.restart_at(4)
    assert len(queue) == 1
    fire(queue, 3)
    assert fired == []
    fire(queue, 4)
    assert fired == ["x"]
    assert not timer.armed


def test_a_callback_may_cancel_or_push_back_what_is_due_with_it() -> None:
    queue = deadlines()
    fired: list[str] = []
    cancelled, later = (Timer(queue, fired.append, (name,)) for name in ("cancelled", "later"))

    def first() -> None:
        fired.append("first")
        cancelled.cancel()
        later.restart_at(2)

    Timer(queue, first, ()).restart_at(1)
    cancelled.restart_at(1)
    later.restart_at(1)
    fire(queue, 1)
    assert fired == ["first"]
    assert len(queue) == 1
    fire(queue, 2)
    assert fired == ["first", "later"]


def test_a_callback_that_arms_itself_again_waits_for_the_next_round() -> None:
    queue = deadlines()
    fired: list[int] = []

    def again() -> None:
        fired.append(1)
        timer.restart_at(1)

    timer = Timer(queue, again, ())
    timer.restart_at(1)
    fire(queue, 1)
    assert len(fired) == 1
    fire(queue, 1)
    assert len(fired) == 2


def test_cancelled_timers_do_not_pile_up() -> None:
    queue = deadlines()
    kept = [Timer(queue, lambda: None, ()) for _ in range(10)]
    for timer in kept:
        timer.restart_at(1000)
    for _ in range(10_000):
        timer = Timer(queue, lambda: None, ())
        timer.restart_at(500)
        timer.cancel()
    assert len(queue) == 10
    assert len(queue._entries) <= 2 * MIN_STALE + 10


OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["arm", "cancel", "tick"]), st.integers(0, 5), st.integers(0, 30)), max_size=400
)


@given(OPERATIONS)
def test_against_a_model(operations: list[tuple[str, int, int]]) -> None:
    """Any mixture of arming, cancelling and waiting fires what a plain dictionary of deadlines would fire."""
    queue = deadlines()
    fired: list[int] = []
    timers = [Timer(queue, fired.append, (number,)) for number in range(6)]
    model: dict[int, float] = {}
    now = 0.0
    for operation, number, amount in operations:
        if operation == "arm":
            timers[number].restart_at(now + amount)
            model[number] = now + amount
        elif operation == "cancel":
            timers[number].cancel()
            model.pop(number, None)
        else:
            now += amount
            due = {number for number, deadline in model.items() if deadline <= now}
            fire(queue, now)
            assert sorted(fired) == sorted(due)
            assert [model[number] for number in fired] == sorted(model.pop(number) for number in due)
            fired.clear()
        assert len(queue) == len(model) == sum(timer.armed for timer in timers)
        assert queue.stale >= 0


async def test_one_hour_passes_without_waiting(autojump_clock: MockClock) -> None:
    times: list[float] = []
    async with system() as actors:
        start = trio.current_time()
        for minutes in (60, 1, 30):
            actors.scheduler.call_at(start + 60 * minutes, lambda: times.append(trio.current_time() - start))
        assert actors.scheduler.timers == 3
        await trio.sleep(3601)
    assert times == [pytest.approx(60), pytest.approx(1800), pytest.approx(3600)]
    assert all(time >= due for time, due in zip(times, (60, 1800, 3600), strict=True))


async def test_a_sooner_timer_is_heard_while_the_scheduler_sleeps(autojump_clock: MockClock) -> None:
    times: list[float] = []
    async with system() as actors:
        start = trio.current_time()
        actors.scheduler.call_at(start + 100, lambda: times.append(trio.current_time() - start))
        await trio.sleep(1)
        timer = actors.scheduler.call_at(inf, lambda: times.append(trio.current_time() - start))
        assert not timer.armed
        timer.restart(9)
        await trio.sleep(200)
    assert times == [pytest.approx(10), pytest.approx(100)]


async def test_a_keep_alive_pushed_back_again_and_again(autojump_clock: MockClock) -> None:
    times: list[float] = []
    async with system() as actors:
        start = trio.current_time()
        timer = actors.scheduler.call_at(start + 90, lambda: times.append(trio.current_time() - start))
        for _ in range(10):
            await trio.sleep(60)
            timer.restart(90)
        await trio.sleep(200)
    assert times == [pytest.approx(690)]


async def test_a_callback_that_raises_ends_the_actor_that_armed_it(autojump_clock: MockClock) -> None:
    async with system() as actors:
        faulty, other = Probe(), Probe()
        for actor in (faulty, other):
            actors.start(actor)
        now = trio.current_time()
        faulty.call_at(now + 1, {}.__getitem__, "key")
        late = faulty.call_at(now + 1, faulty.got.append, "late")
        other.call_at(now + 1, other.got.append, "on time")
        assert isinstance(await faulty.ref.join(), KeyError)
        assert trio.current_time() == now + 1
        await trio.sleep(1)
        late.restart(1)
        await trio.sleep(2)
        assert (faulty.got, other.got) == ([], ["on time"])
        assert other.ref.alive


async def test_a_timer_of_an_actor_that_has_ended_does_not_fire(autojump_clock: MockClock) -> None:
    async with system() as actors:
        probe = Probe()
        actors.start(probe)
        probe.call_at(trio.current_time() + 1, probe.got.append, "too late")
        probe.stop()
        await trio.sleep(2)
        assert probe.got == []


async def test_a_callback_of_no_actor_that_raises_is_called_again(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    fired: list[float] = []
    failures = 5

    def faulty() -> None:
        fired.append(trio.current_time() - start)
        if actors.scheduler.crashes.total() < failures:
            raise ValueError

    async with system() as actors:
        start = trio.current_time()
        actors.scheduler.call_at(start + 1, faulty)
        actors.scheduler.call_at(start + 1, fired.append, 1)
        await trio.sleep(20)
        assert actors.scheduler.crashes.total() == failures
    assert fired == pytest.approx([1, 1, 2, 3, 4, 5, 6]), "the other's one, and six calls"
    assert len(caplog.records) == 3, "the 1st, 2nd and 4th"
