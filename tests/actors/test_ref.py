"""Tests of `ref` and `bonds`: mailboxes, monitors, what one actor does to another."""

from __future__ import annotations

import gc
import logging
import weakref
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.actors.probes import Probe, Waiter, settle
from trunkline.actors import Actor, Child, Down, Ref, Restart, Scheduler, Shutdown, system


async def test_casts_arrive_in_order() -> None:
    async with system() as actors:
        probe = Probe()
        ref = actors.start(probe)
        for i in range(10):
            ref.cast(i)
        assert ref.queued == 10
        await settle()
        assert probe.got == list(range(10))
        assert ref.queued == 0


async def test_a_batch_is_one_call_of_handle_many() -> None:
    batches: list[list[int]] = []

    class Bulk(Actor[int]):
        def handle_many(self, messages: list[int]) -> None:
            batches.append(messages)

    async with system() as actors:
        ref = actors.start(Bulk())
        for i in range(5):
            ref.cast(i)
        await settle()
        ref.cast(5)
        await settle()
    assert batches == [[0, 1, 2, 3, 4], [5]]


@settings(max_examples=50)
@given(
    script=st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["cast", "call", "yield"])), max_size=60),
    batch=st.integers(1, 5),
)
def test_each_sender_is_first_come_first_served(script: list[tuple[int, str]], batch: int) -> None:
    """Whatever mixture of casts and calls, and however small the turns are."""
    arrived: list[tuple[int, int]] = []

    class Receiver(Actor[tuple[int, int]]):
        def handle(self, message: tuple[int, int]) -> None:
            arrived.append(message)

        def handle_call(self, request: object) -> object:
            assert isinstance(request, tuple)
            arrived.append(request)
            return request

    class Sender(Actor[list[tuple[int, str]]]):
        """Sends its part of the script from a task of its own."""

        def __init__(self, number: int, receiver: Ref[tuple[int, int]]) -> None:
            self.number = number
            self.receiver = receiver

        def handle(self, message: list[tuple[int, str]]) -> None:
            self.start_task(self.play, message)

        async def play(self, part: list[tuple[int, str]]) -> None:
            for i, (_, what) in enumerate(part):
                if what == "cast":
                    self.receiver.cast((self.number, i))
                elif what == "call":
                    assert await self.receiver.call((self.number, i)) == (self.number, i)
                else:
                    await trio.lowlevel.checkpoint()

    async def play() -> None:
        async with system(scheduler=Scheduler(batch=batch)) as actors:
            receiver = actors.start(Receiver())
            for number in range(4):
                actors.start(Sender(number, receiver)).cast([step for step in script if step[0] == number])
            await settle()

    trio.run(play)
    for number in range(4):
        part = [step for step in script if step[0] == number]
        expected = [(number, i) for i, (_, what) in enumerate(part) if what != "yield"]
        assert [message for message in arrived if message[0] == number] == expected


async def test_cast_to_an_actor_that_stops_or_has_ended_is_dropped() -> None:
    log: list[str] = []
    async with system(Child("w", lambda: Waiter(log, "w", teardown=1), Restart.TEMPORARY)) as actors:
        ref = actors["w"]
        ref.stop()
        ref.cast("before the stop is handled, but after it")
        await settle()
        assert not ref.alive
        assert not ref.ended
        ref.cast("in teardown")
        assert ref.queued == 0


async def test_cast_after_the_end(autojump_clock: trio.testing.MockClock) -> None:
    async with system() as actors:
        probe = Probe()
        ref = actors.start(probe)
        ref.cast(1)
        ref.stop()
        assert await ref.join() is None
        ref.cast(2)
        ref.stop()
        await settle()
        assert probe.got == [1]
        assert ref.ended
        assert repr(ref) == "<Ref Probe (down)>"


async def test_stop_comes_after_what_was_cast_before() -> None:
    async with system() as actors:
        probe = Probe()
        ref = actors.start(probe)
        ref.cast(1)
        ref.stop()
        ref.cast(2)
        await settle()
        assert probe.got == [1]


async def test_an_actor_that_stops_itself_ends_after_the_batch() -> None:
    async with system() as actors:
        probe = Probe()
        ref = actors.start(probe)
        for message in (1, "stop", 2):
            ref.cast(message)
        assert await ref.join() is None
        assert probe.got == [1, "stop", 2]


async def test_an_ended_actor_is_freed_though_its_reference_is_kept() -> None:
    async with system() as actors:
        probe = Probe()
        ref = actors.start(probe)
        gone = weakref.ref(probe)
        ref.stop()
        await settle()
        del probe
        gc.collect()
        assert gone() is None
        assert not ref.alive


async def test_handler_that_raises_ends_that_actor_alone(caplog: pytest.LogCaptureFixture) -> None:
    async with system() as actors:
        probe, other = Probe(), Probe()
        ref, another = actors.start(probe, name="faulty"), actors.start(other)
        error = ValueError("fault")
        for message in (1, error, 2):
            ref.cast(message)
        another.cast(1)
        assert await ref.join() is error
        assert probe.got == [1]
        assert other.got == [1]
        assert another.alive
    (record,) = [record for record in caplog.records if record.name == "trunkline.actors"]
    assert record.levelno == logging.ERROR
    assert "faulty" in record.message
    assert record.exc_info is not None
    assert record.exc_info[1] is error


