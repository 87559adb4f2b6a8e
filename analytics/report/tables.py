"""Rows as a table of the page: the first so many of them, with bars where a length says more than digits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Rows of a table.
MOST_ROWS: Final = 20


class Cell(NamedTuple):
    text: str
    number: bool = False
    #: Per cent of the column's largest value; None for no bar.
    bar: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    id: str
    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    #: Of how many these rows are the first.
    total: int
    note: str = field(default="")

    @property
    def numeric(self) -> Sequence[bool]:
        """Of each column."""
        return [cell.number for cell in self.rows[0]] if self.rows else [False] * len(self.headings)


class Column(NamedTuple):
    heading: str
    cells: Sequence[str]
    #: What a bar shows the size of; none without.
    sizes: Sequence[float] = ()
    number: bool = False


def table(name: str, title: str, *columns: Column, note: str = "", total: int | None = None) -> Table:
    """`total`: of how many rows these are some already."""
    given = len(columns[0].cells)
    shown = min(given, MOST_ROWS)
    tops = [max(column.sizes, default=0.0) for column in columns]
    rows = [
        [
            Cell(
                column.cells[index],
                column.number,
                round(100 * column.sizes[index] / top, 1) if column.sizes and top else None,
            )
            for column, top in zip(columns, tops, strict=True)
        ]
        for index in range(shown)
    ]
    return Table(
        id=name,
        title=title,
        headings=[column.heading for column in columns],
        rows=rows,
        total=given if total is None else total,
        note=note,
    )
