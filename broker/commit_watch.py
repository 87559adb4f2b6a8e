"""The alarm `store_failed`: commits are refused, take too long, or do not begin."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from trunkline.broker.alarms import STORE_FAILED

if TYPE_CHECKING:
    from trunkline.actors import Scheduler
    from trunkline.broker.alarms import Alarms

#: Seconds after which a commit that is not done, and one that is put off all the time, is an alarm.
MAX_COMMIT: Final = 10.0


class CommitWatch:
    __slots__ = ("_alarms", "_is_active", "_is_running", "_put_off", "_scheduler", "_since", "_timer")

    def __init__(self, scheduler: Scheduler, alarms: Alarms) -> None:
        self._scheduler = scheduler
        self._alarms = alarms
        self._timer = scheduler.call_at(inf, self._look)
        self._is_running = self._is_active = False
        #: When the last commit began.
        self._since = -inf
        #: Seconds for which a commit has been due.
        self._put_off = 0.0

    def begun(self) -> None:
        self._is_running = True
        self._since = self._scheduler.now
        if self._timer.deadline == inf:
            self._timer.restart_at(self._since + MAX_COMMIT)

    def ended(self) -> None:
        """It is stored."""
        self._is_running = False
        self._put_off = 0.0
        if self._is_active:
            self._is_active = False
            self._alarms.deactivate(STORE_FAILED)

    def refused(self, weight: int, error: Exception) -> None:
        self._is_running = False
        self._put_off = 0.0
        self._activate(f"{weight:,} bytes are not stored, and acknowledgements wait: {error}")

    def put_off(self, seconds: float) -> None:
        """A commit is due, and has not begun for so many seconds more."""
        self._put_off += seconds
        if self._put_off >= MAX_COMMIT:
            self._is_late("sessions or plugins keep each other busy")

    def stop(self) -> None:
        self._timer.discard()

    def _look(self) -> None:
        if self._is_running and self._since + MAX_COMMIT <= self._scheduler.now:
            self._is_late("the disk is slow or does not answer")
        elif self._is_running:
            self._timer.restart_at(self._since + MAX_COMMIT)

    def _is_late(self, why: str) -> None:
        self._activate(f"no commit has ended for {MAX_COMMIT:g} s, and acknowledgements wait: {why}")

    def _activate(self, text: str) -> None:
        self._is_active = True
        self._alarms.activate(STORE_FAILED, text)
