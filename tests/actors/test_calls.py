"""Requests and replies."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import trio

from tests.actors.probes import Probe, Waiter, settle, waiter
from trunkline.actors import LATER, Actor, Child, Down, Reply, Restart, Scheduler, Shutdown, Supervisor, system

if TYPE_CHECKING:
    from trio.testing import MockClock


class Later(Actor[object]):
    """Replies to all its calls when it gets a message."""

    def __init__(self) -> None:
        self.waiting: list[Reply] = []

    def handle(self, message: object) -> None:
        if isinstance(message, Exception):
            raise message
        for reply in self.waiting:
            reply.send(message)

    def handle_call(self, request: object) -> object:
        if request == "forgetful":
            return LATER
        if request == "twice":
            self.reply_later()
            self.reply_later()
        if request == "now":
            self.reply_later().send("at once")
            return LATER
        if request == "last words":
            self.stop()
        self.waiting.append(self.reply_later())
        return LATER


async def test_reply() -> None:
    async with system() as actors:
        ref = actors.start(Probe())
        ref.cast(1)
        ref.cast(2)
        assert await ref.call("got") == [1, 2]
        assert await ref.call(None) is None
        assert await ref.call("x", timeout=math.inf) == "x"


async def test_a_call_leaves_no_timer_armed() -> None:
    async with system() as actors:
        await actors.start(Probe()).call("x")
        assert actors.scheduler.timers == 0


async def test_calls_keep_their_place_among_the_casts() -> None:
    async with system() as actors:
        probe = Probe()
        ref = actors.start(probe)
        replies: list[Any] = []

        async def ask() -> None:
            replies.append(await ref.call("got"))

        async with trio.open_nursery() as nursery:
            # Nothing runs in between: all six lie in one batch.
            ref.cast(1)
            nursery.start_soon(ask)
            await trio.lowlevel.checkpoint()
            ref.cast(2)
            nursery.start_soon(ask)
        assert sorted(replies) in ([[1], [1, 2]], [[1, 2], [1, 2]])


async def test_call_times_out(autojump_clock: MockClock) -> None:
    async with system() as actors:
        ref = actors.start(Later())
        start = trio.current_time()
        with pytest.raises(trio.TooSlowError):
            await ref.call("x")
        assert trio.current_time() - start == pytest.approx(5)
        with pytest.raises(trio.TooSlowError):
            await ref.call("x", timeout=60)
        assert trio.current_time() - start == pytest.approx(65)
        ref.cast("too late")
        await settle()
        assert ref.alive
        assert ref._bonds is not None
        assert ref._bonds.owed == set()


async def test_a_cancelled_caller_is_forgotten(autojump_clock: MockClock) -> None:
    async with system() as actors:
        ref = actors.start(Later())
        with trio.move_on_after(1) as scope:
            await ref.call("x")
        assert scope.cancelled_caught
        assert ref._bonds is not None
        assert ref._bonds.owed == set()
        ref.cast("too late")
        await settle()
        assert ref.alive


async def test_deferred_reply(autojump_clock: MockClock) -> None:
    async with system() as actors:
        ref = actors.start(Later())
        replies: list[Any] = []

        async def ask() -> None:
            replies.append(await ref.call("x"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            nursery.start_soon(ask)
            await trio.sleep(1)
            assert replies == []
            ref.cast("both")
        assert replies == ["both", "both"]
        assert await ref.call("now") == "at once"


@pytest.mark.parametrize("request_", ["forgetful", "twice"])
async def test_misuse_of_deferred_replies_crashes(request_: str, caplog: pytest.LogCaptureFixture) -> None:
    async with system() as actors:
        with pytest.raises(Down) as caught:
            await actors.start(Later()).call(request_)
        assert isinstance(caught.value.reason, RuntimeError)
        assert "reply_later" in str(caught.value.reason)


async def test_reply_later_is_for_calls_only(caplog: pytest.LogCaptureFixture) -> None:
    class Confused(Actor[object]):
        def handle(self, message: object) -> None:
            self.reply_later()

    async with system() as actors:
        ref = actors.start(Confused())
        ref.cast(1)
        assert isinstance(await ref.join(), RuntimeError)


async def test_down_when_the_actor_ends_before_its_deferred_reply(caplog: pytest.LogCaptureFixture) -> None:
    error = ValueError()
    downs: list[Down] = []

    async with system() as actors:
        ref = actors.start(Later())

        async def ask() -> None:
            with pytest.raises(Down) as caught:
                await ref.call("x")
            downs.append(caught.value)

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(ask)
            await settle()
            ref.cast(error)
    assert [(down.ref, down.reason) for down in downs] == [(ref, error)] * 3


async def test_down_when_the_actor_stops_in_the_call_that_it_defers() -> None:
    async with system() as actors:
        with pytest.raises(Down) as caught:
            await actors.start(Later()).call("last words")
        assert caught.value.reason is None


async def test_a_crash_in_handle_call_is_down_for_the_caller(caplog: pytest.LogCaptureFixture) -> None:
    async with system() as actors:
        ref = actors.start(Probe())
        error = ValueError()
        with pytest.raises(Down) as caught:
            await ref.call(error)
        assert caught.value.reason is error
        assert await ref.join() is error
    assert len(caplog.records) == 1


@pytest.mark.parametrize("culprit", [ValueError(), "stop"], ids=["crash", "stop"])
async def test_calls_taken_out_of_the_mailbox_fail_too(
    culprit: object, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The rest of the batch that the crash cut short, and what came after it."""
    downs: list[Down] = []

    scheduler = Scheduler()
    supervisor = Supervisor()
    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run, scheduler)
        ref = supervisor.start(Probe())

        async def ask() -> None:
            with pytest.raises(Down) as caught:
                await ref.call("x")
            downs.append(caught.value)

        async with trio.open_nursery() as asking:
            ref.cast(culprit)
            for _ in range(3):
                asking.start_soon(ask)
            await settle()
            assert ref.queued == 4
            scheduler.step()  # all four lie in one batch
            assert ref.queued == 0
        nursery.cancel_scope.cancel()
    assert [down.reason for down in downs] == [culprit if isinstance(culprit, Exception) else None] * 3
    assert trio.current_time() < 1


