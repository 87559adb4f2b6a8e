"""A broker inside a test leaves nothing behind, whatever the test did."""

import threading
from collections.abc import Iterator

import pytest
import trio
from trio.testing import MockClock

from tests.conformance import raw
from tests.wire import Wire
from trunkline import testing
from trunkline.broker.config import ConfigError
from trunkline.hooks import Hooks


def tasks(task: "trio.lowlevel.Task | None" = None) -> Iterator[str]:
    """Every task of the run, but for trio's own."""
    task = task or trio.lowlevel.current_root_task()
    assert task is not None
    yield task.name
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield from tasks(child)


@pytest.mark.parametrize("how", ["returns", "raises", "is cancelled"])
async def test_no_task_is_left_whatever_the_block_does(how: str) -> None:
    before, threads = sorted(tasks()), threading.active_count()
    wires: list[Wire] = []
    with trio.CancelScope() as scope:
        try:
            async with testing.broker() as b:
                for wire in (Wire(b.connect()), await Wire.open(b.host, b.port)):
                    wires.append(wire)
                    await wire.connect(f"left open {len(wires)}")
                    await wire.subscribe("#")
                assert len(list(tasks())) > len(before)
                if how == "raises":
                    raise LookupError("the test's own")
                if how == "is cancelled":
                    scope.cancel()
                    await trio.sleep_forever()
        except LookupError:
            assert how == "raises"
    assert scope.cancelled_caught == (how == "is cancelled")
    assert sorted(tasks()) == before
    assert threading.active_count() == threads
    for wire in wires:
        await wire.abort()


async def test_brokers_side_by_side_know_nothing_of_each_other() -> None:
    async with testing.broker() as one, testing.broker() as two:
        assert one.port != two.port
        wires = [Wire(one.connect()), Wire(two.connect())]
        for wire in wires:
            await wire.connect("same")
            await wire.subscribe(("t", 0))
        one.publish("t", b"x")
        await wires[0].expect_publish("t", b"x")
        await wires[1].expect_nothing()
        for wire in wires:
            await wire.abort()


async def test_settings_are_those_of_the_configuration() -> None:
    async with testing.broker(mqtt={"max_qos": 1}) as b, Wire(b.connect()) as wire:
        connack = await wire.connect("a")
        assert connack.get(raw.MAXIMUM_QOS) == 1
    with pytest.raises(ConfigError, match="max_quos"):
        async with testing.broker(mqtt={"max_quos": 1}):
            raise AssertionError("it started")


async def test_hooks_may_be_there_from_the_start() -> None:
    hooks = Hooks()
    seen: list[str] = []
    hooks.add("client.connected", lambda client: seen.append(client.client_id))
    async with testing.broker(hooks=hooks) as b, Wire(b.connect()) as wire:
        assert b.hooks is hooks
        await wire.connect("a")
    assert seen == ["a"]


async def test_the_tests_clock_is_the_brokers(autojump_clock: MockClock) -> None:
    async with testing.broker() as b:
        wire = Wire(b.connect(), patience=10_000)
        await wire.connect("a", keep_alive=3600)
        began = trio.current_time()
        await wire.expect_disconnect(0x8D)
        assert trio.current_time() - began == pytest.approx(5400, abs=1)
        await wire.abort()
