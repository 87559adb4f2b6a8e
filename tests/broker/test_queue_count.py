"""A store whose queues nobody has counted."""

from typing import Any

import pytest

from tests.broker.session.test_unread_queue import KINDS, OLD, emptied, filled, got_all
from tests.conformance import raw
from trunkline.broker.alive_note import COUNTED, NODE
from trunkline.broker.queue_count import count_queues
from trunkline.broker.session.mqueue import HIGHEST, LOWEST, QueueHead
from trunkline.broker.session.stored_queue import QUEUES, StoredHead, head_from_row, head_to_row
from trunkline.broker.session.stored_window import SENT, WINDOWS, RowKey
from trunkline.broker.stored_publications import MESSAGES, REFERENCES, queued_rows
from trunkline.mqtt.message import Message
from trunkline.mqtt.packing import pack
from trunkline.mqtt.publication import Publication, PublishBatch
from trunkline.mqtt.stored_codec import publication_to_bytes
from trunkline.mqtt.versions import Version
from trunkline.store import Space, WriteBatch
from trunkline.store.engine import key_of
from trunkline.store.memory import MemoryEngine


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


def batch_of(count: int) -> PublishBatch:
    packet = raw.publish("t", b"payload", qos=1, packet_id=1, version=4)
    starts = [len(packet) * number for number in range(count)]
    batch = PublishBatch(["t"], 0x32, Version.V311, packet * count, starts, [1] * count)
    batch.guid = 1
    return batch


def window_row(number: int) -> bytes:
    return pack((1, (number, 0, 1, ()), None))


def queue_row(number: int, count: int = 1, *entries: tuple[int, int]) -> bytes:
    return pack(((number, 0, count, entries), 1, None))


def counted(publications: dict[int, Publication], rows: dict[tuple[Space, bytes], bytes]) -> MemoryEngine:
    engine, batch = MemoryEngine(), WriteBatch()
    for number, publication in publications.items():
        batch.put(MESSAGES, key_of(number), publication_to_bytes(publication, 0.0))
    for (space, key), row in rows.items():
        batch.put(space, key, row)
    engine.commit(batch)
    count_queues(engine)
    return engine


def head_of(engine: MemoryEngine, session: int) -> StoredHead:
    row = engine.get(WINDOWS, key_of(session))
    assert row is not None
    return head_from_row(row)


def test_messages_that_have_left_a_row_and_those_that_are_lost_have_no_weight() -> None:
    batch, message = batch_of(4), Message("t", b"another", 1)
    one = batch.weight // 4
    rows = {
        (WINDOWS, key_of(1)): pack((7, [(1, 3)])),
        (QUEUES, key_of(1) + key_of(1)): queue_row(1, 4),
        (QUEUES, key_of(1) + key_of(5)): queue_row(2),
        (QUEUES, key_of(1) + key_of(6)): queue_row(3),
        (QUEUES, key_of(2) + key_of(9)): queue_row(1, 4),
    }
    engine = counted({1: batch, 2: message}, rows)
    assert head_of(engine, 1) == StoredHead(7, [(1, 3)], QueueHead(6, 2 * one + message.weight, {LOWEST: 4}))
    assert head_of(engine, 2) == StoredHead(0, [], QueueHead(12, 4 * one, {LOWEST: 4}))


def test_what_was_counted_before_is_forgotten() -> None:
    rows = {
        (WINDOWS, key_of(1)): head_to_row(StoredHead(7, [], QueueHead(9, 100, {HIGHEST: 3}))),
        (WINDOWS, key_of(2)): head_to_row(StoredHead(8, [], QueueHead(9, 100, {HIGHEST: 3}))),
        (QUEUES, key_of(2) + key_of(9)): queue_row(1),
        (REFERENCES, key_of(1)): pack(2),
        (REFERENCES, key_of(2)): pack(1),
    }
    message = Message("t", b"x", 1)
    engine = counted({1: message}, rows)
    assert head_of(engine, 1) == StoredHead(7, [], None)
    assert head_of(engine, 2) == StoredHead(8, [], QueueHead(9, message.weight, {LOWEST: 1}))
    assert engine.count(REFERENCES) == 0


def test_rows_are_noted_of_a_publication_that_something_else_refers_to() -> None:
    sent = RowKey(SENT, 1, 1, 1).packed
    rows = {
        (WINDOWS, key_of(1) + sent): window_row(1),
        (QUEUES, key_of(2) + key_of(1)): queue_row(1),
        (QUEUES, key_of(2) + key_of(2)): queue_row(2, 1, (1, 2)),
        (QUEUES, key_of(2) + key_of(3)): queue_row(3),
        (QUEUES, key_of(2) + key_of(4)): queue_row(4),
        (QUEUES, key_of(3) + key_of(1)): queue_row(4),
    }
    engine = counted({number: Message("t", b"x", 1) for number in range(1, 5)}, rows)
    assert {number: queued_rows(engine, number) for number in range(1, 5)} == {1: 1, 2: 1, 3: 0, 4: 2}


def test_it_is_done_once_even_if_the_broker_gets_no_further() -> None:
    assert counted({}, {}).get(NODE, COUNTED) is not None
