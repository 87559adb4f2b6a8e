"""What earlier versions had of queues, brought into the private backlogs of sessions.

A start does it once, session by session and in slices, each of them one commit: a process that is killed in between
finds rows of both forms, and writes those again that it has written. The former rows of a session go when its head says
what waits.
"""

from __future__ import annotations

import logging
from itertools import groupby
from typing import TYPE_CHECKING, Final

from trunkline.broker.backlogs.rows import ENTRIES, Entry, entry_key, entry_to_row
from trunkline.broker.queue_count import counted_head
from trunkline.broker.session.mqueue import LOWEST
from trunkline.broker.session.stored_queue import PRIVATE, QUEUES, former_place, head_to_row, sequence_of
from trunkline.broker.session.stored_window import WINDOWS
from trunkline.broker.stored_publications import stored_bytes
from trunkline.mqtt.packing import unpack
from trunkline.mqtt.stored_codec import publication_from_bytes
from trunkline.store import WriteBatch
from trunkline.store.engine import NUMBER_SIZE, following, key_of, number_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.mqtt.publication import Publication
    from trunkline.store import Engine, Row

#: Rows of a slice.
AT_ONCE: Final = 1000

_logger = logging.getLogger("trunkline.store")


def take_over(engine: Engine, priority_of: Callable[[str], int]) -> None:
    """It takes long: call it in a thread. `priority_of` gives the priority of a topic.

    Raises:
        StoreError: the store cannot be read, or not be written.
    """
    _logger.info("bringing what waits in queues into the form of this version, once: %d rows", engine.count(QUEUES))
    while page := engine.scan(QUEUES, limit=1):
        session, low = number_of(page[0][0]), b""
        end = key_of(session + 1)
        taking = _Taking(engine, priority_of)
        while page := engine.scan(QUEUES, low, end, limit=AT_ONCE):
            taking.write(page)
            low = following(page[-1][0])
        batch = WriteBatch()
        batch.put(WINDOWS, key_of(session), head_to_row(counted_head(engine, session)))
        engine.commit(batch)
        while page := engine.scan(QUEUES, b"", end, limit=AT_ONCE):
            batch = WriteBatch()
            batch.delete_range(QUEUES, page[0][0], following(page[-1][0]))
            engine.commit(batch)
            engine.maintain()


class _Taking:
    def __init__(self, engine: Engine, priority_of: Callable[[str], int]) -> None:
        self._engine = engine
        self._priority_of = priority_of

    def write(self, page: list[Row]) -> None:
        batch = WriteBatch()
        for number, together in groupby(page, lambda each: former_place(each[1])[0]):
            data = stored_bytes(self._engine, number)
            publication = None if data is None else publication_from_bytes(data, 0.0)
            for key, row in together:
                self._put(key, row, publication, batch)
        self._engine.commit(batch)

    def _put(self, key: bytes, row: bytes, publication: Publication | None, batch: WriteBatch) -> None:
        session, number = number_of(key), number_of(key[NUMBER_SIZE:])
        (stored, first, count, others), *own = unpack(row)
        priority, weight = LOWEST, 0
        if publication is not None:
            priority = self._priority_of(publication.topics[min(first, len(publication.topics) - 1)])
            weight = publication.weight * count // publication.count
        entry = Entry(sequence_of(priority, number), stored, first, count, weight, 0, 0, others, (own[0], own[1]))
        batch.put(ENTRIES, entry_key(PRIVATE + session, entry.sequence), entry_to_row(entry))
