"""Rows that are whole, and that no broker has written."""

from pathlib import Path

import pytest

from tests.broker.disk import Disk
from tests.conformance import raw
from trunkline.broker.alive_note import NODE
from trunkline.broker.backlogs.rows import ENTRIES, FILTERS
from trunkline.broker.row_check import malformed
from trunkline.broker.session.durable import POSITIONS, SESSIONS, SUBSCRIPTIONS
from trunkline.broker.stored_publications import MESSAGES
from trunkline.broker.stored_retained import RETAINED
from trunkline.mqtt.packing import pack
from trunkline.store import Space, StoreCorrupt, WriteBatch


async def filled() -> Disk:
    disk = Disk()
    async with disk.broker() as life:
        wire, _ = await life.stay("subscriber")
        await wire.subscribe(("t", 1))
        await wire.abort()
        publisher, _ = await life.stay("publisher")
        for number, retain in enumerate((False, True), 1):
            await publisher.send(raw.publish("t", b"x", qos=1, packet_id=number, retain=retain))
            await publisher.expect_type(raw.PUBACK)
    return disk


async def test_all_that_a_broker_writes_is_right() -> None:
    disk = await filled()
    assert {SESSIONS, SUBSCRIPTIONS, POSITIONS, ENTRIES, FILTERS, MESSAGES, RETAINED, NODE} <= set(disk.engine.spaces())
    assert list(malformed(disk.engine)) == []


@pytest.mark.parametrize("space", [SESSIONS, SUBSCRIPTIONS, ENTRIES, FILTERS, MESSAGES, RETAINED], ids=lambda s: s.name)
@pytest.mark.parametrize("row", [b"", b"\xc1", pack("x")], ids=["empty", "no msgpack", "another"])
async def test_a_row_of_something_else_is_named(space: Space, row: bytes, tmp_path: Path) -> None:
    disk = await filled()
    key, _ = disk.engine.scan(space)[0]
    batch = WriteBatch()
    batch.put(space, key, row)
    disk.engine.commit(batch)
    [defect] = malformed(disk.engine)
    assert (defect.space, defect.key) == (space, key)
    if space in (SESSIONS, SUBSCRIPTIONS, RETAINED, FILTERS):  # the others are read later
        with pytest.raises(StoreCorrupt) as caught:
            async with disk.broker(store={"path": str(tmp_path / "a.db")}):
                pass
        for part in (str(tmp_path / "a.db"), f"{space.name} {key!r}", "put a backup in its place"):
            assert part in str(caught.value)
