"""What earlier versions had of queues, brought into the private backlogs of sessions: at the first start, in slices.

A slice is one commit: a process that is killed in between goes on behind the last one. The head of a session is written
with its last slice. The first version did not count references.
"""

from __future__ import annotations

import logging
from collections import Counter
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, Final, cast

from trunkline.broker.alive_note import NODE
from trunkline.broker.backlogs.rows import ENTRIES, QUEUES, Entry, entry_key, entry_to_row
from trunkline.broker.session.mqueue import LOWEST
from trunkline.broker.session.stored_queue import (
    PRIVATE,
    StoredHead,
    counted,
    head_to_row,
    private_entries,
    sequence_of,
)
from trunkline.broker.session.stored_window import WINDOWS
from trunkline.broker.stored_publications import REFERENCES, queued_rows, stored_bytes
from trunkline.mqtt.packing import pack, unpack
from trunkline.mqtt.stored_codec import publication_from_bytes
from trunkline.store import WriteBatch
from trunkline.store.engine import NUMBER_SIZE, following, key_of, number_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trunkline.mqtt.stored import Place
    from trunkline.store import Engine, Row

#: Says that references are counted.
COUNTED: Final = b"counted"
#: Where a session has none: the last packet id, and of rows of which some messages had left the first that there was,
#: and that there is.
NO_HEAD: Final = pack((0, ()))
#: Rows of a slice.
AT_ONCE: Final = 1000

_logger = logging.getLogger("trunkline.store")


def former_place(row: bytes) -> Place:
    """Of the messages that a row refers to."""
    return cast("Place", unpack(row)[0])


def take_over(engine: Engine, priority_of: Callable[[str], int]) -> None:
    """It takes long: call it in a thread. `priority_of` gives the priority of a topic.

    Raises:
        StoreError: the store cannot be read, or not be written.
    """
    _logger.info("bringing what waits in queues into the form of this version, once: %d rows", engine.count(QUEUES))
    is_counted = engine.get(NODE, COUNTED) is not None
    while page := engine.scan(QUEUES, limit=AT_ONCE):
        session, batch = number_of(page[0][0]), WriteBatch()
        end = key_of(session + 1)
        rows = [row for row in page if row[0] < end]
        entries = [*_entries(engine, rows, priority_of)]
        for entry in entries:
            batch.put(ENTRIES, entry_key(PRIVATE + session, entry.sequence), entry_to_row(entry))
        above = following(rows[-1][0])
        batch.delete_range(QUEUES, rows[0][0], above)
        if not is_counted:
            for number, count in Counter([entry.number for entry in entries]).items():
                batch.put(REFERENCES, key_of(number), pack(queued_rows(engine, number) + count))
        if not engine.scan(QUEUES, above, end, limit=1):
            last_id, begun, *_ = unpack(engine.get(WINDOWS, key_of(session)) or NO_HEAD)
            queue = counted(chain(private_entries(engine, session), entries), [left for _, left in begun])
            batch.put(WINDOWS, key_of(session), head_to_row(StoredHead(last_id, queue)))
        engine.commit(batch)
        engine.maintain()


def _entries(engine: Engine, rows: list[Row], priority_of: Callable[[str], int]) -> Iterator[Entry]:
    for stored, together in groupby(rows, lambda row: former_place(row[1])[0]):
        data = stored_bytes(engine, stored)
        publication = None if data is None else publication_from_bytes(data, 0.0)
        for key, row in together:
            former: tuple[Place, int, dict[str, Any]] = unpack(row)
            (_, first, count, others), qos, target = former
            priority, weight = LOWEST, 0
            if publication is not None and first < publication.count:
                priority = priority_of(publication.messages[first].topic)
                weight = publication.weight * count // publication.count
            sequence = sequence_of(priority, number_of(key[NUMBER_SIZE:]))
            yield Entry(sequence, stored, first, count, weight, 0, 0, others, (qos, target))
