"""Counts what waits for single sessions, where nobody has: the first version wrote it, or it was repaired, as rows were
lost.

A start reads heads alone, and what the store says of references. Both are right from here on, as each commit has them
with the rows that it changes.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

from trunkline.broker.alive_note import COUNTED, NODE
from trunkline.broker.backlogs.rows import ENTRIES, entry_from_row, place_of
from trunkline.broker.session.stored_queue import (
    PRIVATE,
    QueueHead,
    StoredHead,
    begins_in,
    head_to_row,
    place_in_queue,
    private_entries,
    private_key,
)
from trunkline.broker.session.stored_window import WINDOWS
from trunkline.broker.stored_publications import REFERENCES, queued_rows
from trunkline.mqtt.packing import pack
from trunkline.store import WriteBatch
from trunkline.store.engine import NUMBER_SIZE, key_of, number_of, rows

if TYPE_CHECKING:
    from trunkline.store import Engine

#: Rows that are counted with one commit.
AT_ONCE: Final = 10_000

_logger = logging.getLogger("trunkline.store")


def count_queues(engine: Engine) -> None:
    """It takes long: call it in a thread. What it has done is done again, if it does not get to the end.

    Raises:
        StoreError: the store cannot be read, or not be written.
    """
    _logger.info("counting what waits for single sessions, once")
    batch = WriteBatch()
    batch.delete_range(REFERENCES, key_of(0), key_of(2**64 - 1))
    engine.commit(batch)
    found = Counter[int]()
    for key, row in rows(engine, ENTRIES, private_key(0)):
        found[entry_from_row(key, row).number] += 1
        if len(found) >= AT_ONCE:
            _add(engine, found)
    _add(engine, found)
    _count_heads(engine)
    batch = WriteBatch()
    batch.put(NODE, COUNTED, pack(True))
    engine.commit(batch)


def _add(engine: Engine, found: Counter[int]) -> None:
    """So many rows more refer to these publications."""
    batch = WriteBatch()
    for number, count in found.items():
        batch.put(REFERENCES, key_of(number), pack(queued_rows(engine, number) + count))
    engine.commit(batch)
    found.clear()


def _count_heads(engine: Engine) -> None:
    sessions = {number_of(key) for key, _ in rows(engine, WINDOWS) if len(key) == NUMBER_SIZE}
    low = private_key(0)
    while page := engine.scan(ENTRIES, low, limit=1):
        session = place_of(page[0][0])[0] - PRIVATE
        sessions.add(session)
        low = private_key(session + 1)
    batch = WriteBatch()
    for session in sessions:
        batch.put(WINDOWS, key_of(session), head_to_row(counted_head(engine, session)))
        if len(batch) >= AT_ONCE:
            engine.commit(batch)
            batch = WriteBatch()
    engine.commit(batch)


def counted_head(engine: Engine, session: int) -> StoredHead:
    """What it would say now, of a window and a private backlog that are as they are."""
    last_id, begins = begins_in(engine.get(WINDOWS, key_of(session)))
    last, byte_size, levels = 0, 0.0, dict[int, tuple[int, int]]()
    for entry in private_entries(engine, session):
        priority, first = place_in_queue(entry.sequence)
        end = first + entry.length
        if priority not in levels:
            levels[priority] = next((begin for begin in begins if first <= begin < end), first), 0
        begin, length = levels[priority]
        left = end - max(first, begin)
        levels[priority] = begin, length + left
        last, byte_size = max(last, end - 1), byte_size + entry.weight * left / entry.length
    return StoredHead(last_id, QueueHead(last, round(byte_size), levels))
