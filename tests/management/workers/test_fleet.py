"""All workers together, without processes: they are what the test says."""

import os
import socket
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from trunkline.broker.net.listening_sockets import SocketsWanted
from trunkline.config.config import Config
from trunkline.config.listener_settings import ListenerSettings
from trunkline.config.node_settings import StoreSettings
from trunkline.management.workers import fleet as fleets
from trunkline.management.workers.backoff import FIRST, LONGEST, LOOP, STEADY
from trunkline.management.workers.channel import WorkerChannel
from trunkline.management.workers.fleet import DEAF_TIME, LAST_WORDS, RELOAD_TIME, Fleet, FleetSettings
from trunkline.management.workers.messages import (
    AlarmIs,
    Alive,
    AllQuiet,
    CannotStart,
    Message,
    Quiet,
    Ready,
    Reload,
    Reloaded,
    SocketsAre,
    SocketsClosed,
    WantSockets,
    Welcome,
)
from trunkline.management.workers.shared_sockets import SharedSockets
from trunkline.management.workers.terms import StartTerms
from trunkline.management.workers.worker_process import WorkerProcess

pytestmark = pytest.mark.skipif(os.name == "nt", reason="there are no workers there")


class Worker(WorkerProcess):
    """Ends when it is told to; the test says the rest through `theirs`."""

    def __init__(self, welcome: Welcome, arguments: Sequence[str], inherited: Iterable[int]) -> None:
        del arguments, inherited
        self.welcome = welcome
        self.number = welcome.number
        self.ready = self.is_quiet = self.is_reloading = self.is_stuck = False
        self.failure = None
        self.started_at = self.alive_at = trio.current_time()
        self.heard = trio.Event()
        ours, theirs = socket.socketpair()
        self.channel, self.theirs = WorkerChannel(ours), WorkerChannel(theirs)
        self._code: int | None = None
        self._over = trio.Event()
        #: Whether it ends when it is asked to.
        self.is_obedient = True
        self.asked_to_end = 0

    @property
    def pid(self) -> int:
        return 1

    @property
    def exit_code(self) -> int | None:
        return self._code

    async def wait(self) -> None:
        await self._over.wait()

    def end_with(self, code: int) -> None:
        if self._code is None:
            self._code = code
            self.theirs.close()
            self._over.set()

    def stop(self) -> None:
        self.asked_to_end += 1
        if self.is_obedient:
            self.end_with(0)

    def kill(self) -> None:
        self.end_with(-9)


class Node:
    def __init__(self, fleet: Fleet, sockets: SharedSockets) -> None:
        self.fleet = fleet
        self.sockets = sockets

    def worker(self, number: int) -> Worker:
        found = self.fleet.workers[number]
        assert isinstance(found, Worker)
        return found

    async def say(self, number: int, *messages: Message) -> None:
        for message in messages:
            self.worker(number).theirs.send(message)
        await settle()

    async def heard(self, number: int) -> Message:
        found = await self.worker(number).theirs.receive()
        assert found is not None
        return found[0]


async def settle() -> None:
    """Until what was said was heard: sockets are slower than tasks."""
    await trio.testing.wait_all_tasks_blocked(0.001)
    await trio.testing.wait_all_tasks_blocked(0.001)


@asynccontextmanager
async def running(
    monkeypatch: pytest.MonkeyPatch, workers: int = 2, sign_of_life: float = 0.0, *, serving: bool = True
) -> AsyncGenerator[Node]:
    monkeypatch.setattr(fleets, "WorkerProcess", Worker)
    terms = StartTerms(Config(store=StoreSettings(durability="memory")), workers, lambda: 0)
    sockets = SharedSockets()
    fleet = Fleet(FleetSettings(workers, Path("/nowhere"), ["serve"], [], sign_of_life), terms, sockets)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fleet.run)
        await settle()
        node = Node(fleet, sockets)
        if serving:
            for number in range(workers):
                await node.say(number, Ready())
            assert fleet.serving.is_set()
        yield node
        await fleet.stop(1)
    sockets.close()
    assert not fleet.workers


async def test_it_serves_when_all_do(monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock) -> None:
    async with running(monkeypatch, 3, serving=False) as node:
        assert sorted(node.worker(number).welcome.term for number in range(3)) == [1, 2, 3]
        await node.say(0, Ready())
        await node.say(2, Ready())
        assert not node.fleet.serving.is_set()
        await node.say(1, Ready())
        assert node.fleet.serving.is_set()
    assert node.fleet.code == 0


