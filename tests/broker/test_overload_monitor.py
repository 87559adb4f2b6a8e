"""Marks of memory, lag and open files, and what the broker does while one is exceeded."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from tests.broker.inside import inside
from tests.broker.room import Room, room
from tests.conformance import raw
from tests.wire import Wire
from trunkline import testing
from trunkline.broker import overload_monitor
from trunkline.broker.overload import Resource
from trunkline.broker.overload_monitor import LIMIT_HOLDS, READING, OverloadMonitor, Usage, Usages
from trunkline.config.node_settings import OverloadSettings

GIB = 1_073_741_824


class Machine:
    """What a process uses, as a test says."""

    def __init__(self) -> None:
        self.memory = Usage(1, 10 * GIB)
        self.files = Usage(1, 1000)

    def read(self) -> dict[Resource, Usage]:
        return {Resource.MEMORY: self.memory, Resource.FILES: self.files}


def monitored(node: Any, machine: Machine, *, interval: Any = 1.0, **settings: Any) -> OverloadMonitor:
    return OverloadMonitor(
        OverloadSettings.model_validate(settings), interval, node.services, node.sessions, machine.read
    )


@asynccontextmanager
async def overloaded(**settings: Any) -> AsyncGenerator[tuple[Room, Machine]]:
    """A broker whose monitor runs, with no mark exceeded yet."""
    machine = Machine()
    async with room(**settings) as here, trio.open_nursery() as nursery:
        nursery.start_soon(monitored(here.node, machine).run)
        yield here, machine
        nursery.cancel_scope.cancel()


def active(node: Any) -> list[str]:
    return [alarm.name for alarm in node.alarms.active]


# The marks


@pytest.mark.parametrize("name", ["memory", "files"])
@pytest.mark.parametrize(
    ("settings", "readings"),
    [
        ({}, [(0.8, False), (0.81, True), (0.75, True), (0.7, False), (0.79, False), (0.9, True), (0.1, False)]),
        (
            {"high": "50%", "low": "50%"},
            [(0.5, False), (0.51, True), (0.5, False)],
        ),
        ({"high": "400", "low": "300"}, [(0.4, False), (0.401, True), (0.301, True), (0.3, False)]),
        ({"high": "0"}, [(1.0, False)]),
        ({"high": 0, "low": "0"}, [(1.0, False)]),
    ],
)
async def test_a_mark_is_exceeded_from_the_high_one_to_the_low_one(
    name: str, settings: dict[str, Any], readings: list[tuple[float, bool]]
) -> None:
    defaults = {"high": "80%", "low": "70%"}
    given = {f"{name}_{key}": value for key, value in (defaults | settings).items()}
    machine = Machine()
    async with room() as here:
        monitor = monitored(here.node, machine, **given)
        for share, exceeded in readings:
            setattr(machine, name, Usage(share * 1000, 1000))
            monitor.check()
            assert active(here.node) == [f"overload_{name}"] * exceeded
            assert [each.word for each in here.node.services.overload.exceeded] == [name] * exceeded


async def test_without_a_reading_nothing_changes() -> None:
    machine = Machine()
    async with room() as here:
        monitor = monitored(here.node, machine)
        for files, exceeded in ((950, True), (0, True), (790, False), (0, False)):
            machine.files = Usage(files, 1000)
            monitor.check()
            assert bool(active(here.node)) is exceeded


async def test_a_share_of_what_is_not_known_is_no_mark() -> None:
    machine = Machine()
    machine.memory = Usage(GIB, 0)
    async with room() as here:
        monitored(here.node, machine).check()
        assert active(here.node) == []
        monitored(here.node, machine, memory_high="1GB", memory_low="1GB").check()
        assert active(here.node) == ["overload_memory"]


async def test_the_alarm_says_what_is_used_and_which_mark_it_is_above() -> None:
    machine = Machine()
    machine.memory, machine.files = Usage(9 * GIB, 10 * GIB), Usage(950, 1000)
    async with room() as here:
        monitored(here.node, machine).check()
        assert [alarm.text for alarm in here.node.alarms.active] == [
            "memory: 9,216 MiB of 10,240 MiB: above overload.memory_high = 80%",
            "open files: 950 of 1,000: above overload.files_high = 90%",
        ]


@pytest.mark.parametrize(("late", "exceeded"), [([0.6, 0.6, 0.6], True), ([5, 0.2, 5], False), ([9, 0, 9, 9], False)])
async def test_lag_counts_when_it_lasts(late: list[float], exceeded: bool, mock_clock: MockClock) -> None:
    async with room() as here, trio.open_nursery() as nursery:
        nursery.start_soon(monitored(here.node, Machine()).run)
        for each in late:
            await trio.testing.wait_all_tasks_blocked(0.01)
            mock_clock.jump(1 + each)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert active(here.node) == ["overload_lag"] * exceeded
        if exceeded:
            (alarm,) = here.node.alarms.active
            assert alarm.text == "the event loop is 0.6 s late: above overload.lag_high = 0.5"
            assert (await here.node.figures())["loop.lag.microseconds"] == 600_000
            for part in (1 - READING, READING):
                mock_clock.jump(part + 0.01)
                await trio.testing.wait_all_tasks_blocked(0.01)
        assert active(here.node) == []
        nursery.cancel_scope.cancel()


def test_this_process_has_readings() -> None:
    assert {resource: usage.used > 0 for resource, usage in Usages()().items()} == {
        Resource.MEMORY: True,
        Resource.FILES: True,
    }


def test_the_limit_of_the_memory_is_looked_for_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = iter((100, 200))
    monkeypatch.setattr(overload_monitor, "memory_limit", lambda: next(limits))
    usages = Usages()
    seen = [usages()[Resource.MEMORY].available for _ in range(LIMIT_HOLDS + 1)]
    assert seen == [100] * LIMIT_HOLDS + [200]


async def test_a_broker_of_its_own_is_monitored(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with room() as here:
        assert "overload" not in here.node.supervisors.root
    async with room(overload={"interval": 5, "files_high": "1", "files_low": "1"}) as here:
        assert "overload" in here.node.supervisors.root
        await trio.sleep(5.1)
        assert active(here.node) == ["overload_files"]


# What happens meanwhile


async def test_publishers_are_read_from_for_a_part_of_the_time(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with overloaded() as (here, machine):
        publisher, subscriber = await here.client("p"), await here.client("s")
        await subscriber.subscribe(("t", 1))
        await publisher.publish("t", b"0", qos=1)
        await subscriber.take_publish("t", b"0", qos=1)
        machine.memory = Usage(9 * GIB, 10 * GIB)
        await trio.sleep_until(trio.current_time() + 1.1)
        for number in range(1, 6):
            began = trio.current_time()
            await subscriber.ping()
            assert trio.current_time() == began  # it has never published
            await publisher.publish("t", b"%d" % number, qos=1)
            assert 0 < trio.current_time() - began <= 1 - READING
            await subscriber.take_publish("t", b"%d" % number, qos=1)
            await trio.sleep(1 - (trio.current_time() - began))  # it is held again by then
        figures = await here.node.figures()
        assert figures["overload.publishers"] >= 5
        assert figures["delivery.dropped"] == 0
        machine.memory = Usage(GIB, 10 * GIB)
        await trio.sleep(2)
        began = trio.current_time()
        await publisher.publish("t", b"last", qos=1)
        assert trio.current_time() == began
        await trio.sleep(60)  # of the log
    lines = [record.getMessage() for record in caplog.records if record.name == "trunkline.limits"]
    assert lines[0] == "overload.publishers acted for 1 client: overload.memory_high = 80% (client p)"


async def test_nothing_of_a_fast_publisher_is_lost() -> None:
    number = 2000
    machine = Machine()
    machine.memory = Usage(9 * GIB, 10 * GIB)
    async with testing.broker(history=0) as b, trio.open_nursery() as nursery:
        async with await Wire.open(b.host, b.port) as publisher, await Wire.open(b.host, b.port) as subscriber:
            await publisher.connect("p")
            await subscriber.connect("s")
            await subscriber.subscribe(("t", 1))
            nursery.start_soon(monitored(inside(b.node), machine, interval=0.02).run)

            async def publish() -> None:
                for packet_id in range(1, number + 1):
                    await publisher.send(raw.publish("t", b"%d" % packet_id, qos=1, packet_id=packet_id))

            nursery.start_soon(publish)
            for packet_id in range(1, number + 1):
                await subscriber.take_publish("t", b"%d" % packet_id, qos=1)
            for packet_id in range(1, number + 1):
                assert (await publisher.expect_type(raw.PUBACK)).packet_id == packet_id
        figures = await b.node.figures()
        assert figures["overload.publishers"] > 1
        assert figures["delivery.dropped"] == figures["messages.dropped"] == 0
        nursery.cancel_scope.cancel()


async def test_publishers_are_let_go_when_the_monitor_ends(autojump_clock: MockClock) -> None:
    async with room() as here:
        publisher = await here.client("p")
        await publisher.publish("t", qos=1)
        machine = Machine()
        machine.memory = Usage(9 * GIB, 10 * GIB)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(monitored(here.node, machine, interval=1000).run)
            await trio.sleep(1001)
            with trio.move_on_after(10) as waited:
                await publisher.ping()
            assert waited.cancelled_caught
            nursery.cancel_scope.cancel()
        await publisher.expect(raw.PINGRESP)


async def test_a_publisher_that_leaves_while_it_is_held(autojump_clock: MockClock) -> None:
    async with overloaded() as (here, machine):
        machine.memory = Usage(9 * GIB, 10 * GIB)
        publisher = await here.client("p")
        await publisher.publish("t")
        await trio.sleep(1.1)
        await publisher.abort()
        await trio.sleep(3)
        machine.memory = Usage(GIB, 10 * GIB)
        await trio.sleep(3)
        await (await here.client("p")).publish("t", qos=1)


async def test_many_sessions_are_visited_in_slices(monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock) -> None:
    monkeypatch.setattr(overload_monitor, "VISITED_AT_ONCE", 2)
    async with overloaded() as (here, machine):
        publishers = [await here.client(f"p{number}") for number in range(9)]
        for publisher in publishers:
            await publisher.publish("t", qos=1)
        machine.files = Usage(1000, 1000)
        await trio.sleep(1.1)
        assert all(connection.is_paused for connection in here.node.listeners.connections)
        await trio.sleep(1 - READING)
        assert not any(connection.is_paused for connection in here.node.listeners.connections)


async def test_the_defence_ends_when_the_monitor_is_given_up(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine()
    machine.memory = Usage(9 * GIB, 10 * GIB)
    broken = False

    def read() -> dict[Resource, Usage]:
        if broken:
            raise ValueError("a fault")
        return machine.read()

    async with room() as here:
        settings = OverloadSettings.model_validate({})
        monitor = OverloadMonitor(settings, 1.0, here.node.services, here.node.sessions, read)
        await here.node.supervisors.start_background("overload", monitor.run, monitor.stay_off)
        await trio.sleep(2)
        assert active(here.node) == ["overload_memory"]
        broken = True
        await trio.sleep(30)
        assert active(here.node) == ["overload.down"]
        assert not here.node.services.overload.exceeded
        await here.client("late")  # new clients are accepted again
