"""The axes of a plot: windows of time below, and values at the side, with few and round marks."""

from __future__ import annotations

import math
from datetime import timedelta
from statistics import fmean
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from trunkline.events.times import EPOCH

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

T = TypeVar("T")

#: Points of a plot: a page must not grow with its period.
MAX_POINTS: Final = 240
#: Seconds between the marks of a time axis.
STEPS: Final = (
    *(1, 2, 5, 10, 15, 30),
    *(60, 120, 300, 600, 900, 1800),
    *(3600, 7200, 3 * 3600, 6 * 3600, 12 * 3600),
    *(86_400, 2 * 86_400, 7 * 86_400, 14 * 86_400, 28 * 86_400, 91 * 86_400, 364 * 86_400),
)


class Grid:
    """The windows between two times. Neighbours are grouped where there are too many."""

    def __init__(self, begin: datetime, end: datetime, window: float, most: int = MAX_POINTS) -> None:
        """`window` in seconds."""
        number = max(1, math.ceil((end - begin).total_seconds() / window - 1e-9))
        self.begin = begin
        #: Windows of one point.
        self.grouped = math.ceil(number / most)
        #: Seconds of one point.
        self.step = window * self.grouped
        self.size = math.ceil(number / self.grouped)
        self.end = begin + timedelta(seconds=self.size * self.step)
        self.times = [begin + timedelta(seconds=index * self.step) for index in range(self.size)]

    def _indexed(self, values: Iterable[tuple[datetime, T]]) -> Iterable[tuple[int, T]]:
        for time, value in values:
            index = math.floor((time - self.begin).total_seconds() / self.step + 1e-9)
            if 0 <= index < self.size:
                yield index, value

    def sums(self, counts: Iterable[tuple[datetime, float]]) -> list[float]:
        """Counts of each point, 0 where there were none."""
        found = [0.0] * self.size
        for index, value in self._indexed(counts):
            found[index] += value
        return found

    def highest(self, levels: Iterable[tuple[datetime, float]]) -> list[float | None]:
        """The worst window of each point, for percentiles and the like; None where there was none."""
        found: list[float | None] = [None] * self.size
        for index, value in self._indexed(levels):
            found[index] = max(value, found[index] or 0.0)
        return found

    def spans(
        self, levels: Iterable[tuple[datetime, tuple[float, float, float]]]
    ) -> list[tuple[float, float, float] | None]:
        """The lowest, the mean and the highest of each point, from those of windows."""
        found: list[list[tuple[float, float, float]]] = [[] for _ in range(self.size)]
        for index, of_window in self._indexed(levels):
            found[index].append(of_window)
        return [
            (min(low for low, _, _ in each), fmean(mean for _, mean, _ in each), max(high for _, _, high in each))
            if each
            else None
            for each in found
        ]

    def held(self, readings: Iterable[tuple[datetime, float, float, datetime]]) -> list[float | None]:
        """Levels that are read now and then: time of a window, the highest in it, and the last, which holds until a
        time. Each point has the highest."""
        found: list[float | None] = [None] * self.size
        for time, highest, last, until in readings:
            first = math.floor((time - self.begin).total_seconds() / self.step + 1e-9)
            end = math.ceil((until - self.begin).total_seconds() / self.step - 1e-9)
            for index in range(max(first, 0), min(max(end, first + 1), self.size)):
                found[index] = max(highest if index == first else last, found[index] or 0.0)
        return found

    def marks(self, most: int = 8) -> list[tuple[float, str]]:
        """Positions (0 to 1) and labels. Days and hours stand at their own beginning, UTC; midnight shows the day."""
        length = (self.end - self.begin).total_seconds()
        step = next((step for step in STEPS if length / step <= most), math.ceil(length / most / STEPS[-1]) * STEPS[-1])
        form = "%H:%M:%S" if step < 60 else "%H:%M" if step < 86_400 else "%d %b" if length < 300 * 86_400 else "%b %Y"
        first, last = ((time - EPOCH).total_seconds() / step for time in (self.begin, self.end))
        found: list[tuple[float, str]] = []
        for number in range(math.ceil(first), math.floor(last) + 1):
            time = EPOCH + timedelta(seconds=number * step)
            midnight = form == "%H:%M" and not time.hour and not time.minute
            label = time.strftime("%d %b" if midnight else form)
            found.append(((time - self.begin).total_seconds() / length, label))
        return found


class Scale(NamedTuple):
    """From values to positions: 0 at the bottom, 1 at the top."""

    low: float
    high: float
    #: The values that have a mark.
    marks: Sequence[float]
    logarithmic: bool = False

    def position(self, value: float) -> float:
        if self.logarithmic:
            return math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def linear(low: float, high: float, marks: int = 4) -> Scale:
    """Between round numbers, zero among them."""
    low, high = min(low, 0.0), max(high, 0.0)
    if low == high:
        high = 1.0
    rough = (high - low) / marks
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * (1 - 1e-9))
    bottom, top = math.floor(low / step), math.ceil(high / step)
    return Scale(bottom * step, top * step, [number * step for number in range(bottom, top + 1)])


def logarithmic(low: float, high: float) -> Scale:
    """Between powers of ten."""
    bottom = math.floor(math.log10(max(low, 1e-9)))
    top = max(bottom + 1, math.ceil(math.log10(high)))
    marks = [10.0**power for power in range(bottom, top + 1, 1 + (top - bottom) // 6)]
    return Scale(10.0**bottom, 10.0**top, marks, logarithmic=True)
