"""How often the store notes that the broker runs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

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
        #: The expiry intervals that need a shorter one, with the number of their sessions.
        self._expiries: Counter[float] = Counter()
        self._timer = scheduler.call_at(scheduler.now + interval, self._is_due)

    @property
    def interval(self) -> float:
        return min([*self._expiries, BEATS * self._longest]) / BEATS

    def watch(self, expiry_interval: float) -> None:
        """The client of such a session has come."""
        if 0 < expiry_interval < BEATS * self._longest:
            self._expiries[expiry_interval] += 1
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