async def test_a_worker_that_crashes_starts_again_after_a_pause(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(monkeypatch) as node:
        other, term = node.worker(1), node.worker(0).welcome.term
        node.worker(0).end_with(1)
        await settle()
        await trio.sleep(0.9)
        assert 0 not in node.fleet.workers
        await trio.sleep(0.2)
        assert node.worker(0).welcome.term > term
        assert node.worker(1) is other
    assert "worker 0 (process 1) has ended with code 1; it starts again in 1 s" in caplog.text


async def crash(node: Node, number: int, times: int) -> None:
    for _ in range(times):
        node.worker(number).end_with(1)
        await settle()
        await trio.sleep(LONGEST + 1)
        await settle()


async def test_a_crash_loop_is_an_alarm_of_the_others_until_it_is_over(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    async with running(monkeypatch) as node:
        await crash(node, 0, LOOP)
        alarm = await node.heard(1)
        assert isinstance(alarm, AlarmIs)
        assert alarm.name == "worker_crashes.0"
        assert f"{LOOP} times in a row" in alarm.text
        await node.say(0, Ready())  # it does not know yet
        assert await node.heard(0) == alarm
        await trio.sleep(STEADY + 1)
        assert await node.heard(1) == AlarmIs("worker_crashes.0", "")


async def test_what_keeps_one_from_starting_keeps_the_node(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    async with running(monkeypatch, serving=False) as node:
        await node.say(1, CannotStart(["no such file"], 2))
        node.worker(1).end_with(2)
        await node.fleet.failed.wait()
    assert node.fleet.failure == CannotStart(["no such file"], 2)


async def test_one_that_crashes_at_the_start_keeps_the_node_too(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    async with running(monkeypatch, serving=False) as node:
        node.worker(1).end_with(-11)
        await node.fleet.failed.wait()
    assert node.fleet.failure == CannotStart(["worker 1 (process 1) was killed by SIGSEGV"], 1)


async def test_later_it_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(monkeypatch) as node:
        await node.say(1, CannotStart(["no such file"], 2))
        node.worker(1).end_with(2)
        await settle()
        await trio.sleep(2)
        assert not node.fleet.failed.is_set()
        assert 1 in node.fleet.workers
    assert "worker 1 cannot start: no such file; it starts again" in caplog.text


async def test_a_process_that_cannot_be_made_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(monkeypatch) as node:

        def refuse(*_: object) -> None:
            monkeypatch.setattr(fleets, "WorkerProcess", Worker)
            raise OSError(11, "Resource temporarily unavailable")

        monkeypatch.setattr(fleets, "WorkerProcess", refuse)
        node.worker(0).end_with(1)
        await settle()
        await trio.sleep(1.5)
        assert 0 not in node.fleet.workers
        await trio.sleep(2)
        assert 0 in node.fleet.workers
    assert "worker 0 cannot be started: Resource temporarily unavailable; it starts again in 2 s" in caplog.text


async def test_a_reload_is_over_when_all_have_answered(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    async with running(monkeypatch) as node:
        over = trio.Event()
        async with trio.open_nursery() as nursery:

            async def reload() -> None:
                await node.fleet.reload()
                over.set()

            nursery.start_soon(reload)
            for number in range(2):
                assert await node.heard(number) == Reload()
            await node.say(0, Reloaded())
            assert not over.is_set()
            node.worker(1).end_with(1)  # it reads everything when it starts
            await over.wait()


async def test_a_reload_that_takes_too_long_is_over_all_the_same(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    async with running(monkeypatch) as node:
        began = trio.current_time()
        await node.fleet.reload()
        assert trio.current_time() - began == RELOAD_TIME


async def test_at_the_end_nobody_goes_before_all_are_quiet(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    async with running(monkeypatch, 3) as node:
        for number in range(3):
            node.worker(number).is_obedient = False
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.fleet.stop, 100)
            await settle()
            await node.say(0, Quiet())
            node.worker(2).end_with(1)
            await settle()
            with trio.move_on_after(1) as scope:
                await node.heard(0)
            assert scope.cancelled_caught
            await node.say(1, Quiet())
            for number in (0, 1):
                assert await node.heard(number) == AllQuiet()
                node.worker(number).end_with(0)
    assert node.fleet.code == 1


async def test_at_the_end_nobody_waits_for_one_that_does_not_serve_yet(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    async with running(monkeypatch, serving=False) as node:
        for number in range(2):
            node.worker(number).is_obedient = False
        await node.say(0, Ready())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.fleet.stop, 100)
            await settle()
            await node.say(0, Quiet())
            assert await node.heard(0) == AllQuiet()
            for number in range(2):
                node.worker(number).end_with(0)


async def test_those_that_do_not_end_are_killed(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(monkeypatch) as node:
        node.worker(0).is_obedient = False
        await node.say(0, Quiet())
        began = trio.current_time()
        await node.fleet.stop(7)
        assert trio.current_time() - began == 7
    assert node.fleet.code == 1
    assert "worker 0 has not stopped after 7 s and is killed" in caplog.text


async def test_one_that_ends_alone_waits_for_nobody(monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock) -> None:
    async with running(monkeypatch) as node:
        await node.say(0, Quiet())
        assert await node.heard(0) == AllQuiet()


async def test_one_that_shows_no_life_is_killed(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(monkeypatch, sign_of_life=10) as node:
        hanging, living = node.worker(0), node.worker(1)
        for _ in range(5):
            await trio.sleep(2.5)
            await node.say(1, Alive())
        assert hanging.exit_code == -9
        assert living.exit_code is None
        text = "worker 0 (process 1) has shown no sign of life for 10 s and was killed by SIGKILL"
        assert await node.heard(1) == AlarmIs("worker_crashes.0", text)
    assert "worker 0 has shown no sign of life for 10 s and is killed" in caplog.text


async def test_nobody_is_killed_for_a_time_in_which_the_machine_was_suspended(
    monkeypatch: pytest.MonkeyPatch, mock_clock: MockClock
) -> None:
    async with running(monkeypatch, sign_of_life=10) as node:
        workers = [node.worker(number) for number in range(2)]
        for _ in range(3):
            mock_clock.jump(3600)
            await settle()
        for _ in range(4):
            for number in range(2):
                await node.say(number, Alive())
            mock_clock.jump(2.5)
            await settle()
        assert [worker.exit_code for worker in workers] == [None, None]


async def test_one_that_starts_need_not_show_life(monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock) -> None:
    async with running(monkeypatch, sign_of_life=10, serving=False) as node:
        starting = node.worker(0)
        await trio.sleep(100)
        assert starting.exit_code is None
        await node.say(0, Ready())
        await trio.sleep(7)
        assert starting.exit_code is None, "from now on"
        await trio.sleep(7)
        assert starting.exit_code == -9


async def test_one_that_hears_nothing_any_more_is_killed(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    async with running(monkeypatch) as node:
        deaf = node.worker(0)
        deaf.theirs.close()
        await trio.sleep(DEAF_TIME - 1)
        assert deaf.exit_code is None, "it may be about to end"
        await trio.sleep(2)
        assert deaf.exit_code == -9


async def test_one_that_has_ended_is_not_heard_for_ever(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    async with running(monkeypatch) as node:
        ended = node.worker(0)
        with monkeypatch.context() as patch:
            patch.setattr(ended.theirs, "close", lambda: None)  # a process that it has started has it, too
            ended.end_with(1)
        await trio.sleep(LAST_WORDS / 2)
        assert node.worker(0) is ended
        await trio.sleep(LAST_WORDS + FIRST)
        assert node.worker(0) is not ended
        ended.theirs.close()


async def test_sockets_are_shared_and_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = SocketsWanted.of(ListenerSettings(url="tcp://127.0.0.1:0"))
    async with running(monkeypatch) as node:
        ports = set[int]()
        for number in range(2):
            node.worker(number).theirs.send(WantSockets(5, wanted))
            found = await node.worker(number).theirs.receive()
            assert found is not None
            message, (descriptor,) = found
            assert message == SocketsAre(5, 0, "")
            with socket.socket(fileno=descriptor) as sock:
                ports.add(sock.getsockname()[1])
        assert len(ports) == 1
        await node.say(0, SocketsClosed(5), SocketsClosed(6))
        await node.say(1, SocketsClosed(5))
        node.worker(0).theirs.send(WantSockets(7, wanted))
        found = await node.worker(0).theirs.receive()
        assert found is not None
        with socket.socket(fileno=found[1][0]):
            pass


async def test_an_address_in_use_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        wanted = SocketsWanted.of(ListenerSettings(url=f"tcp://127.0.0.1:{taken.getsockname()[1]}"))
        async with running(monkeypatch) as node:
            node.worker(0).theirs.send(WantSockets(1, wanted))
            message = await node.heard(0)
    assert isinstance(message, SocketsAre)
    assert "ddress already in use" in message.error


async def test_a_worker_that_says_what_it_should_not_costs_itself_alone(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(monkeypatch) as node:
        other = node.worker(1)
        node.worker(0).theirs.send(Reload())
        await settle()
        await trio.sleep(2)
        assert node.worker(0).exit_code is None  # the next one
        assert node.worker(1) is other
    assert "worker 0 says what it should not" in caplog.text


async def test_one_that_is_ended_before_it_handles_signals_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    async with running(monkeypatch, serving=False) as node:
        monkeypatch.setattr(Worker, "stop", lambda worker: worker.end_with(-15))
    assert node.fleet.code == 0
