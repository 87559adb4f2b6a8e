"""When to try again after a connection was lost or could not be made."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Protocol

from trunkline.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Callable


class RetryPolicy(Protocol):
    def should_retry(self, attempt: int, error: Exception) -> float | None:
        """How many seconds to wait before the next attempt; None for no further attempt. `attempt` counts from 1 since
        the last connection that was open for longer than the wait before it, and `error` is why the last one failed or
        ended."""
        ...


class NoRetry:
    """Every error is final."""

    def should_retry(self, attempt: int, error: Exception) -> float | None:
        return None


@dataclass(frozen=True, slots=True)
class ExponentialBackoff:
    """After a transient error: waits that double from `first` up to `largest` seconds. Each is shortened at random by
    up to the share `jitter`, so that the clients of a restarted server do not come back all at once."""

    first: float = 0.125
    largest: float = 60.0
    jitter: float = 0.1
    #: Attempts in a row; None means no limit.
    max_attempts: int | None = None
    random: Callable[[], float] = field(default_factory=lambda: Random().random, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not (0 <= self.first <= self.largest and 0 <= self.jitter <= 1):
            raise ValueError(f"first must be between 0 and largest, jitter between 0 and 1, not {self}")

    def should_retry(self, attempt: int, error: Exception) -> float | None:
        if not (isinstance(error, ClientError) and error.transient):
            return None
        if self.max_attempts is not None and attempt > self.max_attempts:
            return None
        # a float has room for a thousand doublings
        delay = min(self.first * 2.0 ** min(attempt - 1, 1000), self.largest)
        return delay * (1 - self.jitter * self.random())
