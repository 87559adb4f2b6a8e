"""Where the marks of an axis stand: round numbers, few of them."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Seconds between the marks of a time axis.
STEPS: Final = (
    *(1, 2, 5, 10, 15, 30),
    *(60, 120, 300, 600, 900, 1800),
    *(3600, 7200, 3 * 3600, 6 * 3600, 12 * 3600),
    *(86_400, 2 * 86_400, 7 * 86_400, 14 * 86_400, 28 * 86_400, 91 * 86_400, 364 * 86_400),
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Mark(NamedTuple):
    #: From 0 (left, bottom) to 1.
    position: float
    value: float


class Scale(NamedTuple):
    """From values to 0 (bottom) … 1 (top)."""

    low: float
    high: float
    marks: Sequence[Mark]
    logarithmic: bool = False

    def position(self, value: float) -> float:
        if self.logarithmic:
            value = max(value, self.low)
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def linear(low: float, high: float, marks: int = 4) -> Scale:
    """From zero, or from what is below it, to a round number that is not below `high`."""
    low, high = min(low, 0.0), max(high, 0.0)
    if low == high:
        high = 1.0
    step = _round((high - low) / marks)
    bottom, top = math.floor(low / step), math.ceil(high / step)
    scale = Scale(bottom * step, top * step, ())
    values = [number * step for number in range(bottom, top + 1)]
    return scale._replace(marks=[Mark(scale.position(value), value) for value in values])


def logarithmic(low: float, high: float) -> Scale:
    """Between powers of ten."""
    bottom = math.floor(math.log10(max(low, 1e-9)))
    top = max(bottom + 1, math.ceil(math.log10(high)))
    scale = Scale(10.0**bottom, 10.0**top, (), logarithmic=True)
    values = [10.0**power for power in range(bottom, top + 1, 1 + (top - bottom) // 6)]
    return scale._replace(marks=[Mark(scale.position(value), value) for value in values])


def _round(step: float) -> float:
    power = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= step * (1 - 1e-9))


def times(begin: datetime, end: datetime, marks: int = 8) -> list[tuple[float, str]]:
    """Positions and words of a time axis. Days and hours stand at their own beginning, UTC, and at midnight is the
    day."""
    length = (end - begin).total_seconds()
    step = next((step for step in STEPS if length / step <= marks), math.ceil(length / marks / STEPS[-1]) * STEPS[-1])
    form = "%H:%M:%S" if step < 60 else "%H:%M" if step < 86_400 else "%d %b" if length < 300 * 86_400 else "%b %Y"
    first = math.ceil((begin - _EPOCH).total_seconds() / step)
    last = math.floor((end - _EPOCH).total_seconds() / step)
    found = [_EPOCH + timedelta(seconds=number * step) for number in range(first, last + 1)]
    return [((time - begin).total_seconds() / length, _words(time, form)) for time in found]


def _words(time: datetime, form: str) -> str:
    midnight = form == "%H:%M" and not time.hour and not time.minute
    return time.strftime("%d %b" if midnight else form)
