"""Alerts begin and end: about more events than a limit within a window that slides, or than is usual for a window."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

from trunkline.analytics.jobs.machines import Machine, Result, Subject

COLUMNS: Final = """
    time timestamp When the alert began, or ended; of one that goes on, the end of the events.
    alert string Which alert.
    state string `begin` or `end`; of recorded events also `on`: it goes on at their end.
    scope string What `subject` is: `client`, `peer` (an address) or `node`.
    subject string The client, address or node.
    node string Where its latest event was.
    client_id string Of its latest event.
    username string Of its latest event.
    peer string Of its latest event.
    count bigint Events: at the beginning those within the window, later all since the first of them.
    threshold double At the beginning: `count` is above it.
    usual double At the beginning, of a baseline: events that a window usually has.
    began timestamp When the alert began.
    since timestamp The first of the events that made it.
    last timestamp The last event that was too many, so far.
    duration double Seconds from `since` to `last`; null at the beginning.
"""
#: They identify a row.
KEY: Final = ("alert", "scope", "subject", "state", "time")
#: User names that are remembered of a window at most, if the limit is lower.
MAX_NAMES: Final = 1000


class Occurrence(NamedTuple):
    """An event of which there may be too many."""

    at: int
    node: str
    incarnation: int
    seq: int
    weight: int
    client_id: str | None
    username: str | None
    peer: str | None


class Alerting(Machine[Occurrence]):
    """Begins and ends alerts about one subject. Times are microseconds."""

    state: ClassVar[tuple[str, ...]] = ("latest", "began", "first", "last", "total", "over_until")

    def __init__(self, alert: str, subject: Subject) -> None:
        self.about: Final[Result] = {"alert": alert, "scope": subject.scope, "subject": subject.name}
        #: Node, client, user name and address of its latest event.
        self.latest: list[str | None] = [None] * 4
        #: When the alert began; None while there is none.
        self.began: int | None = None
        #: Of the events that made it: the first, and the last that was too many.
        self.first = self.last = 0
        #: Events since the first that belongs to it.
        self.total = 0
        #: There are too many until then, at least.
        self.over_until = 0

    def see(self, event: Occurrence) -> None:
        self.latest = [event.node, event.client_id, event.username, event.peer]

    def begin(
        self, first: int, at: int, count: int, over_until: int, threshold: float, usual: float | None = None
    ) -> Result:
        self.first, self.began, self.total = first, at, count
        self.prolong(at, over_until)
        return self._row("begin", at) | {"threshold": threshold, "usual": usual}

    def prolong(self, at: int, over_until: int) -> None:
        self.last, self.over_until = at, over_until

    def over(self, at: int) -> Result:
        row = self._later("end", at)
        self.began = None
        return row

    def end(self, now: int) -> Iterator[Result]:
        if self.began is not None:
            yield self._later("on", now)

    def _later(self, state: str, at: int) -> Result:
        return self._row(state, at) | {"duration": (self.last - self.first) / 1_000_000}

    def _row(self, state: str, at: int) -> Result:
        latest = zip(("node", "client_id", "username", "peer"), self.latest, strict=True)
        about = self.about | dict(latest) | {"began": self.began, "since": self.first, "last": self.last}
        return about | {"state": state, "time": at, "count": self.total}


@dataclass(frozen=True)
class Limit:
    """Times are microseconds."""

    most: int
    window: int
    #: An alert ends when the limit has not been exceeded for so long.
    calm: int
    #: Whether different user names count, and not events.
    names: bool = False


class Burst(Alerting):
    """Too much within the window that ends now. What is exactly as old as the window is out of it. No more is
    remembered than the limit needs."""

    state: ClassVar[tuple[str, ...]] = (*Alerting.state, "recent")

    def __init__(self, alert: str, subject: Subject, limit: Limit) -> None:
        super().__init__(alert, subject)
        self.limit: Final = limit
        #: Time, weight and name of the newest events; of names, the latest event of each.
        self.recent: list[list[int | str]] = []

    def event(self, event: Occurrence) -> Iterator[Result]:
        self.see(event)
        new = self._add(event)
        amount = self._amount()
        over_until = self._over_until(amount)
        if self.began is not None:
            self.total += new
            if over_until is not None:
                self.prolong(event.at, over_until)
        elif over_until is not None:
            yield self.begin(int(self.recent[0][0]), event.at, amount, over_until, float(self.limit.most))
        self._wait()

    def _add(self, event: Occurrence) -> int:
        """How much is new."""
        most = max(self.limit.most - 1, MAX_NAMES - 2) if self.limit.names else self.limit.most
        while self.recent and self._amount() - int(self.recent[0][1]) > most:  # the others alone are too many
            del self.recent[0]
        self._forget(event.at)
        if not self.limit.names:
            self.recent.append([event.at, event.weight, ""])
            return event.weight
        name = event.username or ""
        known = next((one for one in self.recent if one[2] == name), None)
        if known is not None:
            self.recent.remove(known)
        self.recent.append([event.at, 1, name])
        return int(known is None)

    def _amount(self) -> int:
        return len(self.recent) if self.limit.names else sum(int(weight) for _, weight, _ in self.recent)

    def _forget(self, now: int) -> None:
        while self.recent and int(self.recent[0][0]) <= now - self.limit.window:
            del self.recent[0]

    def _over_until(self, amount: int) -> int | None:
        """When the amount will be above the limit no more; None when it is not above it."""
        if amount > self.limit.most:
            for at, weight, _ in self.recent:
                amount -= int(weight)
                if amount <= self.limit.most:
                    return int(at) + self.limit.window
        return None

    def expire(self) -> Iterator[Result]:
        assert self.due is not None
        if self.began is not None:
            yield self.over(self.due)
        self._forget(self.due)
        self._wait()

    def _wait(self) -> None:
        if self.began is not None:
            self.due = self.over_until + self.limit.calm
        else:
            self.due = int(self.recent[-1][0]) + self.limit.window if self.recent else None


@dataclass(frozen=True)
class Baseline:
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
    #: The usual rate is forgotten when nothing happens for this long.
    forget: int
    #: The first window of a subject counts as usual; otherwise the usual rate starts at zero.
    trusting: bool = False


class Surge(Alerting):
    """More events in a window than its threshold.

    What is usual is an exponentially weighted moving average. A window counts in it with its threshold at most: one
    flood does not become usual, but a lasting change does in the end.
    """

    state: ClassVar[tuple[str, ...]] = (*Alerting.state, "start", "count", "opened", "usual")

    def __init__(self, alert: str, subject: Subject, baseline: Baseline) -> None:
        super().__init__(alert, subject)
        self.baseline: Final = baseline
        #: Start of the window that is counted, and the count. None before the first event.
        self.start: int | None = None
        self.count = 0
        #: Time of the first event in it.
        self.opened = 0
        #: None as long as the first window is believed whatever it is.
        self.usual: float | None = None if baseline.trusting else 0.0

    def _threshold(self) -> float | None:
        return None if self.usual is None else max(self.baseline.minimum, self.baseline.factor * self.usual)

    def event(self, event: Occurrence) -> Iterator[Result]:
        self.see(event)
        start = event.at - event.at % self.baseline.window
        if self.start is None:
            self.start = start
        elif self.start < start:
            yield from self._close()
            if self.usual is not None:
                self.usual *= (1 - self.baseline.learning) ** ((start - self.start) // self.baseline.window)
            self.start = start
        if not self.count:
            self.opened = event.at
        self.count += event.weight
        threshold = self._threshold()
        end = start + self.baseline.window
        is_over = threshold is not None and self.count > threshold
        if self.began is not None:
            self.total += event.weight
            if is_over:
                self.prolong(event.at, end)
        elif threshold is not None and is_over:
            yield self.begin(self.opened, event.at, self.count, end, threshold, self.usual)
        self._wait()

    def _close(self) -> Iterator[Result]:
        """The window is over, and the next one begins."""
        assert self.start is not None
        end = self.start + self.baseline.window
        threshold = self._threshold()
        if self.began is not None and end > self.over_until and end - self.over_until >= self.baseline.calm:
            yield self.over(end)
        if self.usual is None or threshold is None:
            self.usual = float(self.count)
        else:
            self.usual += self.baseline.learning * (min(self.count, threshold) - self.usual)
        self.start, self.count = end, 0

    def expire(self) -> Iterator[Result]:
        if self.began is not None:
            yield from self._close()
            self._wait()
        else:
            self.start = self.due = None
            self.count, self.usual = 0, None if self.baseline.trusting else 0.0

    def _wait(self) -> None:
        assert self.start is not None
        self.due = self.start + self.baseline.window + (self.baseline.forget if self.began is None else 0)
