"""What the store says of the node itself: when it was last known to run, and which numbers it has given."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from trunkline.mqtt.packing import pack
from trunkline.store import Space

if TYPE_CHECKING:
    from trunkline.broker.stored_publications import StoredPublications
    from trunkline.store import WriteBatch
    from trunkline.store.clock import Note, StoreClock

#: What is one of a kind.
NODE: Final = Space("node")
#: When the broker was last known to run, in the store's time; a number that no publication has got a higher one than
#: until then; and what the system's clock said then.
ALIVE: Final = b"alive"
#: What else `Note` has, since it last changed.
CLOCK: Final = b"clock"

#: Seconds for which a note of the time is enough, and numbers of publications that it gives away beforehand.
NOTED: Final = 1.0
RESERVED: Final = 4096


class AliveNote:
    __slots__ = ("_clock", "_noted", "_publications", "_reserved", "_until")

    def __init__(self, clock: StoreClock, publications: StoredPublications) -> None:
        self._clock = clock
        self._publications = publications
        #: What `CLOCK` says, until when `ALIVE` says enough, and the last number that may be given by then.
        self._noted: Note | None = None
        self._until = -inf
        self._reserved = publications.number

    @property
    def is_wanted(self) -> bool:
        """Whether the clock has to be noted although nothing is stored."""
        return not self._clock.is_noted

    def is_due(self, now: float) -> bool:
        """Whether a commit has to have it."""
        return now >= self._until or self._publications.number > self._reserved

    def write(self, batch: WriteBatch, now: float) -> None:
        """A number that is given twice, sessions would take for what they have had."""
        note, self._until, self._reserved = self._clock.note(now), now + NOTED, self._publications.number + RESERVED
        batch.put(NODE, ALIVE, pack((note.stored, self._reserved, note.calendar)))
        if self._noted is None or not note.continues(self._noted):
            batch.put(NODE, CLOCK, pack((note.boot, note.boot_at, note.lead)))
            self._noted = note
