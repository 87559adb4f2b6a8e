"""When a service has failed too often in a row, nobody asks it for a while: a circuit breaker."""


class Circuit:
    """Times are the caller's, in seconds."""

    __slots__ = ("_failures", "_max_failures", "_pause", "_until")

    def __init__(self, max_failures: int, pause: float) -> None:
        self._max_failures = max_failures
        self._pause = pause
        self._failures = 0
        #: When one request may find out whether the service answers again; None as long as it answers.
        self._until: float | None = None

    def may_ask(self, now: float) -> bool:
        """Whether to ask now. After a yes, `succeeded` or `failed` must be called."""
        if self._until is None:
            return True
        if now < self._until:
            return False
        self._until = now + self._pause  # a request that never reports, as its client is gone, is as good as failed
        return True

    def succeeded(self) -> bool:
        """Whether this ends a time of failure."""
        recovered = self._until is not None
        self._failures, self._until = 0, None
        return recovered

    def failed(self, now: float) -> bool:
        """Whether this begins one."""
        self._failures += 1
        opened = self._until is None
        if opened and self._failures < self._max_failures:
            return False
        self._until = now + self._pause
        return opened
