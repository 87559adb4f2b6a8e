"""Counts what waits in the queues of a store, where nobody has: an earlier version wrote it, or it was repaired, as
rows were lost.

A start reads heads alone, and what the store says of references. Both are right from here on, as each commit has them
with the rows that it changes.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

from trunkline.broker.alive_note import COUNTED, NODE
from trunkline.broker.session.mqueue import LOWEST, QueueHead
from trunkline.broker.session.stored_queue import NO_HEAD, QUEUES, StoredHead, head_from_row, head_to_row
from trunkline.broker.session.stored_sessions import place_in
from trunkline.broker.session.stored_window import WINDOWS
from trunkline.broker.stored_publications import REFERENCES, stored_bytes
from trunkline.mqtt.packing import pack
from trunkline.mqtt.stored_codec import publication_from_bytes
from trunkline.store import WriteBatch
from trunkline.store.engine import NUMBER_SIZE, key_of, number_of, rows

if TYPE_CHECKING:
    from trunkline.store import Engine

_logger = logging.getLogger("trunkline.store")


def count_queues(engine: Engine) -> None:
    """It takes long: call it in a thread.

    Raises:
        StoreError: the store cannot be read, or not be written.
    """
    _logger.info("counting what waits in the queues, once: %d rows", engine.count(QUEUES))
    batch = WriteBatch()
    _Count(engine, batch).run()
    batch.put(NODE, COUNTED, pack(True))
    engine.commit(batch)


class _Count:
    def __init__(self, engine: Engine, batch: WriteBatch) -> None:
        self._engine = engine
        self._batch = batch
        #: By the key of the session.
        self._heads: dict[bytes, StoredHead] = {}
        #: By publication.
        self._rows = Counter[int]()
        #: Publications to which something else refers, too.
        self._others: set[int] = set()
        self._weighed = 0, 0.0

    def run(self) -> None:
        engine, batch = self._engine, self._batch
        for key, row in rows(engine, WINDOWS):
            if len(key) == NUMBER_SIZE:
                self._heads[key] = head_from_row(row)._replace(queue=None)
            elif place := place_in(WINDOWS, key, row):
                self._others.add(place[0])
        for key, row in rows(engine, QUEUES):
            self._take(key[:NUMBER_SIZE], number_of(key[NUMBER_SIZE:]), row)
        for key, head in self._heads.items():
            batch.put(WINDOWS, key, head_to_row(head))
        batch.delete_range(REFERENCES, key_of(0), key_of(2**64 - 1))
        for number, count in self._rows.items():
            if count > 1 or number in self._others:
                batch.put(REFERENCES, key_of(number), pack(count))

    def _take(self, session: bytes, first: int, row: bytes) -> None:
        place = place_in(QUEUES, session, row)
        assert place is not None
        number, _, count, entries = place
        head = self._heads.get(session, NO_HEAD)
        left = count - (dict(head.begun).get(first, first) - first)
        _, byte_size, lengths = head.queue or QueueHead(0, 0, {})
        # of which priority it is, the settings say when it is read
        counted = QueueHead(first + count - 1, byte_size + round(left * self._weight(number)), {LOWEST: left})
        counted.lengths[LOWEST] += lengths.get(LOWEST, 0)
        self._heads[session] = head._replace(queue=counted)
        self._rows[number] += 1
        if entries:
            self._others.add(number)

    def _weight(self, number: int) -> float:
        """Of one message of this publication."""
        if self._weighed[0] != number:
            data = stored_bytes(self._engine, number)
            publication = None if data is None else publication_from_bytes(data, 0.0)
            self._weighed = number, 0.0 if publication is None else publication.weight / publication.count
        return self._weighed[1]
