"""Rows of windows, put on a grid of at most so many points: a page must not grow with the period that it tells of."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

#: Points of a plot.
MOST_POINTS: Final = 240


class Grid:
    """The windows between two times, or groups of neighbours if they are too many."""

    def __init__(self, begin: datetime, end: datetime, window: float, most: int = MOST_POINTS) -> None:
        """`window` in seconds.

        Raises:
            ValueError: the window is none, or the period ends before it begins.
        """
        if window <= 0 or end < begin:
            raise ValueError(f"windows of {window:g} s between {begin} and {end}")
        number = max(1, math.ceil((end - begin).total_seconds() / window - 1e-9))
        self.begin = begin
        #: Windows that are one point.
        self.grouped = math.ceil(number / most)
        #: Seconds of one point.
        self.step = window * self.grouped
        self.size = math.ceil(number / self.grouped)
        self.end = begin + timedelta(seconds=self.size * self.step)
        self.times = [begin + timedelta(seconds=index * self.step) for index in range(self.size)]

    def index(self, time: datetime) -> int | None:
        """The point to which a window belongs that begins at this time; None outside."""
        place = math.floor((time - self.begin).total_seconds() / self.step + 1e-9)
        return place if 0 <= place < self.size else None

    def sums(self, happened: Iterable[tuple[datetime, float]]) -> list[float]:
        """Of counts: what happened in a point's windows together, 0 where there was none."""
        found = [0.0] * self.size
        for time, value in happened:
            place = self.index(time)
            if place is not None:
                found[place] += value
        return found

    def highest(self, levels: Iterable[tuple[datetime, float]]) -> list[float | None]:
        """Of what cannot be added up, such as percentiles: the worst of a point's windows, None where there was none."""
        found: list[float | None] = [None] * self.size
        for time, value in levels:
            place = self.index(time)
            if place is not None:
                found[place] = max(value, found[place] or 0.0)
        return found

    def held(self, levels: Sequence[float | None], seconds: float) -> list[float | None]:
        """With gaps filled that are no longer than this: what is read now and then counts until it is read again."""
        found: list[float | None] = []
        last, since = None, 0.0
        for level in levels:
            since += self.step
            if level is not None:
                last, since = level, 0.0
            found.append(last if since <= seconds else None)
        return found
