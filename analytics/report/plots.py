"""Series of values as the SVG paths of a plot.

They are drawn in a square of 1000 by 1000 that the page stretches to its width. Strokes do not grow with it, and labels
are no part of the drawing, so they stay readable on a telephone.

No plotting library does this: a page with its plots and tables takes 30 to 500 kB, has no script, follows the dark
setting of the device, and is read aloud. A plot of 3 series takes 40 kB by matplotlib (130 MB installed), without
tables or values to point at, in fixed colours, 52 kB by Altair (84 MB), or 950 kB of scripts; 230 kB by pygal.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from trunkline.analytics.report import axes, wording

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trunkline.analytics.report.axes import Grid, Scale

SIDE: Final = 1000
#: Levels of which the highest is so many times the median get a logarithmic axis.
_WIDE: Final = 50.0
#: Part of a point's width that a bar takes.
_BAR: Final = 0.8


class Series(NamedTuple):
    name: str
    values: Sequence[float | None]


class Band(NamedTuple):
    """Of each point the lowest, the mean and the highest level, or None."""

    name: str
    values: Sequence[tuple[float, float, float] | None]


class Drawn(NamedTuple):
    name: str
    #: Of lines, or of bars.
    path: str
    #: Below a line, or around it; empty where there is none.
    area: str
    #: Beside the name: the sum, or the highest value.
    figure: str


class Hit(NamedTuple):
    """The strip of a point, which shows its values when the pointer is over it."""

    x: float
    width: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    id: str
    title: str
    #: A sentence for readers that cannot see the plot.
    summary: str
    kind: str
    series: Sequence[Drawn]
    #: Per cent from the bottom, and a label.
    marks: Sequence[tuple[float, str]]
    #: Per cent from the left, and a label.
    times: Sequence[tuple[float, str]]
    hits: Sequence[Hit]
    #: Where zero is in the drawing; 0 without a zero.
    zero: float
    note: str
    table: Sequence[Sequence[str]]
    headings: Sequence[str]


def lines(
    id: str, title: str, grid: Grid, series: Sequence[Series], say: Callable[[float], str], *, adds_up: bool = True
) -> Plot:
    """`adds_up`: the values of a series are counts, and 0 where there are none; otherwise they are levels."""
    scale = _scale([value for each in series for value in each.values if value is not None], adds_up)
    drawn = [
        Drawn(
            each.name,
            _line(each.values, scale),
            _area(each.values, scale) if adds_up else "",
            _figure(each, say, adds_up),
        )
        for each in series
    ]
    return _plot("lines", id, title, grid, series, drawn, scale, say, say)


def bands(id: str, title: str, grid: Grid, series: Sequence[Band], say: Callable[[float], str]) -> Plot:
    """A line of means in an area from the lowest to the highest."""
    scale = _scale([level for each in series for levels in each.values if levels for level in levels], adds_up=False)
    drawn: list[Drawn] = []
    for each in series:
        there = [levels for levels in each.values if levels is not None]
        figure = f"{say(min(low for low, _, _ in there))} to {say(max(high for _, _, high in there))}" if there else ""
        means = [levels and levels[1] for levels in each.values]
        drawn.append(Drawn(each.name, _line(means, scale), _between(each.values, scale), figure))

    def tell(levels: tuple[float, float, float]) -> str:
        low, mean, high = map(say, levels)
        return mean if low == high else f"{mean} ({low} to {high})"

    return _plot("lines", id, title, grid, series, drawn, scale, say, tell)


def bars(id: str, title: str, grid: Grid, series: Sequence[Series], below: Sequence[Series] = ()) -> Plot:
    """Counts on top of each other; those of `below` hang from the axis."""
    ups, downs = ([[value or 0.0 for value in each.values] for each in group] for group in (series, below))
    scale = axes.linear(
        -max(map(sum, zip(*downs, strict=True)), default=0), max(map(sum, zip(*ups, strict=True)), default=0)
    )
    drawn: list[Drawn] = []
    for sign, group, counts in ((1, series, ups), (-1, below, downs)):
        tops = list(accumulate(counts, lambda low, high: [a + b for a, b in zip(low, high, strict=True)]))
        for each, own, top in zip(group, counts, tops, strict=True):
            drawn.append(Drawn(each.name, _bars(own, top, scale, sign), "", _figure(each, wording.short, True)))

    def say(value: float) -> str:
        return wording.short(abs(value))

    return _plot("bars", id, title, grid, [*series, *below], drawn, scale, say, say)


def _scale(values: Sequence[float], adds_up: bool) -> Scale:
    positive = sorted(value for value in values if value > 0)
    if not adds_up and positive and positive[-1] > _WIDE * positive[len(positive) // 2]:
        return axes.logarithmic(positive[0], positive[-1])
    return axes.linear(0.0, max(values, default=0.0))


def _figure(series: Series, say: Callable[[float], str], adds_up: bool) -> str:
    values = [value for value in series.values if value is not None]
    if adds_up:
        return f"{say(sum(values))} in all"
    return f"at most {say(max(values))}" if values else ""


def _y(value: float, scale: Scale) -> float:
    return SIDE * (1 - scale.position(value))


def _line(values: Sequence[float | None], scale: Scale) -> str:
    """A point between two gaps is a line of its own, which its round end makes a dot."""
    width = SIDE / len(values)
    parts: list[str] = []
    previous: float | None = None
    for index, value in enumerate(values):
        if value is not None:
            pen, dot = ("M", "h0") if previous is None else ("L", "")
            parts.append(f"{pen}{(index + 0.5) * width:.5g} {_y(value, scale):.5g}{dot}")
        previous = value
    return "".join(parts)


def _area(values: Sequence[float | None], scale: Scale) -> str:
    zero, half = _y(0.0, scale), SIDE / len(values) / 2
    line = _line([value or 0.0 for value in values], scale)
    return f"{line}L{SIDE - half:.5g} {zero:.5g}L{half:.5g} {zero:.5g}z"


def _between(values: Sequence[tuple[float, float, float] | None], scale: Scale) -> str:
    """Along the highest and back along the lowest, for each stretch without a gap."""
    width = SIDE / len(values)
    parts: list[str] = []
    for there, stretch in groupby(enumerate(values), lambda item: item[1] is not None):
        if there:
            points = [((index + 0.5) * width, levels) for index, levels in stretch if levels is not None]
            edge = [f"{x:.5g} {_y(levels[2], scale):.5g}" for x, levels in points]
            edge += [f"{x:.5g} {_y(levels[0], scale):.5g}" for x, levels in reversed(points)]
            parts.append(f"M{'L'.join(edge)}z")
    return "".join(parts)


def _bars(counts: Sequence[float], tops: Sequence[float], scale: Scale, sign: int) -> str:
    width = SIDE / len(counts)
    bar = width * _BAR
    parts: list[str] = []
    for index, (count, top) in enumerate(zip(counts, tops, strict=True)):
        if count > 0:
            x, begin, end = index * width + (width - bar) / 2, _y(sign * (top - count), scale), _y(sign * top, scale)
            parts.append(f"M{x:.5g} {begin:.5g}V{end:.5g}h{bar:.4g}V{begin:.5g}z")
    return "".join(parts)


def _plot(
    kind: str,
    id: str,
    title: str,
    grid: Grid,
    series: Sequence[Series | Band],
    drawn: Sequence[Drawn],
    scale: Scale,
    say: Callable[[float], str],
    tell: Callable[[Any], str],
) -> Plot:
    """`say` is for marks, and `tell` for the values of the series."""
    width = SIDE / grid.size
    hits: list[Hit] = []
    table: list[list[str]] = []
    for index, time in enumerate(grid.times):
        values = [each.values[index] for each in series]
        words = ["–" if value is None else tell(value) for value in values]
        table.append([wording.moment(time), *words])
        if any(values):
            named = [f"{each.name}: {word}" for each, word in zip(series, words, strict=True)]
            text = "\n".join([f"{wording.moment(time)} UTC", *named])
            hits.append(Hit(round(index * width, 2), round(width, 2), text))
    ends = f"from {wording.moment(grid.begin)} to {wording.moment(grid.end)} UTC"
    figures = "; ".join(f"{each.name}: {each.figure or 'none'}" for each in drawn)
    return Plot(
        id=id,
        title=title,
        summary=f"{title} {ends}, a point every {wording.duration(grid.step)}. {figures}.",
        kind=kind,
        series=drawn,
        marks=[(round(100 * scale.position(value), 2), say(value)) for value in scale.marks],
        times=[(round(100 * position, 2), label) for position, label in grid.marks()],
        hits=hits,
        zero=0.0 if scale.logarithmic else round(_y(0.0, scale), 2),
        note="The axis is logarithmic." if scale.logarithmic else "",
        table=table,
        headings=["Time (UTC)", *[each.name for each in series]],
    )
