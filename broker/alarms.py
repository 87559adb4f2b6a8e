"""Conditions that an operator should know about: the active ones, and the most recent past ones."""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from trunkline.hooks.alarm import Alarm
from trunkline.hooks.points import ALARM_ACTIVATED, ALARM_DEACTIVATED

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.hooks.chain import Hooks

_logger = logging.getLogger("trunkline.alarm")

#: The number of past alarms that are kept.
HISTORY: Final = 100

#: The alarms that the broker itself raises, with their meanings.
BLOCKED: Final = "blocked"
OUT_OF_DESCRIPTORS: Final = "out_of_descriptors"
RETAINED_FULL: Final = "retained_full"
SESSIONS_FULL: Final = "sessions_full"
STORE_FAILED: Final = "store_failed"
#: With the number of the worker.
WORKER_CRASHES: Final = "worker_crashes"
#: Those of overload are in `trunkline.broker.overload`.
CERTIFICATE_EXPIRES: Final = "certificate_expires"
PASSWORDS_GUESSED: Final = "passwords_guessed"


class Alarms:
    __slots__ = ("_active", "_hooks", "_wall", "history")

    def __init__(self, hooks: Hooks, wall: Callable[[], float]) -> None:
        """`wall` gives seconds since the epoch."""
        self._hooks = hooks
        self._wall = wall
        self._active: dict[str, Alarm] = {}
        self.history: deque[Alarm] = deque(maxlen=HISTORY)

    @property
    def active(self) -> list[Alarm]:
        """In the order in which they began."""
        return list(self._active.values())

    def activate(self, name: str, text: str) -> None:
        """One that is active already is not told of again: it has this text from now on."""
        active = self._active.get(name)
        if active is None:
            alarm = self._active[name] = Alarm(name, text, self._wall())
            _logger.warning("%s: %s", name, text)
            self._hooks.notify(ALARM_ACTIVATED, alarm)
        elif active.text != text:
            self._active[name] = replace(active, text=text)

    def deactivate(self, name: str) -> None:
        """Does nothing if the alarm is not active."""
        alarm = self._active.pop(name, None)
        if alarm is not None:
            alarm = replace(alarm, until=self._wall())
            self.history.append(alarm)
            _logger.info("%s: over", name)
            self._hooks.notify(ALARM_DEACTIVATED, alarm)
