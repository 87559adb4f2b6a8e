"""The one clock of all that is stored.

What is stored has its moments in the *store's time*: seconds since the epoch as the system's clock had them when the
store was made. That goes on with the node's time while a process runs, and from one process to the next with the time
since the machine's start, or with the system's clock if the machine was started anew. Corrections of the system's clock
do not move it, so it may be behind the calendar or ahead of it: people get what is stored by the calendar.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

#: Seconds that clocks which go on alike may seem to differ.
TOLERANCE: Final = 1.0


class SystemClock(Protocol):
    """What a process asks for the time."""

    def calendar(self) -> float:
        """Seconds since the epoch. It may be corrected."""
        ...

    def boot(self) -> tuple[str, float] | None:
        """Names the start of the machine, and says how many seconds ago it was, time in which it slept included. None:
        the system does not tell."""
        ...

    def correction(self) -> float:
        """By how many seconds its clock was put forward since this object was made; negative if it was put back."""
        ...


class Note(NamedTuple):
    """The last moment that is known of a process."""

    #: In the store's time, and by the system's clock.
    stored: float
    calendar: float
    #: Names the start of the machine, which was then in the store's time; empty if the system does not tell.
    boot: str = ""
    boot_at: float = 0.0
    #: How far ahead streams and plugins are. None: the store was written by an earlier version, in which their times
    #: were those of the system's clock.
    lead: float | None = None

    def continues(self, earlier: Note) -> bool:
        """Whether the earlier one says the same of the machine's start."""
        is_same = (self.boot, self.lead) == (earlier.boot, earlier.lead)
        return is_same and abs(self.boot_at - earlier.boot_at) < TOLERANCE


class StoreClock:
    """Of one process. Nothing changes it once the store was read."""

    def __init__(self, system: SystemClock, now: float) -> None:
        """`now` is in node time."""
        self._system = system
        #: Seconds to add to node time for the calendar's, as the system's clock had that when the process began.
        self.calendar = system.calendar() - now
        #: Seconds to add to node time for the store's.
        self.epoch = self.calendar
        #: Streams and plugins have so many seconds more, in a store that an earlier version has written.
        self._lead = 0.0
        #: By how much the system's clock had been corrected at the last note.
        self._noted = 0.0

    def go_on(self, note: Note, now: float) -> None:
        """An earlier process ended then."""
        away = max(0.0, self._system.calendar() - note.calendar)  # the clock may have gone back
        boot = self._system.boot()
        if boot is not None and boot[0] == note.boot:
            since = note.boot_at + boot[1] - note.stored
            if since > -TOLERANCE:
                away = max(0.0, since)
        self.epoch = note.stored + away - now
        self._lead = note.calendar - note.stored if note.lead is None else note.lead

    def follow(self, earlier: StoreClock) -> None:
        """Go on as the clock of a node that ended in this process."""
        self._system = earlier._system
        self.calendar, self.epoch, self._lead = earlier.calendar, earlier.epoch, earlier._lead

    # Of streams and of what plugins keep

    @property
    def kept_epoch(self) -> float:
        """Seconds to add to node time."""
        return self.epoch + self._lead

    @property
    def behind(self) -> float:
        """Seconds to add for the calendar's time."""
        return self.calendar - self.kept_epoch

    # Corrections

    @property
    def correction(self) -> float:
        """By how many seconds the system's clock was put forward since the process began."""
        return self._system.correction()

    @property
    def is_noted(self) -> bool:
        """Whether it was not corrected since the last note: after that the next process takes it for time away."""
        return abs(self.correction - self._noted) < TOLERANCE

    def note(self, now: float) -> Note:
        self._noted = self.correction
        stored, boot = now + self.epoch, self._system.boot()
        name, seconds = boot or ("", stored)
        return Note(stored, self._system.calendar(), name, stored - seconds, self._lead)
