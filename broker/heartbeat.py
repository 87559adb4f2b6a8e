"""How often the store notes that the broker runs."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from sortedcontainers import SortedDict

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.actors import Scheduler

#: Notes in the shortest expiry interval of a session whose client is there.
BEATS: Final = 2


class Heartbeat:
    """After a crash, sessions have aged from the last note on, so one that lasts a short time needs more of them."""

    def __init__(self, scheduler: Scheduler, interval: float, beat: Callable[[], object]) -> None:
        """`interval` seconds is the time between two calls of `beat` at the most."""
        self._scheduler = scheduler
        self._longest = interval
        self._beat = beat
        #: The expiry intervals of sessions whose clients are there, with the number of these.
        self._expiries: SortedDict[float, int] = SortedDict()
        self._timer = scheduler.call_at(scheduler.now + interval, self._is_due)

    def change(self, interval: float) -> None:
        """The time between two calls at the most."""
        self._longest = interval
        self._timer.restart_at(self._scheduler.now + self.interval)

    @property
    def interval(self) -> float:
        shortest = self._expiries.peekitem(0)[0] if self._expiries else inf
        return min(shortest / BEATS, self._longest)

    def watch(self, expiry_interval: float) -> None:
        """The client of such a session has come."""
        if expiry_interval > 0:
            self._expiries[expiry_interval] = self._expiries.get(expiry_interval, 0) + 1
            if expiry_interval < BEATS * self._longest:
                self._timer.restart_at(self._scheduler.now + self.interval)

    def forget(self, expiry_interval: float) -> None:
        """It has gone."""
        if expiry_interval in self._expiries:
            self._expiries[expiry_interval] -= 1
            if not self._expiries[expiry_interval]:
                del self._expiries[expiry_interval]

    def stop(self) -> None:
        self._timer.discard()

    def _is_due(self) -> None:
        self._beat()
        self._timer.restart_at(self._scheduler.now + self.interval)
