"""A store in which nobody has counted what waits for single sessions."""

import pytest

from tests.broker.session.test_queue_reader import KINDS, OLD, Kind, emptied, filled, got_all
from trunkline.broker.alive_note import COUNTED, NODE
from trunkline.broker.backlogs.rows import ENTRIES, Entry, entry_key, entry_to_row
from trunkline.broker.queue_count import count_queues
from trunkline.broker.session.mqueue import HIGHEST, LOWEST
from trunkline.broker.session.stored_queue import (
    PRIVATE,
    QueueHead,
    StoredHead,
    head_from_row,
    head_to_row,
    sequence_of,
)
from trunkline.broker.session.stored_window import WINDOWS
from trunkline.broker.stored_publications import REFERENCES, queued_rows
from trunkline.mqtt.packing import pack
from trunkline.store import WriteBatch
from trunkline.store.engine import key_of
from trunkline.store.memory import MemoryEngine


@pytest.mark.parametrize("loses_heads", [False, True])
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
async def test_a_store_that_was_repaired_is_counted(kind: Kind, loses_heads: bool) -> None:
    disk = await filled(kind, "away", "other")
    counted = dict(disk.engine.scan(WINDOWS))
    batch = WriteBatch()
    if loses_heads:
        batch.delete_range(WINDOWS, b"", b"\xff" * 9)
    batch.delete_range(REFERENCES, b"", b"\xff" * 9)
    batch.delete(NODE, COUNTED)
    disk.engine.commit(batch)
    async with disk.broker(session=kind[0]) as life:
        assert dict(disk.engine.scan(WINDOWS)) == counted
        for client_id in ("away", "other"):
            wire, _ = await life.stay(client_id)
            await got_all(wire, OLD)
        await emptied(life, disk)


def waiting(*entries: tuple[int, int, int, int, int], heads: dict[int, StoredHead] | None = None) -> MemoryEngine:
    """Entries of private backlogs: session, priority, first message, how many, publication."""
    engine, batch = MemoryEngine(), WriteBatch()
    for session, priority, first, length, number in entries:
        entry = Entry(sequence_of(priority, first), number, 0, length, 100 * length, 0, 0, (), (1, {}))
        batch.put(ENTRIES, entry_key(PRIVATE + session, entry.sequence), entry_to_row(entry))
    for session, head in (heads or {}).items():
        batch.put(WINDOWS, key_of(session), head_to_row(head))
    engine.commit(batch)
    count_queues(engine)
    return engine


def head_of(engine: MemoryEngine, session: int) -> StoredHead:
    row = engine.get(WINDOWS, key_of(session))
    assert row is not None
    return head_from_row(row)


def test_messages_that_have_left_the_first_row_have_no_weight() -> None:
    former = StoredHead(7, QueueHead(9, 1, {LOWEST: (3, 1), HIGHEST: (6, 1)}))
    engine = waiting(
        (1, LOWEST, 1, 4, 1), (1, HIGHEST, 5, 1, 2), (1, LOWEST, 6, 2, 2), (2, 3, 9, 4, 1), heads={1: former}
    )
    assert head_of(engine, 1) == StoredHead(7, QueueHead(7, 500, {LOWEST: (3, 4), HIGHEST: (5, 1)}))
    assert head_of(engine, 2) == StoredHead(0, QueueHead(12, 400, {3: (9, 4)}))


def test_what_was_counted_before_is_forgotten() -> None:
    former = StoredHead(7, QueueHead(9, 100, {HIGHEST: (1, 3)}))
    engine = waiting((2, LOWEST, 9, 1, 1), heads={1: former, 2: former})
    assert head_of(engine, 1) == StoredHead(7, QueueHead(0, 0, {}))
    assert head_of(engine, 2) == StoredHead(7, QueueHead(9, 100, {LOWEST: (9, 1)}))
    batch = WriteBatch()
    batch.put(REFERENCES, key_of(1), pack(5))
    batch.put(REFERENCES, key_of(2), pack(5))
    engine.commit(batch)
    count_queues(engine)
    assert (queued_rows(engine, 1), queued_rows(engine, 2)) == (1, 0)


def test_rows_are_counted_by_publication_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.broker.queue_count.AT_ONCE", 2)
    engine = waiting(
        *[(session, LOWEST, number, 1, number) for session in range(1, 4) for number in range(1, 1 + session)]
    )
    assert {number: queued_rows(engine, number) for number in range(1, 5)} == {1: 3, 2: 2, 3: 1, 4: 0}


def test_entries_of_filters_are_not_counted() -> None:
    engine, batch = MemoryEngine(), WriteBatch()
    batch.put(ENTRIES, entry_key(1, 2), entry_to_row(Entry(2, 2, 0, 1, 100, 1, 100)))
    engine.commit(batch)
    count_queues(engine)
    assert not engine.count(REFERENCES)
    assert not engine.count(WINDOWS)


def test_it_is_done_once_even_if_the_broker_gets_no_further() -> None:
    assert waiting().get(NODE, COUNTED) is not None