async def test_down_at_once_when_the_actor_has_ended() -> None:
    async with system() as actors:
        ref = actors.start(Probe())
        ref.stop()
        await settle()
        with pytest.raises(Down):
            await ref.call("x")


async def test_down_at_once_when_the_actor_tears_down(autojump_clock: MockClock) -> None:
    log: list[str] = []
    async with system(Child("w", lambda: Waiter(log, "w", teardown=1), Restart.TEMPORARY)) as actors:
        ref = actors["w"]
        ref.stop(Shutdown())
        await settle()
        with pytest.raises(Down) as caught:
            await ref.call("x")
        assert isinstance(caught.value.reason, Shutdown)
        assert trio.current_time() < 1


async def test_a_call_waits_for_the_setup(autojump_clock: MockClock) -> None:
    log: list[str] = []
    async with system() as actors, trio.open_nursery() as nursery:
        nursery.start_soon(actors.start_child, waiter(log, "w", setup=2))
        await settle()
        (ref,) = actors.supervisor
        ref.cast("first")
        assert await ref.call("got") == ["first"]
        assert trio.current_time() >= 2


async def test_an_actor_that_calls_itself_in_its_setup_is_told_at_once(autojump_clock: MockClock) -> None:
    class Selfish(Probe):
        async def setup(self) -> None:
            await self.ref.call("me")

    async with system() as actors:
        with pytest.raises(RuntimeError, match="calls itself"):
            await actors.start_child(Child("selfish", Selfish))
    assert trio.current_time() < 1


async def test_a_task_may_call_its_own_actor() -> None:
    """No deadlock there: the handlers run elsewhere."""

    class Asking(Probe):
        def init(self) -> None:
            self.start_task(self.ask)

        async def ask(self) -> None:
            self.got.append(await self.ref.call("hello"))

    async with system() as actors:
        asking = Asking()
        actors.start(asking)
        await settle()
        assert asking.got == ["hello"]


async def test_who_asks_is_called_back_once() -> None:
    async with system() as actors:
        ref = actors.start(Probe())
        replies: list[Any] = []
        ref.ask("got", replies.append)
        assert replies == []
        actors.scheduler.step()
        assert [reply.unwrap() for reply in replies] == [[]]
        ref.stop()
        ref.ask("got", replies.append)
        actors.scheduler.step()
        ref.ask("got", replies.append)
        assert len(replies) == 3
        for reply in replies[1:]:
            with pytest.raises(Down):
                reply.unwrap()


async def test_who_is_asked_comes_next() -> None:
    async with system(scheduler=Scheduler(turn_time=math.inf)) as actors:
        order: list[object] = []

        class Noting(Actor[str]):
            def handle(self, message: str) -> None:
                order.append(message)

            def handle_call(self, request: object) -> object:
                order.append(request)
                return None

        refs = [actors.start(Noting()) for _ in range(3)]
        for number, ref in enumerate(refs):
            ref.cast(f"cast {number}")
        refs[1].ask("asked", lambda _: None)
        actors.scheduler.step()
        assert order == ["cast 1", "asked", "cast 0", "cast 2"]
