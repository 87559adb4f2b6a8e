"""Too much within a while: alerts that begin at once, and end when it has been calm."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Protocol

from trunkline.analytics.jobs.alerts import Occurrence, Teller
from trunkline.analytics.jobs.machines import Machine, Result

#: Names that `Distinct` remembers of a window at most, when its limit is lower.
REMEMBERED: Final = 1000


class Measure(Protocol):
    """How much there is within the window that ends now. What is exactly as old as the window is out of it. No more is
    remembered than the limit needs. Times are microseconds."""

    limit: int
    amount: int

    def add(self, at: int, weight: int, name: str) -> int:
        """How much is new."""
        ...

    def forget(self, now: int) -> None:
        """Drop what is out of the window."""
        ...

    def over_until(self) -> int | None:
        """When the amount will be above the limit no more; None when it is not above it."""
        ...

    def empty_at(self) -> int | None: ...

    def save(self) -> list[Any]: ...


class Count:
    """How many, by weight."""

    def __init__(self, limit: int, window: int, saved: list[list[int]] | None = None) -> None:
        self.limit = limit
        self._window = window
        #: Time and weight of the newest ones.
        self._recent = saved or []
        self.amount = sum(weight for _, weight in self._recent)

    def add(self, at: int, weight: int, name: str) -> int:
        while self._recent and self.amount - self._recent[0][1] > self.limit:  # the others alone are too many
            self._drop()
        self.forget(at)
        self._recent.append([at, weight])
        self.amount += weight
        return weight

    def forget(self, now: int) -> None:
        while self._recent and self._recent[0][0] <= now - self._window:
            self._drop()

    def _drop(self) -> None:
        self.amount -= self._recent.pop(0)[1]

    def over_until(self) -> int | None:
        left = self.amount
        if left <= self.limit:
            return None
        return next(at for at, weight in self._recent if (left := left - weight) <= self.limit) + self._window

    def empty_at(self) -> int | None:
        return self._recent[-1][0] + self._window if self._recent else None

    def save(self) -> list[list[int]]:
        return self._recent


class Distinct:
    """How many different names. One that comes again is as young as its latest time."""

    def __init__(self, limit: int, window: int, saved: list[list[Any]] | None = None) -> None:
        self.limit = limit
        self._window = window
        #: Each with its latest time, in that order.
        self._names: dict[str, int] = {name: seen for name, seen in saved or ()}
        self.amount = len(self._names)

    def add(self, at: int, weight: int, name: str) -> int:
        self.forget(at)
        known = self._names.pop(name, None)
        self._names[name] = at
        if len(self._names) > max(self.limit + 1, REMEMBERED):
            del self._names[next(iter(self._names))]
        self.amount = len(self._names)
        return int(known is None)

    def forget(self, now: int) -> None:
        while self._names and next(iter(self._names.values())) <= now - self._window:
            del self._names[next(iter(self._names))]
        self.amount = len(self._names)

    def over_until(self) -> int | None:
        above = self.amount - self.limit
        return list(self._names.values())[above - 1] + self._window if above > 0 else None

    def empty_at(self) -> int | None:
        return next(reversed(self._names.values())) + self._window if self._names else None

    def save(self) -> list[list[Any]]:
        return [[name, seen] for name, seen in self._names.items()]


class _Alert(NamedTuple):
    began: int
    total: int
    #: The amount is above the limit until then, at least.
    over_until: int


class Burst(Machine[Occurrence]):
    """Tells when there is more than the limit within the window, and when that has been over for `calm` microseconds."""

    def __init__(self, teller: Teller, measure: Measure, calm: int, alert: list[int] | None = None) -> None:
        self._teller = teller
        self._measure = measure
        self._calm = calm
        self._alert = _Alert(*alert) if alert else None

    def event(self, event: Occurrence) -> Iterator[Result]:
        self._teller.see(event)
        new = self._measure.add(event.at, event.weight, event.username or "")
        over_until = self._measure.over_until()
        if self._alert is not None:
            total = self._alert.total + new
            self._alert = _Alert(self._alert.began, total, over_until or self._alert.over_until)
        elif over_until is not None:
            self._alert = _Alert(event.at, self._measure.amount, over_until)
            yield self._teller.begin(event.at, self._alert.total, float(self._measure.limit))
        self._wait()

    def expire(self) -> Iterator[Result]:
        assert self.due is not None
        if self._alert is not None:
            yield self._teller.end(self.due, self._alert.total, self._alert.began)
            self._alert = None
        self._measure.forget(self.due)
        self._wait()

    def _wait(self) -> None:
        self.due = self._measure.empty_at() if self._alert is None else self._alert.over_until + self._calm

    def save(self) -> list[Any] | None:
        if self.due is None:
            return None
        return [self._teller.save(), self._measure.save(), self._alert]
