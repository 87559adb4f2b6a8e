"""Sessions are brought back from a store that was repaired, of which rows are missing."""

import random

import pytest

from tests.broker.disk import Disk
from tests.conformance import raw
from trunkline.broker.committer import MESSAGES
from trunkline.broker.session.durable import QUEUES, SESSIONS, SUBSCRIPTIONS
from trunkline.broker.session.stored_window import SENT, WINDOWS
from trunkline.mqtt.packing import pack, unpack
from trunkline.store import Space, WriteBatch
from trunkline.store.engine import rows

SPACES = (SESSIONS, SUBSCRIPTIONS, WINDOWS, QUEUES, MESSAGES)


async def filled() -> Disk:
    """Two sessions: one with messages in its window, in its queue and without PUBREL, and one that subscribes only."""
    disk = Disk()
    async with disk.broker(session={"max_inflight": 2}) as life:
        wire, _ = await life.stay("a")
        await wire.subscribe(("t/#", 1), ("u", 2))
        other, _ = await life.stay("b")
        await other.subscribe("t/1")
        publisher = await life.wire()
        await publisher.connect("p")
        for number in range(8):
            await publisher.publish(f"t/{number}", b"x", qos=1)
        await wire.send(raw.publish("n", b"x", qos=2, packet_id=7))
        while (await wire.receive()).type != raw.PUBREC:
            pass
        life.cut()
    return disk


def lose(disk: Disk, space: Space, seed: int) -> None:
    """Some rows, as a repair does that could not read them."""
    rng, batch = random.Random(seed), WriteBatch()
    for key, _ in rows(disk.engine, space):
        if rng.random() < 0.5:
            batch.delete(space, key)
    disk.engine.commit(batch)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.name)
async def test_a_broker_starts_with_what_is_left(space: Space, seed: int) -> None:
    disk = await filled()
    lose(disk, space, seed)
    for _ in range(2):  # what is left is a whole store again
        async with disk.broker(session={"max_inflight": 2}) as life:
            wire, _ = await life.stay("a")
            await wire.send(raw.PINGREQ)
            while (await wire.receive()).type != raw.PINGRESP[0]:
                pass  # what it gets again
            assert not life.node.alarms.active
            publisher = await life.wire()
            await publisher.connect("p")
            await publisher.publish("t/1", b"new", qos=1)


async def test_what_is_lost_is_said(caplog: pytest.LogCaptureFixture) -> None:
    disk = await filled()
    batch = WriteBatch()
    for space in (SESSIONS, MESSAGES):
        key, _ = disk.engine.scan(space)[0]
        batch.delete(space, key)
    disk.engine.commit(batch)
    async with disk.broker() as life:
        assert len(life.node.sessions) == 1
    assert "only parts of 1 sessions, and of " in caplog.text


async def test_places_behind_the_end_of_a_publication_are_lost_and_no_others() -> None:
    disk = await filled()
    batch = WriteBatch()
    key, value = next((key, value) for key, value in disk.engine.scan(WINDOWS) if key[8:9] == SENT)
    state, (number, _, *place), target = unpack(value)
    batch.put(WINDOWS, key, pack((state, (number, 7, *place), target)))
    key, value = disk.engine.scan(QUEUES)[-1]
    (number, _, *place), *rest = unpack(value)
    batch.put(QUEUES, key, pack(((number, 7, *place), *rest)))
    disk.engine.commit(batch)
    for _ in range(2):
        async with disk.broker() as life:
            session = life.node.sessions.get("a")
            assert session is not None
            assert (len(session.session.inflight), session.session.queue.length) == (1, 5)
