"""A circuit breaker: a service that has failed too often in a row gets no requests for a while."""


class Circuit:
    """Times are the caller's, in seconds."""

    __slots__ = ("_failures", "_max_failures", "_pause", "_until")

    def __init__(self, max_failures: int, pause: float) -> None:
        self._max_failures = max_failures
        self._pause = pause
        self._failures = 0
        #: When one request may test whether the service answers again; None while it answers.
        self._until: float | None = None

    def may_ask(self, now: float) -> bool:
        """Whether to send a request now. If so, `succeeded` or `failed` must be called afterwards."""
        if self._until is None:
            return True
        if now < self._until:
            return False
        self._until = now + self._pause  # a request without a result, because its client is gone, counts as failed
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
