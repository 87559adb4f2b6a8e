from typing import Any

import pytest

from tests.broker.disk import Disk
from tests.broker.session.test_cursor import leave, publish
from tests.conformance import raw
from trunkline.broker.session.stored_queue import NO_HEAD, QueueHead, StoredHead
from trunkline.broker.session.stored_sessions import NEVER, StoredSession, find
from trunkline.broker.session.stored_window import AWAITED, SENT, RowKey
from trunkline.mqtt.packing import unpack
from trunkline.store.memory import MemoryEngine


def test_of_a_new_store() -> None:
    found = find(MemoryEngine())
    assert (found.sessions, found.records, found.backlogs, found.last_number) == ({}, {}, [], 0)
    assert found.note.stored == unpack(NEVER)[0] == 0


async def test_what_is_read_of_a_session() -> None:
    disk = Disk()
    async with disk.broker() as life:
        await leave(life, "away", ("t", 1), ("u", 1))
        wire = await life.wire()
        await wire.connect(
            "there", clean=False, properties=raw.session_expiry(1000), will=raw.Will("will", b"", 1), keep_alive=0
        )
        await wire.subscribe(("t", 1))
        await publish(life, "t", b"one", b"two")
    found = find(disk.engine)
    away, there = [
        next(each for each in found.sessions.values() if each.client_id == name) for name in ("away", "there")
    ]
    assert away.left_at is not None
    assert there.left_at is None
    assert (away.has_will, there.has_will) == (False, True)
    assert (away.expiry_interval, there.expiry_interval) == (1000, 1000)
    assert [filter for filter, _ in away.subscriptions] == ["t", "u"]
    assert (len(away.sent), len(there.sent)) == (0, 2)
    assert away.position
    assert not there.position
    assert len(found.records) == 2
    assert {backlog.filter: backlog.total for backlog in found.backlogs}["t"] == 2
    assert found.last_number >= max(found.records)


@pytest.mark.parametrize(
    ("rows", "idle"),
    [
        ({}, True),
        ({"subscriptions": [("t", b"")], "window_head": NO_HEAD, "position": b"x"}, True),
        ({"sent": [(RowKey(SENT, 1, 1, 1), b"")]}, False),
        ({"awaited": [(RowKey(AWAITED, 1, 1, 1), b"")]}, False),
        ({"window_head": StoredHead(7, QueueHead(7, 100, {0: (5, 3)}))}, True),
    ],
)
def test_one_is_idle_whatever_waits_as_long_as_its_window_is_empty(rows: dict[str, Any], idle: bool) -> None:
    stored = StoredSession(b"", "a", None, None, has_will=False, has_ended=False, **rows)
    assert stored.is_idle is idle
