"""Series of values as the paths of a plot.

A plot is drawn in a square of 1000 by 1000 that the page stretches to its width; strokes do not grow with it, and the
words beside it are no part of the drawing, so they stay readable on a telephone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from trunkline.analytics.report import scales, wording

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trunkline.analytics.report.grid import Grid
    from trunkline.analytics.report.scales import Scale

SIDE: Final = 1000
#: A plot of values that are so much further apart than this gets a logarithmic axis.
_WIDE: Final = 50.0
#: Part of a point's width that a bar takes.
_BAR: Final = 0.8


class Series(NamedTuple):
    name: str
    values: Sequence[float | None]


class Drawn(NamedTuple):
    name: str
    #: Of lines, or of bars.
    path: str
    #: Below a line; empty where there is none.
    area: str
    #: What stands beside the name: the sum, or the highest value.
    figure: str


class Hit(NamedTuple):
    """The strip of a point, which tells its values when it is pointed at."""

    x: float
    width: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    id: str
    title: str
    #: What it shows, in a sentence, for who cannot see it.
    summary: str
    kind: str
    series: Sequence[Drawn]
    #: Per cent from the bottom, and words.
    marks: Sequence[tuple[float, str]]
    #: Per cent from the left, and words.
    times: Sequence[tuple[float, str]]
    hits: Sequence[Hit]
    #: Where zero is, in the drawing.
    zero: float
    note: str = ""
    table: Sequence[Sequence[str]] = field(default=())
    headings: Sequence[str] = field(default=())


def lines(
    name: str, title: str, grid: Grid, series: Sequence[Series], say: Callable[[float], str], *, adds_up: bool = True
) -> Plot:
    """`adds_up`: the values of a series make a sum, and are 0 where there is none; otherwise they are levels."""
    present = [value for each in series for value in each.values if value is not None]
    scale = _scale(present, adds_up)
    drawn = [
        Drawn(
            each.name,
            _line(each.values, scale),
            _area(each.values, scale) if adds_up else "",
            _figure(each, say, adds_up),
        )
        for each in series
    ]
    note = "The axis is logarithmic." if scale.logarithmic else ""
    return _plot("lines", name, title, grid, series, drawn, scale, say, note)


def bars(name: str, title: str, grid: Grid, series: Sequence[Series], below: Sequence[Series] = ()) -> Plot:
    """Counts on top of each other; those of `below` hang from the axis."""
    up, down = _stacked(series), _stacked(below)
    scale = scales.linear(-_top(down), _top(up))
    drawn = [
        Drawn(each.name, _bars(stack, scale, sign), "", _figure(each, wording.short, True))
        for sign, group, stacks in ((1, series, up), (-1, below, down))
        for each, stack in zip(group, stacks, strict=True)
    ]
    return _plot("bars", name, title, grid, [*series, *below], drawn, scale, _unsigned, "")


def _unsigned(value: float) -> str:
    return wording.short(abs(value))


def _scale(values: Sequence[float], adds_up: bool) -> Scale:
    positive = sorted(value for value in values if value > 0)
    if not adds_up and positive and positive[-1] > _WIDE * positive[len(positive) // 2]:
        return scales.logarithmic(positive[0], positive[-1])
    return scales.linear(0.0, max(values, default=0.0))


def _figure(series: Series, say: Callable[[float], str], adds_up: bool) -> str:
    values = [value for value in series.values if value is not None]
    if adds_up:
        return f"{say(sum(values))} in all"
    return f"at most {say(max(values))}" if values else ""


def _line(values: Sequence[float | None], scale: Scale) -> str:
    """A point between two gaps is a line to itself, which its round end makes a dot."""
    width = SIDE / len(values)
    parts: list[str] = []
    pen = "M"
    for index, value in enumerate(values):
        if value is None:
            pen = "M"
            continue
        x, y = (index + 0.5) * width, SIDE * (1 - scale.position(value))
        parts.append(f"{pen}{x:.5g} {y:.5g}" + ("h0" if pen == "M" else ""))
        pen = "L"
    return "".join(parts)


def _area(values: Sequence[float | None], scale: Scale) -> str:
    line = _line([value or 0.0 for value in values], scale)
    zero = SIDE * (1 - scale.position(0.0))
    width = SIDE / len(values)
    return f"{line}L{SIDE - width / 2:.5g} {zero:.5g}L{width / 2:.5g} {zero:.5g}z"


class _Stack(NamedTuple):
    #: Where each bar begins, and where it ends.
    low: Sequence[float]
    high: Sequence[float]


def _stacked(series: Sequence[Series]) -> list[_Stack]:
    stacks: list[_Stack] = []
    low = [0.0] * (len(series[0].values) if series else 0)
    for each in series:
        high = [under + (value or 0.0) for under, value in zip(low, each.values, strict=True)]
        stacks.append(_Stack(low, high))
        low = high
    return stacks


def _top(stacks: Sequence[_Stack]) -> float:
    return max(stacks[-1].high) if stacks else 0.0


def _bars(stack: _Stack, scale: Scale, sign: int) -> str:
    width = SIDE / len(stack.low)
    bar = width * _BAR
    parts: list[str] = []
    for index, (low, high) in enumerate(zip(stack.low, stack.high, strict=True)):
        if high > low:
            x = index * width + (width - bar) / 2
            begin, end = SIDE * (1 - scale.position(sign * low)), SIDE * (1 - scale.position(sign * high))
            parts.append(f"M{x:.5g} {begin:.5g}V{end:.5g}h{bar:.4g}V{begin:.5g}z")
    return "".join(parts)


def _plot(
    kind: str,
    name: str,
    title: str,
    grid: Grid,
    series: Sequence[Series],
    drawn: Sequence[Drawn],
    scale: Scale,
    say: Callable[[float], str],
    note: str,
) -> Plot:
    width = SIDE / grid.size
    hits: list[Hit] = []
    table: list[list[str]] = []
    for index, time in enumerate(grid.times):
        values = [each.values[index] for each in series]
        words = ["–" if value is None else say(value) for value in values]
        told = [f"{each.name}: {word}" for each, word in zip(series, words, strict=True)]
        if any(value for value in values):
            hits.append(
                Hit(round(index * width, 2), round(width, 2), "\n".join([f"{wording.moment(time)} UTC", *told]))
            )
        table.append([wording.moment(time), *words])
    ends = f"from {wording.moment(grid.begin)} to {wording.moment(grid.end)} UTC"
    figures = "; ".join(f"{each.name}: {each.figure or 'none'}" for each in drawn)
    return Plot(
        id=name,
        title=title,
        summary=f"{title} {ends}, a point every {wording.duration(grid.step)}. {figures}.",
        kind=kind,
        series=drawn,
        marks=[(round(100 * mark.position, 2), say(mark.value)) for mark in scale.marks],
        times=[(round(100 * place, 2), words) for place, words in scales.times(grid.begin, grid.end)],
        hits=hits,
        zero=0.0 if scale.logarithmic else round(SIDE * (1 - scale.position(0.0)), 2),
        note=note,
        table=table,
        headings=["Time (UTC)", *[each.name for each in series]],
    )
