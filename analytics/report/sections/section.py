"""A section of the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from trunkline.analytics.report.plots import Plot, Series

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trunkline.analytics.report.axes import Grid
    from trunkline.analytics.report.results import Window
    from trunkline.analytics.report.tables import Table

#: Reasons, or clients, that a plot shows apart; the rest is one.
MAX_SERIES: Final = 5


@dataclass(frozen=True, slots=True)
class Section:
    id: str
    title: str
    #: Its subject.
    words: str
    parts: Sequence[Plot | Table]
    #: Shown where there are no parts.
    nothing: str
    #: Kinds of events without which nothing is known.
    needs: Sequence[str] = ()


def sums(rows: Sequence[Window], grid: Grid, **attributes: str) -> list[Series]:
    """A series for each attribute of the rows, by its name in the plot."""
    return [
        Series(name, grid.sums((row.time, getattr(row, attribute)) for row in rows))
        for name, attribute in attributes.items()
    ]
