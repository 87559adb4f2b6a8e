"""The way of connections to another shard."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.actors import Scheduler
    from trunkline.broker.net.passed import PassedConnection

#: Connections that may wait for another shard: more than it accepts in a busy turn.
MAX_WAITING: Final = 256


class Passage(Protocol):
    def hand_over(self, passed: PassedConnection) -> bool:
        """Returns whether it is on its way: then the connection belongs to the passage, which gives it to the other
        shard, or refuses it if that one ends. Otherwise it stays with the caller."""
        ...

    def close(self) -> None:
        """What is still on its way is refused, and so is all that comes later."""
        ...


class MemoryPassage:
    """To a shard of the same process and the same trio run."""

    def __init__(self, take: Callable[[PassedConnection], None], scheduler: Scheduler) -> None:
        """Both are those of the other shard."""
        self._take = take
        self._scheduler = scheduler
        self._waiting: deque[PassedConnection] = deque()
        self._is_closed = False

    def hand_over(self, passed: PassedConnection) -> bool:
        if self._is_closed or len(self._waiting) >= MAX_WAITING:
            return False
        self._waiting.append(passed)
        if len(self._waiting) == 1:
            self._scheduler.call_at(trio.current_time(), self._arrive)
        return True

    def _arrive(self) -> None:
        while self._waiting:
            self._take(self._waiting.popleft())

    def close(self) -> None:
        self._is_closed = True
        while self._waiting:
            self._waiting.popleft().refuse()
