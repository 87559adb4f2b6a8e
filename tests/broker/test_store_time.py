"""Time in the store: it goes on through corrections of the clock, and through ends of the process."""

import time

import pytest
import trio

from tests.broker.disk import Disk
from tests.broker.session.test_durable import Turns
from tests.conformance import raw
from trunkline.broker.committer import ALIVE, NODE
from trunkline.broker.store_time import Heartbeat, StoreClock


@pytest.mark.parametrize("correction", [1e9, -1e9])
async def test_nothing_expires_when_the_clock_is_corrected(monkeypatch: pytest.MonkeyPatch, correction: float) -> None:
    """As of a machine without a battery, which asks for the time after its start."""
    disk = Disk()
    right, wrong_by = time.time, correction
    monkeypatch.setattr(time, "time", lambda: right() - wrong_by)
    async with disk.broker(standalone=True) as life:
        wire, _ = await life.stay("subscriber")
        await wire.subscribe(("t", 1))
        await wire.abort()
        publisher = await life.wire()
        await publisher.connect("publisher")
        expiry = raw.message_expiry(1000)
        await publisher.send(raw.publish("t", b"waits", qos=1, packet_id=1, properties=expiry))
        await publisher.expect_type(raw.PUBACK)
        await publisher.send(raw.publish("kept", b"retained", qos=1, packet_id=2, retain=True, properties=expiry))
        await publisher.expect_type(raw.PUBACK)
        wrong_by = 0.0
        await publisher.send(raw.publish("t", b"later", qos=1, packet_id=3))
        await publisher.expect_type(raw.PUBACK)
    for _ in range(2):
        async with disk.broker(standalone=True) as life:
            assert life.node.retained.limited == 1
            wire, present = await life.stay("subscriber")
            assert present
            assert [(await wire.receive()).payload for _ in range(2)] == [b"waits", b"later"]


def test_a_clock_that_goes_back_between_two_processes_stands_still() -> None:
    assert StoreClock.going_on(1000.0, 5000.0, 7.0, lambda: 5010.0).epoch == 1010.0 - 7.0
    assert StoreClock.going_on(1000.0, 5000.0, 7.0, lambda: 4000.0).epoch == 1000.0 - 7.0


async def test_a_session_that_lasts_less_than_a_heartbeat_is_there_after_a_crash(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whose client was there until the end."""
    disk = Disk()
    async with disk.broker(standalone=True, store={"heartbeat": 3600}) as life:
        wire, _ = await life.stay("subscriber", expiry=1)
        await wire.subscribe(("t", 1))
        before = disk.engine.get(NODE, ALIVE)
        with trio.fail_after(60):
            while disk.engine.get(NODE, ALIVE) == before:
                await trio.lowlevel.checkpoint()  # until the next heartbeat
    async with disk.broker(standalone=True) as life:
        _, present = await life.stay("subscriber")
        assert present


def test_the_heartbeat_is_as_quick_as_the_shortest_session_needs() -> None:
    heartbeat = Heartbeat(Turns(), 10.0, lambda: None)  # type: ignore[arg-type]
    for expiry in (4.0, 3600.0, 20.0, 4.0, 2.0):
        heartbeat.watch(expiry)
    assert heartbeat.interval == 1.0
    heartbeat.forget(2.0)
    heartbeat.forget(4.0)
    assert heartbeat.interval == 2.0
    heartbeat.forget(4.0)
    heartbeat.forget(3600.0)
    assert heartbeat.interval == 10.0
