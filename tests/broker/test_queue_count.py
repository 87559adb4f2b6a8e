"""A store whose queues nobody has counted."""

from typing import Any

import pytest

from tests.broker.session.test_unread_queue import KINDS, OLD, emptied, filled, got_all
from trunkline.broker.alive_note import COUNTED, NODE
from trunkline.broker.session.stored_queue import head_from_row
from trunkline.broker.session.stored_window import WINDOWS
from trunkline.broker.stored_publications import REFERENCES
from trunkline.mqtt.packing import pack
from trunkline.store import WriteBatch


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
async def test_a_store_that_an_earlier_version_wrote_is_counted(kind: tuple[dict[str, Any], str, str]) -> None:
    disk = await filled(kind, "away", "other")
    counted = {key: row for space in (WINDOWS, REFERENCES) for key, row in disk.engine.scan(space)}
    batch = WriteBatch()
    for key, row in disk.engine.scan(WINDOWS):
        batch.put(WINDOWS, key, pack(head_from_row(row)[:2]))
    batch.delete_range(REFERENCES, b"", b"\xff" * 9)
    batch.delete(NODE, COUNTED)
    disk.engine.commit(batch)
    async with disk.broker(session=kind[0]) as life:
        assert {key: row for space in (WINDOWS, REFERENCES) for key, row in disk.engine.scan(space)} == counted
        for client_id in ("away", "other"):
            wire, _ = await life.stay(client_id)
            await got_all(wire, OLD)
        await emptied(life, disk)
