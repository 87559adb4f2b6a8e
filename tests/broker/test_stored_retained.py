"""Retained messages in a store: what is written of a change, and what is there after it was read again."""

from math import inf

import pytest

from tests.broker.disk import Disk
from trunkline.broker.node.storing import RESTORED_AT_ONCE
from trunkline.broker.stored_retained import RETAINED, StoredRetained, restore_retained, retained_to_bytes
from trunkline.mqtt.message import Message
from trunkline.router import RetainedStore
from trunkline.store import WriteBatch
from trunkline.store.batch import LARGE
from trunkline.store.engine import rows
from trunkline.store.memory import MemoryEngine

#: What turns node time into seconds since the epoch, before the restart and after it.
BEFORE, AFTER = 1_000_000.0, 1_000_100.0


class Life:
    """A retained store, and what is written of it."""

    def __init__(self, engine: MemoryEngine, epoch: float = BEFORE, **limits: int) -> None:
        self.retained = RetainedStore(**limits)
        self.epoch = epoch
        self.engine = engine
        #: The part asks to be written.
        self.asked = 0
        self.weight = 0.0
        self.refused = restore_retained(self.retained, rows(engine, RETAINED), epoch)
        self.part = StoredRetained(self.retained, epoch, self.ask, self.refused)

    def ask(self, part: StoredRetained, weight: float) -> None:
        assert part.owner is None
        self.asked += 1
        self.weight += weight

    def commit(self) -> WriteBatch:
        batch = WriteBatch()
        self.part.write(batch)
        self.engine.commit(batch)
        return batch

    @property
    def topics(self) -> list[str]:
        return sorted(each.message.topic for each in self.retained)


def message(topic: str, payload: bytes = b"x", expires_at: float = inf) -> Message:
    return Message(topic, payload, retain=True, expires_at=expires_at)


def test_what_is_retained_is_there_in_the_next_life() -> None:
    engine = MemoryEngine()
    life = Life(engine)
    life.retained.store(message("a/ü", b"1"), 0.0)
    life.retained.store(message("b", expires_at=500.0), 0.0)
    life.retained.store(message("a/ü", b"2"), 0.0)
    life.commit()
    later = Life(engine, AFTER)
    found = {each.message.topic: each for each in later.retained}
    assert found["a/ü"].message.payload == b"2"
    assert (found["a/ü"].deadline, found["b"].deadline, found["b"].message.expires_at) == (inf, 400.0, 400.0)
    assert (found["a/ü"].sequence, found["b"].sequence, later.retained.sequence) == (3, 2, 3)
    assert later.asked == 0, "what was read is no change"


def test_a_change_is_written_once_and_weighs_once() -> None:
    life = Life(MemoryEngine())
    life.retained.store(message("a", b"3"), 0.0)
    weight = life.weight
    for payload in (b"1", b"2", b"3"):
        life.retained.store(message("a", payload), 0.0)
        life.retained.store(message("$SYS/a", payload), 0.0)
    assert life.weight == weight > 0
    assert list(life.commit().values[RETAINED]) == [b"a"]
    assert not life.commit(), "nothing has changed since"
    life.retained.store(message("a", b"3"), 0.0)
    assert life.weight == 2 * weight


def test_what_is_deleted_and_what_has_expired_is_deleted_from_the_store() -> None:
    engine = MemoryEngine()
    life = Life(engine)
    for topic, expires_at in [("a", inf), ("b", 50.0), ("c", inf), ("d", 150.0)]:
        life.retained.store(message(topic, expires_at=expires_at), 0.0)
    life.commit()
    life.retained.store(message("a", b""), 1.0)
    life.retained.sweep(60.0)
    life.commit()
    assert engine.count(RETAINED) == 2
    later = Life(engine, AFTER)
    later.retained.sweep(60.0)  # of the new life: 160 of the old one
    later.commit()
    assert (later.topics, engine.count(RETAINED)) == (["c"], 1)


def test_the_nodes_own_expiry_interval_goes_on() -> None:
    engine = MemoryEngine()
    life = Life(engine, expiry_interval=300)
    life.retained.store(message("a"), 0.0)
    life.commit()
    (kept,) = Life(engine, AFTER).retained
    assert (kept.deadline, kept.message.expires_at) == (200.0, inf)


def test_what_is_beyond_the_limits_is_deleted() -> None:
    engine = MemoryEngine()
    life = Life(engine)
    for topic in "abc":
        life.retained.store(message(topic), 0.0)
    life.commit()
    later = Life(engine, AFTER, max_messages=2)
    assert (later.refused, later.asked) == (["c"], 1)
    later.commit()
    assert engine.count(RETAINED) == 2


def test_a_row_is_one_for_another_node_too() -> None:
    retained = RetainedStore()
    retained.store(message("a", expires_at=5.0), 0.0)
    (kept,) = retained
    other = RetainedStore()
    assert restore_retained(other, [(kept.message.topic.encode(), retained_to_bytes(kept, 100.0))], 90.0) == []
    assert [each.deadline for each in other] == [15.0]


@pytest.mark.parametrize("qos", [1, 2])
async def test_what_is_acknowledged_outlives_a_power_failure(qos: int) -> None:
    disk = Disk()
    async with disk.broker() as life:
        wire = await life.wire()
        await wire.connect("a")
        await wire.publish("t", b"x", qos=qos, retain=True)
        life.cut()
    async with disk.broker() as life:
        assert [each.message.payload for each in life.node.retained] == [b"x"]
        wire = await life.wire()
        await wire.connect("a")
        await wire.publish("t", b"", qos=qos, retain=True)
        life.cut()
    async with disk.broker() as life:
        assert list(life.node.retained) == []


async def test_more_than_are_restored_at_once(caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk()
    batch, retained = WriteBatch(), RetainedStore()
    for number in range(2 * RESTORED_AT_ONCE + 1):
        retained.store(message(f"t/{number:05}"), 0.0)
    for kept in retained:
        batch.put(RETAINED, kept.message.topic.encode(), retained_to_bytes(kept, 0.0))
    disk.engine.commit(batch)
    async with disk.broker() as life:
        assert len(life.node.retained) == 2 * RESTORED_AT_ONCE + 1
    async with disk.broker(retained={"max_messages": RESTORED_AT_ONCE}) as life:
        assert len(life.node.retained) == RESTORED_AT_ONCE
        wire = await life.wire()
        await wire.connect("a")
        await wire.publish("t/00000", b"new", qos=1, retain=True)
    assert f"{RESTORED_AT_ONCE + 1} retained messages are above retained.max_messages" in caplog.text
    assert "deleted: 't/00100', 't/00101'" in caplog.text
    assert disk.engine.count(RETAINED) == RESTORED_AT_ONCE


def test_the_thread_that_writes_packs_large_ones() -> None:
    life, batch = Life(MemoryEngine()), WriteBatch()
    life.retained.store(message("a", b"x" * LARGE), 0.0)
    life.retained.store(message("b", b"x"), 0.0)
    life.part.write(batch)
    assert batch.values[RETAINED].pop(b"a") == b""
    assert batch.values[RETAINED].pop(b"b")
    assert batch.weight > LARGE
