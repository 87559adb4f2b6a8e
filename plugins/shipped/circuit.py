"""When a service has failed too often in a row, nobody asks it for a while: a circuit breaker."""

from enum import Enum


class State(Enum):
    #: The service answers; it is asked.
    CLOSED = "closed"
    #: It has failed; it is not asked before the pause is over.
    OPEN = "open"
    #: The pause is over, and one request is on its way to see whether it answers again.
    TRYING = "trying"


class Circuit:
    """Times are the caller's, in seconds."""

    __slots__ = ("_failures", "_max_failures", "_pause", "_until", "state")

    def __init__(self, max_failures: int, pause: float) -> None:
        self._max_failures = max_failures
        self._pause = pause
        self._failures = 0
        self._until = 0.0
        self.state = State.CLOSED

    def may_ask(self, now: float) -> bool:
        """Whoever is told yes must report how it went."""
        if self.state is State.CLOSED:
            return True
        # one that was tried and never reported, because who asked is gone, is as good as failed
        if now < self._until:
            return False
        self.state, self._until = State.TRYING, now + self._pause
        return True

    def succeeded(self) -> bool:
        """Whether this ends a time of failure."""
        self._failures = 0
        recovered, self.state = self.state is not State.CLOSED, State.CLOSED
        return recovered

    def failed(self, now: float) -> bool:
        """Whether this begins one."""
        self._failures += 1
        if self.state is State.CLOSED and self._failures < self._max_failures:
            return False
        opened = self.state is State.CLOSED
        self.state, self._until = State.OPEN, now + self._pause
        return opened
