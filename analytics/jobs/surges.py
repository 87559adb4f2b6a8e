"""Much more than usual: events a window, held against an average of the windows before."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from trunkline.analytics.jobs.alerts import Occurrence, Teller
from trunkline.analytics.jobs.machines import Machine, Result


class SurgeRules(NamedTuple):
    """Times are microseconds."""

    #: Windows of this length, aligned to the epoch; an event on a border belongs to the later one.
    window: int
    #: So many times what is usual is too much …
    factor: float
    #: … if it is more than this.
    minimum: float
    #: The share of the newest window in the moving average, 0 to 1.
    learning: float
    #: An alert ends when no window has been above its threshold for so long.
    calm: int
    #: What was usual is forgotten when nothing happened for so long.
    forget: int
    #: What a subject did in its first window is taken for usual, whatever it is; otherwise nothing is usual at first.
    trusting: bool = False


class _Alert(NamedTuple):
    began: int
    total: int
    #: The end of the latest window that was above its threshold.
    over_until: int


class Surge(Machine[Occurrence]):
    """Tells when a window has more events than its threshold, and when that has been over for a while.

    The baseline is an exponentially weighted moving average. A window counts in it with its threshold at most: one flood
    does not become usual, but what lasts does in the end.
    """

    def __init__(self, teller: Teller, rules: SurgeRules, saved: list[Any] | None = None) -> None:
        self._teller = teller
        self._rules = rules
        #: Start of the window that is counted, and the count. None before the first event.
        self._start: int | None = None
        self._count = 0
        #: None as long as the first window is believed whatever it is.
        self._usual: float | None = None if rules.trusting else 0.0
        self._alert: _Alert | None = None
        if saved is not None:
            self._start, self._count, self._usual, alert = saved
            self._alert = _Alert(*alert) if alert else None

    def _threshold(self) -> float | None:
        return None if self._usual is None else max(self._rules.minimum, self._rules.factor * self._usual)

    def event(self, event: Occurrence) -> Iterator[Result]:
        self._teller.see(event)
        start = event.at - event.at % self._rules.window
        if self._start is None:
            self._start = start
        elif self._start < start:
            yield from self._close()
            empty = (start - self._start) // self._rules.window
            if self._usual is not None:
                self._usual *= (1 - self._rules.learning) ** empty
            self._start = start
        self._count += event.weight
        threshold = self._threshold()
        if self._alert is not None:
            self._alert = self._alert._replace(total=self._alert.total + event.weight)
        elif threshold is not None and self._count > threshold:
            self._alert = _Alert(event.at, self._count, start + self._rules.window)
            yield self._teller.begin(event.at, self._count, threshold, self._usual)
        self._wait()

    def _close(self) -> Iterator[Result]:
        """The window is over, and the next one begins."""
        assert self._start is not None
        end = self._start + self._rules.window
        threshold = self._threshold()
        if self._alert is not None:
            if threshold is not None and self._count > threshold:
                self._alert = self._alert._replace(over_until=end)
            elif end - self._alert.over_until >= self._rules.calm:
                yield self._teller.end(end, self._alert.total, self._alert.began)
                self._alert = None
        if self._usual is None or threshold is None:
            self._usual = float(self._count)
        else:
            self._usual += self._rules.learning * (min(self._count, threshold) - self._usual)
        self._start, self._count = end, 0

    def expire(self) -> Iterator[Result]:
        if self._alert is not None:
            yield from self._close()
            self._wait()
        else:
            self._start = self.due = None
            self._count, self._usual = 0, None if self._rules.trusting else 0.0

    def _wait(self) -> None:
        assert self._start is not None
        self.due = self._start + self._rules.window + (self._rules.forget if self._alert is None else 0)

    def save(self) -> list[Any] | None:
        if self._start is None:
            return None
        return [self._teller.save(), [self._start, self._count, self._usual, self._alert]]
