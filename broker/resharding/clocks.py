"""The store's time of each former part, as that of the new parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from trunkline.broker.alive_note import ALIVE, CLOCK, NODE
from trunkline.broker.session.stored_sessions import EARLIER, NEVER
from trunkline.mqtt.packing import pack, unpack
from trunkline.store.clock import TOLERANCE, Note

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trunkline.store import Engine, Row


class PartClock(NamedTuple):
    #: Seconds to add to its moments for those of the new parts.
    lag: float
    #: When it was last known to run, in the time of the new parts.
    stored: float


class Clocks:
    """Parts that were made together have the same time. One that was made later may have that of a system's clock which
    was corrected since. The new parts have the time of the first, whose streams nobody changes."""

    def __init__(self, former: Sequence[Engine]) -> None:
        notes = [_note(engine) for engine in former]
        self._first = next((number for number, note in enumerate(notes) if note.stored), 0)
        self._reference = reference = notes[self._first]
        self._clock = former[self._first].get(NODE, CLOCK)
        self.parts = [
            PartClock(lag := _lag(note, reference) if note.stored else 0.0, note.stored + lag) for note in notes
        ]

    def rows(self, last_number: int) -> list[Row]:
        """What the new parts say of the node: it ran as long as any of its parts. `last_number` is the last one that a
        publication has."""
        stored, calendar = self._reference[:2]
        since = max(part.stored for part in self.parts) - stored
        found = [(ALIVE, pack((stored + since, last_number, calendar + since)))]
        return found if self._clock is None else [*found, (CLOCK, self._clock)]


def _note(engine: Engine) -> Note:
    stored, _, calendar = unpack(engine.get(NODE, ALIVE) or NEVER)
    return Note(stored, calendar, *unpack(engine.get(NODE, CLOCK) or EARLIER))


def _lag(note: Note, reference: Note) -> float:
    if note.boot and note.boot == reference.boot:
        lag = reference.boot_at - note.boot_at
    else:
        lag = reference.stored - reference.calendar - (note.stored - note.calendar)
    return lag if abs(lag) > TOLERANCE else 0.0
