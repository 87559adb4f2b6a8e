"""A worker's own side: the test is its supervisor."""

import os
import socket
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from trunkline.broker.alarms import Alarms
from trunkline.config.config import Config
from trunkline.config.listener_settings import ListenerSettings
from trunkline.config.mqtt_settings import LimitSettings
from trunkline.config.node_settings import ControlSettings, OverloadSettings, StoreSettings
from trunkline.hooks.chain import Hooks
from trunkline.management.workers import enrolment as enrolments
from trunkline.management.workers.channel import WorkerChannel
from trunkline.management.workers.enrolment import Enrolment
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

pytestmark = pytest.mark.skipif(os.name == "nt", reason="there are no workers there")


@pytest.fixture
def supervisor() -> Iterator[WorkerChannel]:
    ours, theirs = socket.socketpair()
    channel = WorkerChannel(ours)
    channel.theirs = theirs  # type: ignore[attr-defined]
    yield channel
    channel.close()
    theirs.close()


def joined(supervisor: WorkerChannel, monkeypatch: pytest.MonkeyPatch, sign_of_life: float = 0.0) -> Enrolment:
    monkeypatch.setattr(enrolments, "_end_with_parent", lambda: None)
    supervisor.send(Welcome(1, 3, 77, "/run/there", sign_of_life))
    return Enrolment.join(supervisor.theirs.detach())  # type: ignore[attr-defined]


@pytest.fixture
def member(supervisor: WorkerChannel, monkeypatch: pytest.MonkeyPatch) -> Iterator[Enrolment]:
    found = joined(supervisor, monkeypatch)
    yield found
    found._channel.close()  # pyright: ignore[reportPrivateUsage] - as the end of its process would


@asynccontextmanager
async def hearing(
    member: Enrolment, reload: Callable[[], None] = lambda: None, gone: Callable[[], None] = lambda: None
) -> AsyncGenerator[None]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(member.run, reload, gone)
        yield
        nursery.cancel_scope.cancel()


async def said(supervisor: WorkerChannel) -> Message:
    found = await supervisor.receive()
    assert found is not None
    return found[0]


async def test_it_knows_its_place(member: Enrolment) -> None:
    place = member.place
    assert (member.number, place.number, place.count, place.term) == (1, 1, 3, 77)
    assert abs(trio.current_time() + place.epoch - time.monotonic()) < 1
    assert place.named("plant") == "plant.1"


def test_it_has_a_store_and_a_control_socket_of_its_own(member: Enrolment, tmp_path: Path) -> None:
    configured = member.configured(Config(store=StoreSettings(path=tmp_path / "a.db")))
    assert configured.store.path == tmp_path / "a.1.db"
    assert configured.control.path == Path("/run/there/1.sock")
    memory = StoreSettings(path=tmp_path / "a.db", durability="memory")
    assert member.configured(Config(store=memory)).store.path == tmp_path / "a.db"
    without = Config(control=ControlSettings(enabled=False))
    assert member.configured(without).control == without.control


def test_it_has_its_part_of_disk_and_memory(member: Enrolment, tmp_path: Path) -> None:
    overload = OverloadSettings(memory_high="90%")
    store = StoreSettings(path=tmp_path / "a.db", max_size=1000)
    configured = member.configured(Config(store=store, overload=overload))
    assert configured.store.max_size == 334
    assert (configured.overload.memory_high, configured.overload.memory_low) == ("30%", "23.3333%")
    bytes_of_a_process = OverloadSettings(memory_high="2GiB", memory_low="1GiB")
    assert member.configured(Config(overload=bytes_of_a_process)).overload == bytes_of_a_process
    assert member.configured(Config(store=StoreSettings(path=tmp_path / "a.db"))).store.max_size == 0


def test_without_a_supervisor_it_does_not_begin(supervisor: WorkerChannel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enrolments, "_end_with_parent", lambda: None)
    supervisor.close()
    with pytest.raises(OSError, match="the supervisor is gone"):
        Enrolment.join(supervisor.theirs.detach())  # type: ignore[attr-defined]


async def test_it_asks_for_sockets_and_says_when_they_are_closed(supervisor: WorkerChannel, member: Enrolment) -> None:
    settings = ListenerSettings(url="tcp://127.0.0.1:0", name="a")
    async with hearing(member):
        with socket.socket() as bound, trio.fail_after(60):
            bound.bind(("127.0.0.1", 0))
            async with trio.open_nursery() as nursery:
                found = []

                async def ask() -> None:
                    found.extend(await member.place.open_sockets(settings))

                nursery.start_soon(ask)
                asked = await said(supervisor)
                assert isinstance(asked, WantSockets)
                assert asked.wanted.label == "a"
                supervisor.send(SocketsAre(asked.request, 0, ""), [bound.fileno(), bound.fileno()])
            assert [each.address for each in found] == [bound.getsockname()] * 2
        socket.create_connection(found[0].address).close()  # it listens
        found[0].close()
        found[1].close()
        assert await said(supervisor) == SocketsClosed(asked.request)


