"""Throttled log records: the first event of a kind is written at once, and after that the number of further events once
a minute.

A full queue may lose a thousand messages a second, and must not fill the disk as well.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.actors import Timer


K = TypeVar("K")

#: Seconds between two records of one kind.
INTERVAL: Final = 60.0
#: Clients, or addresses, that are counted separately in one record.
MAX_APART: Final = 1000


class Occurrences:
    """How often the event happened since the last record, and to which clients."""

    __slots__ = ("count", "first", "last", "whom", "why")

    def __init__(self) -> None:
        self.count = 0
        self.whom = set[str]()
        #: The client and topic of the last event.
        self.last: tuple[str, str] = ("", "")
        #: Why that happened, as far as the kind does not say it.
        self.why = ""
        #: Whether no record of it has been written yet.
        self.first = True

    def counted(self, noun: str, verb: str) -> str:
        """`1 message dropped`, `2,107 more messages dropped in the last minute`."""
        more, when = ("", "") if self.first else (" more", " in the last minute")
        return f"{self.count:,}{more} {noun}{'s' * (self.count > 1)} {verb}{when}"

    def apart(self, noun: str) -> str:
        """`1 client`, `3 clients`, `1000 or more clients`."""
        whom = len(self.whom)
        return f"{whom}{' or more' * (whom >= MAX_APART)} {noun}{'s' * (whom > 1)}"

    @property
    def example(self) -> str:
        return "e.g. " if self.count > 1 else ""


class LogThrottle(Generic[K]):
    __slots__ = ("_kinds", "_say", "_timer")

    def __init__(
        self, call_at: Callable[[float, Callable[[], None]], Timer], say: Callable[[K, Occurrences], None]
    ) -> None:
        """`say` writes the record."""
        self._timer = call_at(inf, self._tick)
        self._say = say
        #: The kinds that a record was written for in the last interval.
        self._kinds: dict[K, Occurrences] = {}

    def note(self, kind: K, whom: str, what: str, count: int = 1, why: str = "") -> None:
        """Count events of a kind, of this client or address, about this topic, for example."""
        times = self._kinds.get(kind)
        if times is None:
            if not self._kinds:
                self._timer.restart_at(trio.current_time() + INTERVAL)
            times = self._kinds[kind] = Occurrences()
        times.count += count
        times.last, times.why = (whom, what), why
        if len(times.whom) < MAX_APART:
            times.whom.add(whom)
        if times.first:
            self._write(kind, times)

    def flush(self) -> None:
        """Write the events that were not written yet, and start counting anew."""
        self._timer.cancel()
        kinds, self._kinds = self._kinds, {}
        self._write_all(kinds)

    def _tick(self) -> None:
        self._kinds = {kind: times for kind, times in self._kinds.items() if times.count}
        self._write_all(self._kinds)
        if self._kinds:
            self._timer.restart_at(trio.current_time() + INTERVAL)

    def _write_all(self, kinds: dict[K, Occurrences]) -> None:
        for kind, times in kinds.items():
            if times.count:
                self._write(kind, times)

    def _write(self, kind: K, times: Occurrences) -> None:
        self._say(kind, times)
        times.first = False
        times.count = 0
        times.whom.clear()