async def test_shutdown_raised_by_a_handler_is_no_crash(caplog: pytest.LogCaptureFixture) -> None:
    async with system() as actors:
        ref = actors.start(Probe())
        ref.cast(Shutdown("taken over"))
        reason = await ref.join()
        assert isinstance(reason, Shutdown)
    assert not caplog.records


async def test_a_crash_after_stop_in_the_same_batch_is_a_crash(caplog: pytest.LogCaptureFixture) -> None:
    async with system() as actors:
        ref = actors.start(Probe())
        error = ValueError()
        ref.cast("stop")
        ref.cast(error)
        assert await ref.join() is error
    assert len(caplog.records) == 1


async def test_monitor_gets_one_down_as_a_message(caplog: pytest.LogCaptureFixture) -> None:
    async with system() as actors:
        watcher = Probe()
        watching = actors.start(watcher)
        ref = actors.start(Probe(), name="x")
        one, two = ref.monitor(watching), ref.monitor(watching)
        error = ValueError("fault")
        ref.cast(error)
        await settle()
        assert all(isinstance(message, Down) for message in watcher.got)
        assert {message.monitor for message in watcher.got} == {one, two}
        assert {message.reason for message in watcher.got} == {error}
        assert str(watcher.got[0]) == "x is down (ValueError('fault'))"
        assert watching.alive


async def test_monitor_of_an_ended_actor_reports_at_once() -> None:
    async with system() as actors:
        watcher = Probe()
        watching = actors.start(watcher)
        ref = actors.start(Probe(), name="x")
        ref.stop()
        await settle()
        monitor = ref.monitor(watching)
        await settle()
        (down,) = watcher.got
        assert (down.ref, down.reason, down.monitor) == (ref, None, monitor)
        assert str(down) == "x is down (normal)"


async def test_demonitor() -> None:
    async with system() as actors:
        watcher = Probe()
        ref = actors.start(Probe())
        ref.demonitor(ref.monitor(actors.start(watcher)))
        ref.stop()
        await settle()
        assert watcher.got == []


async def test_a_watcher_that_ends_leaves_nothing_with_whom_it_watched() -> None:
    async with system() as actors:
        ref = actors.start(Probe())
        watching = actors.start(Probe())
        ref.monitor(watching)
        watching.stop()
        await settle()
        assert ref._bonds is not None
        assert ref._bonds.monitors == set()
        ref.monitor(watching)
        assert ref._bonds.monitors == set()


async def test_an_actor_that_takes_no_messages_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async with system() as actors:
        ref: Ref[Any] = actors.start(Actor[Any]())
        ref.cast("unexpected")
        assert isinstance(await ref.join(), NotImplementedError)
        ref = actors.start(Actor[Any]())
        with pytest.raises(Down) as caught:
            await ref.call("unexpected")
        assert isinstance(caught.value.reason, NotImplementedError)


async def test_what_is_handed_to_an_idle_actor_is_handled_at_once() -> None:
    async with system() as actors:
        probe = Probe()
        ref = actors.start(probe)
        with actors.scheduler.turn:
            assert ref.hand(1)
            assert probe.got == [1]
            ref.cast(2)
            assert not ref.hand(3), "nothing overtakes what waits"
        assert probe.got == [1, 2]


async def test_what_is_handed_overtakes_what_the_actor_lets_it() -> None:
    class Yielding(Probe):
        def yields(self, messages: list[Any]) -> bool:
            return messages == ["late"]

    async with system() as actors:
        probe = Yielding()
        ref = actors.start(probe)
        with actors.scheduler.turn:
            ref.cast("late")
            assert ref.hand(1)
            assert probe.got == [1]
            ref.stop()
            assert not ref.hand(2)
        assert probe.got == [1, "late"], "and a stop keeps its place"


async def test_no_handler_runs_within_another() -> None:
    class Handing(Probe):
        other: Ref[Any]

        def handle(self, message: Any) -> None:
            super().handle((message, self.other.hand(message), self.ref.hand(message)))

    async with system() as actors:
        probe, handing = Probe(), Handing()
        handing.other = actors.start(probe)
        with actors.scheduler.turn:
            ref = actors.start(handing)
            assert ref.hand(1)
            ref.cast(2)
        assert handing.got == [(1, False, False), (2, False, False)]
        assert probe.got == []


async def test_a_crash_while_something_is_handed_over_ends_that_actor_alone(caplog: pytest.LogCaptureFixture) -> None:
    async with system() as actors:
        probe = Probe()
        ref = actors.start(probe, name="faulty")
        error = ValueError("fault")
        with actors.scheduler.turn:
            assert ref.hand(error)
            assert not ref.hand(1)
        assert await ref.join() is error
        assert probe.got == []
    (record,) = caplog.records
    assert "faulty" in record.message
