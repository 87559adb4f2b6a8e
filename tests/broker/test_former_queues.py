"""What waited in a store of earlier versions is there, whenever the first start of this one ends.

`former/2.db` was written by version 2 of the format: with priorities, of three sessions, one of which is a member of a
shared group, and one had acknowledged a part of a burst.
"""

import shutil
from pathlib import Path

import pytest

from tests.broker.disk import Disk
from tests.broker.session.test_cursor import messages, nothing_more, publish, until
from trunkline.broker.alive_note import NODE
from trunkline.broker.backlogs.rows import ENTRIES, QUEUES
from trunkline.broker.former_queues import COUNTED, take_over
from trunkline.broker.mending import mend
from trunkline.broker.session.stored_queue import head_from_row
from trunkline.broker.session.stored_window import WINDOWS
from trunkline.broker.stored_publications import MESSAGES, REFERENCES
from trunkline.mqtt.packing import pack, unpack
from trunkline.store import Engine, StoreUnavailable, WriteBatch
from trunkline.store.engine import NUMBER_SIZE, key_of, rows
from trunkline.store.memory import MemoryEngine
from trunkline.store.sqlite import SqliteEngine

SETTINGS = {"priorities": {"high": 10}}
WAITS = [b"high", b"2", b"3", b"4", b"5", b"last", b"x" * 3000]
#: What waits for each session, and before it what is in its window.
EXPECTED = {"away": [b"3", b"4", b"high", *WAITS[4:]], "other": [b"0", b"1", *WAITS], "member": [b"0", b"1", *WAITS]}


class Dying(MemoryEngine):
    """Dies at a commit, before or after it."""

    left: float = float("inf")
    applies = False

    def commit(self, batch: WriteBatch) -> None:
        self.left -= 1
        if self.left >= 0 or self.applies:
            super().commit(batch)
        if self.left < 0:
            raise StoreUnavailable("killed")


@pytest.fixture(params=[1, 2])
def former(request: pytest.FixtureRequest, tmp_path: Path) -> Dying:
    """A store as a version of the format had it."""
    shutil.copy(Path(__file__).parent / "former" / "2.db", tmp_path / "a.db")
    engine, batch, found = SqliteEngine(tmp_path / "a.db"), WriteBatch(), Dying()
    for space in engine.spaces():
        for key, row in rows(engine, space):
            is_head = space == WINDOWS and len(key) == NUMBER_SIZE
            batch.put(space, key, pack(unpack(row)[:2]) if is_head and request.param == 1 else row)
    engine.close()
    if request.param == 1:
        batch.delete_range(REFERENCES, key_of(0), key_of(1 << 60))
        batch.delete(NODE, COUNTED)
    found.commit(batch)
    return found


def priority_of(topic: str) -> int:
    return 10 if topic == "high" else 0


def start(engine: Engine) -> None:
    """What the first start of this version does."""
    take_over(engine, priority_of)


def whole(engine: Engine) -> dict[str, dict[bytes, bytes]]:
    return {space.name: dict(rows(engine, space)) for space in (ENTRIES, WINDOWS, MESSAGES, REFERENCES, NODE)}


async def expect_all(disk: Disk) -> None:
    async with disk.broker(session=SETTINGS) as life:
        for client_id, expected in EXPECTED.items():
            session = life.node.sessions.get(client_id)
            assert session is not None
            assert session.session.waiting[0] == len(expected) - 2
            wire, _ = await life.stay(client_id)
            assert await messages(wire, len(expected)) == expected
            await nothing_more(wire)
            assert session.session.waiting == (0, 0)
        await life.stay("another")  # whose CONNACK waits for a commit
        spaces = (QUEUES, ENTRIES, MESSAGES, REFERENCES)
        await until(lambda: not any(disk.engine.count(space) for space in spaces))


async def test_everybody_gets_what_waited_and_the_store_is_empty_then(former: Dying) -> None:
    await expect_all(Disk(lambda: former))


async def test_what_comes_later_goes_behind(former: Dying) -> None:
    disk = Disk(lambda: former)
    async with disk.broker(session=SETTINGS) as life:
        await publish(life, "t", b"new")
        await publish(life, "high", b"higher")
    async with disk.broker(session=SETTINGS) as life:
        wire, _ = await life.stay("away")
        assert await messages(wire, 8) == [b"3", b"4", b"high", b"higher", *WAITS[4:], b"new"]
        await nothing_more(wire)


def test_a_head_says_what_is_there(former: Dying) -> None:
    heads = {key: head_from_row(row) for key, row in former.scan(WINDOWS) if len(key) == NUMBER_SIZE}
    assert [head.queue.levels for head in heads.values()] == [{}] * 3
    start(former)
    row = former.get(WINDOWS, key_of(1))
    assert row is not None
    last_id, queue = head_from_row(row)
    assert (last_id, queue.last, queue.levels) == (5, 7, {10: (5, 1), 0: (4, 3)})
    assert queue.byte_size == pytest.approx(5064, abs=10)
    assert {unpack(row) for _, row in former.scan(REFERENCES)} == {3}
    assert not former.count(QUEUES)


@pytest.mark.parametrize("applies", [False, True])
def test_it_goes_on_where_it_was_killed(former: Dying, applies: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.broker.former_queues.AT_ONCE", 1)
    rows_before = {space: dict(rows(former, space)) for space in former.spaces()}
    start(former)
    expected = whole(former)
    for kills in range(12):  # there are so many rows
        engine, batch = Dying(), WriteBatch()
        for space, found in rows_before.items():
            for key, row in found.items():
                batch.put(space, key, row)
        engine.commit(batch)
        engine.left, engine.applies = kills, applies
        with pytest.raises(StoreUnavailable):
            start(engine)
        engine.left = float("inf")
        start(engine)
        assert whole(engine) == expected


async def test_what_is_lost_is_told_and_the_rest_comes(former: Dying) -> None:
    batch = WriteBatch()
    batch.delete(MESSAGES, key_of(3))  # "high"
    former.commit(batch)
    async with Disk(lambda: former).broker(session=SETTINGS) as life:
        wire, _ = await life.stay("away")
        assert await messages(wire, 5) == [b"3", b"4", *WAITS[4:]]
        await nothing_more(wire)


@pytest.mark.parametrize("applies", [False, True])
async def test_a_store_that_is_repaired_before_it_is_taken_over_or_on_the_way(
    former: Dying, applies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if applies:
        monkeypatch.setattr("trunkline.broker.former_queues.AT_ONCE", 1)
        former.left = 2
        with pytest.raises(StoreUnavailable):
            start(former)
        former.left = float("inf")
    mend(former)
    await expect_all(Disk(lambda: former))
