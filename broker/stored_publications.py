"""The publications that are in the store, or will be with the next commit: each once, however many sessions, backlogs
and streams have it.

Messages in memory *pin* their publication: while any does, whoever published it waits for the commit. Rows *refer* to
it: it is written with the first of them, and deleted with the last, or when no backlog needs it any more.

Rows are counted in memory, and those of queues in the store as well, since a start does not read them. What one of them
alone refers to needs no count, and most is of this kind.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from trunkline.mqtt.packing import pack, unpack
from trunkline.mqtt.stored import IndexEntry, StoredPublication
from trunkline.mqtt.stored_codec import publication_to_bytes
from trunkline.store import Space, StoreCorrupt
from trunkline.store.engine import key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trunkline.mqtt.publication import Publication
    from trunkline.store import Engine, WriteBatch

MESSAGES: Final = Space("messages")
#: By publication: how many rows of queues refer to it. Where nothing is said it is one that nothing else refers to, or
#: none.
REFERENCES: Final = Space("references")

_logger = logging.getLogger("trunkline.store")


class StoredPublications:
    """Of one node."""

    __slots__ = (
        "_arm",
        "_noted",
        "_recounted",
        "_touched",
        "_unused",
        "epoch",
        "indexed",
        "is_needed",
        "number",
        "unsafe",
    )

    def __init__(self, arm: Callable[[], None], number: int, epoch: float) -> None:
        """`arm` asks for a call of `end_turn`. `number` is the last one that was given, `epoch` the seconds to add to
        node time for the time in the store."""
        self._arm = arm
        self.number = number
        self.epoch = epoch
        #: By number: those that backlogs refer to, too, while anybody in memory refers to them.
        self.indexed: WeakValueDictionary[int, StoredPublication] = WeakValueDictionary()
        #: Whether an entry of a backlog that somebody still needs refers to it.
        self.is_needed: Callable[[Iterable[IndexEntry]], bool] = any
        #: Those that were waited for, or unpinned, in this turn.
        self._touched: dict[StoredPublication, None] = {}
        #: Those that the next commit is waited for with.
        self.unsafe: dict[StoredPublication, None] = {}
        #: No row refers to them any more.
        self._unused: list[StoredPublication] = []
        #: What the store says of their rows may be wrong, and what was put right with the last commit.
        self._recounted: dict[StoredPublication, None] = {}
        self._noted: dict[StoredPublication, None] = {}

    def next_number(self) -> int:
        """It is given once: to a publication, or to its place in the backlogs."""
        self.number += 1
        return self.number

    def of(self, publication: Publication) -> StoredPublication:
        """Where a publication is stored, or will be."""
        stored = publication.stored
        if stored is None or (stored.publication is None and not stored.written):
            self.number += 1
            publication.stored = stored = StoredPublication(self.number, publication.guid, publication)
        return stored

    def routed(self, publication: Publication) -> None:
        """It is stored once for all that get it now. A part of a publication of which another part waits in backlogs is
        stored by itself: entries name the others of their record, and these would not name later ones."""
        if self.of(publication).entries:
            publication.stored = None
            self.of(publication)

    # In memory

    def unpin(self, stored: StoredPublication, count: int) -> None:
        stored.pins -= count
        if not stored.pins:
            self._touched[stored] = None
            self._arm()

    def wait_for(self, stored: StoredPublication, action: Callable[[], None]) -> None:
        """Call back when it is stored, of one that durable sessions get in this turn; sooner, if they are done with it
        before."""
        stored.waiting.append(action)
        self._touched[stored] = None
        self._arm()

    def end_turn(self) -> list[Callable[[], None]]:
        """Returns what is to be called: the publications need not be stored any more."""
        touched, self._touched = self._touched, {}
        told: list[Callable[[], None]] = []
        for stored in touched:
            if stored.pins:
                if stored.waiting:
                    self.unsafe[stored] = None
            else:
                self.unsafe.pop(stored, None)
                told += stored.waiting
                stored.waiting = []
                if not (stored.written or stored.entries or stored.references):
                    stored.publication = None  # they refer to each other: only the garbage collector could free them
        return told

    # In the store

    def put(self, stored: StoredPublication, batch: WriteBatch, rows: int = 0) -> None:
        """It is written, if it was not yet; so many rows more refer to it."""
        if not stored.written:
            publication = stored.publication
            key, weight = key_of(stored.number), publication.weight
            batch.put_packed(MESSAGES, key, weight, publication_to_bytes, publication, self.epoch)
            stored.publication, stored.written = None, True
        stored.references += rows
        if stored.queued:
            self._recounted[stored] = None

    def put_queued(self, stored: StoredPublication, batch: WriteBatch) -> None:
        """A row of a queue more refers to it."""
        stored.queued += 1
        self.put(stored, batch, 1)

    def unrefer_queued(self, stored: StoredPublication) -> None:
        stored.queued -= 1
        self._recounted[stored] = None
        self.unrefer(stored)

    def indexed_by(self, stored: StoredPublication, entry: IndexEntry) -> None:
        """This entry of a backlog refers to it, too."""
        stored.entries = (*stored.entries, entry)
        self.indexed[stored.number] = stored
        if stored.queued:
            self._recounted[stored] = None

    def found(
        self, number: int, first_guid: int, entries: tuple[IndexEntry, ...], noted: int, *, in_queue: bool = False
    ) -> StoredPublication:
        """One that was stored before, as it is known, or else with what the store has `noted` of its rows; it may have
        been found by one `in_queue`."""
        stored = self.indexed.get(number)
        if stored is None:
            stored = self.indexed[number] = StoredPublication(number, first_guid, None)
            stored.entries, stored.noted = entries, noted
            stored.queued = stored.references = noted or int(in_queue)
        return stored

    def unrefer(self, stored: StoredPublication) -> None:
        """A row that refers to it is deleted, and it with the last of them."""
        stored.references -= 1
        if stored.references <= 0:
            self._unused.append(stored)

    def delete_unused(self, stored: StoredPublication) -> None:
        """It is deleted with this commit, if nothing refers to it any more."""
        if stored.references <= 0:
            self._unused.append(stored)

    def write(self, batch: WriteBatch) -> dict[StoredPublication, None]:
        """The end of a batch. Returns the publications that wait for it."""
        for stored in self._unused:
            # another part may refer to it now
            if stored.references <= 0 and not (stored.entries and self.is_needed(stored.entries)):
                batch.delete(MESSAGES, key_of(stored.number), put_once=True)
                stored.written = False
        self._unused.clear()
        unsafe, self.unsafe = self.unsafe, {}
        if self._recounted or self._noted:
            self._note_rows(batch, unsafe)
        return unsafe

    def _note_rows(self, batch: WriteBatch, unsafe: dict[StoredPublication, None]) -> None:
        """Who has read what the store said before finds them in memory, until the next commit is stored."""
        recounted, self._recounted = self._recounted, {}
        for stored in recounted:
            is_alone = not stored.entries and stored.references == 1
            rows = 0 if is_alone else stored.queued
            if rows != stored.noted:
                stored.noted = rows
                if rows:
                    batch.put(REFERENCES, key_of(stored.number), pack(rows))
                else:
                    batch.delete(REFERENCES, key_of(stored.number))
        unsafe |= self._noted
        unsafe |= recounted
        self._noted = recounted


def queued_rows(engine: Engine, number: int) -> int:
    """What the store says of a publication's rows in queues; 0: nothing."""
    row = engine.get(REFERENCES, key_of(number))
    return 0 if row is None else int(unpack(row))


def queued_among(engine: Engine, numbers: Iterable[int]) -> dict[int, int]:
    """The same, of those of these publications of which it says something."""
    if not engine.count(REFERENCES):
        return {}
    return {number: rows for number in numbers if (rows := queued_rows(engine, number))}


def stored_bytes(engine: Engine, number: int) -> bytes | None:
    """None: it is not there, or damaged, which must not keep others back."""
    try:
        return engine.get(MESSAGES, key_of(number))
    except StoreCorrupt as error:
        _logger.error("%s", error)
        return None