async def test_an_address_that_cannot_be_listened_on(supervisor: WorkerChannel, member: Enrolment) -> None:
    async with hearing(member), trio.open_nursery() as nursery:

        async def answer() -> None:
            asked = await said(supervisor)
            assert isinstance(asked, WantSockets)
            supervisor.send(SocketsAre(asked.request, 98, "Address already in use"))

        nursery.start_soon(answer)
        with pytest.raises(OSError, match="Address already in use") as caught:
            await member.place.open_sockets(ListenerSettings())
        assert caught.value.errno == 98


async def test_sockets_that_nobody_waits_for_any_more_are_closed(supervisor: WorkerChannel, member: Enrolment) -> None:
    async with hearing(member):
        with trio.move_on_after(0):
            await member.place.open_sockets(ListenerSettings())
        asked = await said(supervisor)
        assert isinstance(asked, WantSockets)
        read, write = os.pipe()
        supervisor.send(SocketsAre(asked.request, 0, ""), [write])
        os.close(write)
        await trio.lowlevel.wait_readable(read)
        assert os.read(read, 1) == b""
        os.close(read)


async def test_a_supervisor_that_goes_is_noticed_and_answers_nobody(
    supervisor: WorkerChannel, member: Enrolment, autojump_clock: MockClock
) -> None:
    gone = trio.Event()
    async with hearing(member, gone=gone.set), trio.open_nursery() as nursery:

        async def end() -> None:
            await said(supervisor)
            supervisor.close()

        nursery.start_soon(end)
        with pytest.raises(OSError, match="no supervisor any more"):
            await member.place.open_sockets(ListenerSettings())
        await gone.wait()
        member.reloaded()  # nobody hears it
        began = trio.current_time()
        await member.place.all_quiet()
        assert trio.current_time() == began


async def test_it_reads_its_configuration_again_when_it_is_told_to(
    supervisor: WorkerChannel, member: Enrolment
) -> None:
    """Not before it serves: what it has read may be too old by then."""
    reloads = []
    reloaded = trio.Event()

    def reload() -> None:
        reloads.append(trio.current_time())
        reloaded.set()

    async with hearing(member, reload):
        supervisor.send(Reload())
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert not reloads
        member.ready()
        assert len(reloads) == 1
        assert await said(supervisor) == Ready()
        reloaded = trio.Event()
        supervisor.send(Reload())
        await reloaded.wait()
        member.reloaded()
        assert await said(supervisor) == Reloaded()


async def test_at_the_end_it_waits_for_the_others(supervisor: WorkerChannel, member: Enrolment) -> None:
    async with hearing(member), trio.open_nursery() as nursery:

        async def answer() -> None:
            assert await said(supervisor) == Quiet()
            supervisor.send(AllQuiet())

        nursery.start_soon(answer)
        await member.place.all_quiet()


async def test_it_does_not_wait_for_ever(
    supervisor: WorkerChannel, member: Enrolment, autojump_clock: MockClock
) -> None:
    async with hearing(member):
        began = trio.current_time()
        await member.place.all_quiet()
        assert trio.current_time() - began == enrolments.QUIET_TIME


async def test_alarms_of_the_node_are_its_own(supervisor: WorkerChannel, member: Enrolment) -> None:
    """Those that come before there is a broker, too."""
    alarms = Alarms(Hooks(), lambda: 0.0)
    async with hearing(member):
        supervisor.send(AlarmIs("a", "one"))
        supervisor.send(AlarmIs("b", "two"))
        supervisor.send(AlarmIs("b", ""))
        await trio.testing.wait_all_tasks_blocked(0.01)
        member.follow_alarms(alarms)
        assert [(alarm.name, alarm.text) for alarm in alarms.active] == [("a", "one")]
        supervisor.send(AlarmIs("c", "three"))
        supervisor.send(AlarmIs("a", ""))
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert [alarm.name for alarm in alarms.active] == ["c"]


@pytest.mark.parametrize(("within", "signs"), [(8.0, 5), (0.0, 0)])
async def test_signs_of_life(
    supervisor: WorkerChannel, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock, within: float, signs: int
) -> None:
    member = joined(supervisor, monkeypatch, within)
    with trio.move_on_after(9):
        await member.show_life()
    member.reloading()
    member.stopping()
    member.ready()
    for _ in range(signs):
        assert await said(supervisor) == Alive()
    assert await said(supervisor) == Ready()
    member._channel.close()  # pyright: ignore[reportPrivateUsage]


async def test_why_it_cannot_start_is_for_the_supervisor_to_say(supervisor: WorkerChannel, member: Enrolment) -> None:
    with pytest.raises(SystemExit) as ended:
        member.cannot_start(["a", ValueError("b"), "x" * 100_000], 2)
    assert ended.value.code == 2
    assert await said(supervisor) == CannotStart(["a", "b"], 2)
    assert await supervisor.receive() is None


async def test_limits_of_the_node_stay_whole(member: Enrolment) -> None:
    """Workers tell each other what they have."""
    limits = LimitSettings(max_connections=2, max_sessions=100, max_subscriptions=7)
    assert member.configured(Config(limits=limits, control=ControlSettings(enabled=False))).limits == limits
