"""Sessions that nobody has needed since the start."""

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock

from tests.broker.disk import Disk, Life
from tests.broker.session.test_cursor import leave, messages, nothing_more, publish, until
from tests.conformance import raw
from trunkline.broker.metrics import DropReason
from trunkline.broker.session.stored_sessions import find


async def with_sessions(count: int = 3, expiry: int = 1000) -> Disk:
    disk = Disk()
    async with disk.broker() as life:
        for number in range(count):
            wire, _ = await life.stay(f"client {number}", expiry=expiry)
            await wire.subscribe((f"t/{number}", 1), ("all", 1))
            await wire.disconnect()
            await wire.abort()
        await until(lambda: all(each.left_at is not None for each in find(disk.engine).sessions.values()))
    return disk


def awake(life: Life) -> set[str]:
    return {actor.session.client_id for actor in life.node.sessions}


async def test_they_are_there_and_no_actors() -> None:
    disk = await with_sessions()
    async with disk.broker() as life:
        assert len(life.node.sessions) == 3
        assert awake(life) == set()
        assert life.node.router.subscriptions == 6


async def test_they_get_what_is_published_and_go_on_sleeping() -> None:
    disk = await with_sessions()
    for round in range(2):
        async with disk.broker() as life:
            await publish(life, "all", b"%d" % round)
            assert awake(life) <= {"publisher"}
    async with disk.broker() as life:
        for number in range(3):
            wire, present = await life.stay(f"client {number}")
            assert present
            assert await messages(wire, 2) == [b"0", b"1"]
            await nothing_more(wire)
        assert awake(life) >= {f"client {number}" for number in range(3)}


async def test_more_than_twice_the_limit_wakes_and_is_dropped_down_to_it() -> None:
    disk = await with_sessions(1)
    async with disk.broker(session={"max_queue_length": 10}) as life:
        await publish(life, "all", *[b"%02d" % number for number in range(20)])
        assert awake(life) <= {"publisher"}
        await publish(life, "all", b"20")
        await until(lambda: life.node.metrics.dropped[DropReason.QUEUE_FULL] == 11)
        assert awake(life) - {"publisher"} == {"client 0"}
        wire, _ = await life.stay("client 0")
        assert await messages(wire, 10) == [b"%02d" % number for number in range(11, 21)]


async def test_a_message_of_qos_0_wakes() -> None:
    disk = await with_sessions()
    async with disk.broker() as life:
        await publish(life, "t/1", b"x", qos=0)
        await life.node.scheduler.drained()
        assert awake(life) - {"publisher"} == {"client 1"}
        wire, _ = await life.stay("client 1")
        assert (await wire.receive()).payload == b"x"


async def test_looking_at_one_wakes_it() -> None:
    disk = await with_sessions()
    async with disk.broker() as life:
        session = life.node.sessions.get("client 2")
        assert session is not None
        assert session.session.subscriptions.keys() == {"t/2", "all"}
        assert awake(life) == {"client 2"}
        assert [each.session.client_id for each in life.node.sessions.page("client 0", 2)] == ["client 1", "client 2"]


@pytest.fixture
def clock() -> MockClock:
    """It leaves threads a moment before it jumps."""
    return MockClock(autojump_threshold=0.02)


async def test_they_expire(clock: MockClock) -> None:
    disk = await with_sessions(expiry=50)
    async with disk.broker() as life:
        assert len(life.node.sessions) == 3
        await trio.sleep(60)
        assert len(life.node.sessions) == 0
        assert life.node.router.subscriptions == 0
        assert life.node.metrics.session_expired == 3
    async with disk.broker() as life:
        assert len(life.node.sessions) == 0


async def test_a_clean_start_ends_one() -> None:
    disk = await with_sessions()
    async with disk.broker() as life:
        wire = await life.wire()
        assert not (await wire.connect("client 0", clean=True, properties=raw.session_expiry(10))).session_present
        await publish(life, "t/0", b"new")
        await nothing_more(wire)
        assert len(life.node.sessions) >= 3


@pytest.mark.parametrize("again", [False, True])
async def test_a_will_is_published_at_the_start(again: bool) -> None:
    disk = Disk()
    async with disk.broker() as life:
        await leave(life, "listener", ("will", 1))
        wire = await life.wire()
        will = raw.Will("will", b"gone", 1)
        await wire.connect("dying", clean=False, properties=raw.session_expiry(1000), will=will)
        await wire.subscribe("x")
        await trio.lowlevel.checkpoint()
    if again:
        async with disk.broker() as life:
            pass
    async with disk.broker() as life:
        listener, _ = await life.stay("listener")
        assert await messages(listener, 1) == [b"gone"]
