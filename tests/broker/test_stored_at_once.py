"""Changes that no answer waits for, and that are stored at once all the same: what a broker that is killed a moment
later would get wrong for ever."""

from collections.abc import Callable

import pytest
import trio

from tests.broker.disk import Disk
from tests.conformance import raw
from trunkline.broker.session.durable import SESSIONS
from trunkline.mqtt.packing import unpack
from trunkline.store.engine import rows


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.broker.committer.DELAY", 1e9)


async def stored(disk: Disk, found: Callable[[dict[int, dict[str, object]]], bool]) -> None:
    """Wait until the stored sessions are as `found` wants them, by number."""
    with trio.fail_after(60):
        while not found({int.from_bytes(key, "big"): unpack(value) for key, value in rows(disk.engine, SESSIONS)}):
            await trio.lowlevel.checkpoint()


async def wills(disk: Disk) -> list[bytes]:
    """What a session that was there before gets from the next broker."""
    async with disk.broker() as life:
        wire, present = await life.stay("heir")
        assert present
        await wire.send(raw.PINGREQ)
        got: list[bytes] = []
        with trio.move_on_after(0.2):
            while True:
                packet = await wire.receive()
                if packet.type == 0x30:
                    got.append(packet.payload)
        return got


async def with_heir(disk: Disk) -> None:
    async with disk.broker() as life:
        wire, _ = await life.stay("heir")
        await wire.subscribe(("will", 1))


async def test_a_will_that_has_just_come() -> None:
    disk = Disk()
    await with_heir(disk)
    async with disk.broker() as life:
        await life.stay("client", will=raw.Will("will", b"gone", qos=1))
        await stored(disk, lambda sessions: any(head["will"] for head in sessions.values()))
    assert await wills(disk) == [b"gone"]


async def test_a_client_that_has_just_said_good_bye_has_no_will() -> None:
    disk = Disk()
    await with_heir(disk)
    async with disk.broker() as life:
        wire, _ = await life.stay("client", will=raw.Will("will", b"gone", qos=1))
        await stored(disk, lambda sessions: any(head["will"] for head in sessions.values()))
        await wire.send(raw.disconnect())
        await stored(disk, lambda sessions: not any(head["will"] for head in sessions.values()))
    assert await wills(disk) == []


async def test_a_session_that_was_just_resumed_has_not_expired() -> None:
    disk = Disk()
    async with disk.broker() as life:
        wire, _ = await life.stay("client")
        await wire.abort()
        await stored(disk, lambda sessions: all(head["left_at"] is not None for head in sessions.values()))
        await life.stay("client")
        await stored(disk, lambda sessions: all(head["left_at"] is None for head in sessions.values()))


@pytest.mark.parametrize("goes_on", [False, True])
async def test_a_session_that_a_clean_start_has_ended(goes_on: bool) -> None:
    disk = Disk()
    async with disk.broker() as life:
        wire, _ = await life.stay("client")
        await wire.subscribe("t")
        [former] = [key for key, _ in rows(disk.engine, SESSIONS)]
        again = await life.wire()
        await again.connect("client", properties=raw.session_expiry(1000 if goes_on else 0))
        await stored(disk, lambda sessions: int.from_bytes(former, "big") not in sessions)
    async with disk.broker() as life:
        session = life.node.sessions.get("client")
        assert (session is not None) is goes_on
        assert session is None or not session.session.subscriptions


async def test_a_session_that_its_client_has_ended() -> None:
    disk = Disk()
    async with disk.broker() as life:
        wire, _ = await life.stay("client")
        await wire.subscribe("t")
        await wire.send(raw.disconnect(0, raw.session_expiry(0)))
        await stored(disk, lambda sessions: not sessions)


@pytest.mark.parametrize("delay", [0, 500])
async def test_a_will_that_waits_goes_on_waiting_when_the_broker_stops(delay: int) -> None:
    disk = Disk()
    await with_heir(disk)
    async with disk.broker() as life:
        properties = raw.will_delay(delay)
        wire, _ = await life.stay("client", will=raw.Will("will", b"gone", qos=1, properties=properties))
        await wire.abort()
        await stored(disk, lambda sessions: all(head["left_at"] is not None for head in sessions.values()))
        await life.admin.ending.disconnect_clients()
    assert await wills(disk) == ([] if delay else [b"gone"])
    async with disk.broker() as life:
        session = life.node.sessions.get("client")
        assert session is not None
        assert (session.session.will is not None) is bool(delay)
