"""Sessions are brought back from a store that was repaired, of which rows are missing."""

import random
from pathlib import Path

import pytest
import trio

from tests.broker.disk import Disk
from tests.conformance import raw
from trunkline.broker.backlogs.rows import ENTRIES, entry_from_row, entry_to_row
from trunkline.broker.session.durable import SESSIONS, SUBSCRIPTIONS
from trunkline.broker.session.stored_window import SENT, WINDOWS
from trunkline.broker.stored_publications import MESSAGES
from trunkline.mqtt.packing import pack, unpack
from trunkline.store import Space, WriteBatch
from trunkline.store.engine import rows
from trunkline.store.salvage import salvage
from trunkline.store.sqlite import SqliteEngine

STREAM = {"name": "all", "filters": ["t/#"]}
SPACES = (SESSIONS, SUBSCRIPTIONS, WINDOWS, ENTRIES, MESSAGES)


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


def payload(topic: str) -> bytes:
    return topic.encode() * 700


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of sessions, retained messages and a stream, of many pages."""

    async def run() -> None:
        async with disk.broker(streams=[STREAM], session={"max_inflight": 1000}) as life:
            for name, topics in (("a", "t/#"), ("b", "$share/g/t/#")):
                wire, _ = await life.stay(name)
                await wire.subscribe((topics, 1))
                await wire.disconnect()
            publisher = await life.wire()
            await publisher.connect("p")
            for number in range(150):
                topic = f"t/{number}"
                await publisher.publish(topic, payload(topic), qos=1, retain=number % 2 == 0)
            life.cut()

    disk = Disk()
    trio.run(run)
    path = tmp_path_factory.mktemp("stores") / "a.db"
    engine = SqliteEngine(path, durability="os")
    for space in disk.engine.spaces():
        batch = WriteBatch()
        for key, value in rows(disk.engine, space):
            batch.put(space, key, value)
        engine.commit(batch)
    engine.close()
    return path


def cut_off(file: Path, folder: Path, left: float) -> Path:
    content = file.read_bytes()
    (folder / "a.db").write_bytes(content[: int(len(content) * left)])
    return folder / "a.db"


@pytest.mark.parametrize("left", [0.1, 0.25, 0.5, 0.75, 0.9])
async def test_a_broker_starts_with_what_is_left_of_a_file_that_was_cut_off(
    file: Path, tmp_path: Path, left: float
) -> None:
    disk = Disk()
    salvage(cut_off(file, tmp_path, left), disk.engine)
    async with disk.broker(streams=[STREAM], session={"max_inflight": 1000}) as life:
        wire, _ = await life.stay("a")
        await wire.send(raw.subscribe(7, ("t/#", 1), ("$stream/all/t/#", 1)), raw.PINGREQ)
        while (packet := await wire.receive()).type != raw.PINGRESP[0]:
            if packet.type == raw.PUBLISH:
                assert packet.payload == payload(packet.topic)
        assert not life.node.alarms.active


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
    key, row = disk.engine.scan(ENTRIES)[-1]
    batch.put(ENTRIES, key, entry_to_row(entry_from_row(key, row)._replace(first=7)))
    disk.engine.commit(batch)
    for _ in range(2):
        async with disk.broker() as life:
            session = life.node.sessions.get("a")
            assert session is not None
            unread, is_read = session.session.queue.unread, trio.Event()
            assert unread is not None
            unread.then(is_read.set)
            await is_read.wait()
            assert (len(session.session.inflight), session.session.queue.length) == (1, 5)


async def test_a_session_of_the_first_format_comes_back() -> None:
    """Its row does not say whether it has ended."""
    disk = await filled()
    batch = WriteBatch()
    for key, row in rows(disk.engine, SESSIONS):
        head = unpack(row)
        del head["ended"]
        batch.put(SESSIONS, key, pack(head))
    disk.engine.commit(batch)
    async with disk.broker() as life:
        for client_id in ("a", "b"):
            _, present = await life.stay(client_id)
            assert present


async def test_messages_go_that_only_lost_sessions_had() -> None:
    disk = await filled()
    assert disk.engine.count(MESSAGES) > 0
    batch = WriteBatch()
    for key, _ in rows(disk.engine, SESSIONS):
        batch.delete(SESSIONS, key)
    disk.engine.commit(batch)
    async with disk.broker(session={"max_inflight": 2}, stops=True):
        pass
    assert not any(disk.engine.count(space) for space in SPACES)
