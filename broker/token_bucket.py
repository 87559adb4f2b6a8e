"""A limit of events per second that allows bursts. Pure: time is an argument."""

from __future__ import annotations

from math import inf


class TokenBucket:
    """Tokens come at `rate` a second, up to `burst`. Taking may leave a debt, which new tokens pay off first.

    The one number that is kept is when the bucket will be full (the generic cell rate algorithm): a time that was
    computed once can be compared exactly, where a number of tokens would need tolerance.

    With a burst of 1 it is a leaky bucket that shapes: events leave one by one, evenly spaced.
    """

    __slots__ = ("_full_at", "_spare", "burst", "rate")

    def __init__(self, rate: float, burst: float) -> None:
        """Full. `burst` is at least 1."""
        self.rate = rate
        self.burst = burst
        #: Seconds that a single token is there before the bucket is full.
        self._spare = (burst - 1) / rate
        self._full_at = -inf

    @property
    def shapes(self) -> bool:
        return self.burst == 1

    def available(self, now: float) -> float:
        """Tokens that are there; negative for a debt."""
        return self.burst - max(0.0, self._full_at - now) * self.rate

    @property
    def ready_at(self) -> float:
        """When one token is there; in the past if it is there already."""
        return self._full_at - self._spare

    def take(self, amount: float, now: float) -> None:
        """Take tokens, whether they are there or not."""
        self._full_at = max(self._full_at, now) + amount / self.rate

    def has(self, amount: float, now: float) -> bool:
        """Whether so many tokens are there. For more than the burst, the bucket has to be full."""
        return self._full_at - max(0.0, self.burst - amount) / self.rate <= now

    def is_full(self, now: float) -> bool:
        return self._full_at <= now
