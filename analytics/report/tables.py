"""Rows as a table of the page: the first of them, with bars where a length says more than digits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from trunkline.analytics.report import wording
from trunkline.analytics.report.results import Top

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: Rows of a table.
MAX_ROWS: Final = 20


class Cell(NamedTuple):
    text: str
    #: Per cent of the column's largest value; None for no bar.
    bar: float | None = None
    #: Whose name it is.
    client_id: str = ""


class Form(NamedTuple):
    """How the values of a column are written. A missing value is a dash."""

    say: Callable[[Any], str]
    number: bool = False
    bar: bool = False


def _microseconds(value: float) -> str:
    return wording.duration(value / 1e6)


NAME: Final = Form(wording.name)
#: The name of a client, which leads to all that the page has of it.
CLIENT: Final = Form(wording.name)
TIME: Final = Form(wording.moment)
#: The end of an alert, or of another thing that may go on.
END: Final = Form(lambda time: "goes on" if time is None else wording.moment(time))
#: The beginning of a thing that may have been there before.
BEGIN: Final = Form(lambda time: "before" if time is None else wording.moment(time))
NUMBER: Final = Form(wording.whole, number=True)
LEVEL: Final = Form(wording.short, number=True)
COUNT: Final = Form(wording.whole, number=True, bar=True)
#: Of a part and the whole.
SHARE: Final = Form(lambda pair: wording.share(*pair), number=True)
SIZE: Final = Form(wording.size, number=True, bar=True)
SECONDS: Final = Form(wording.duration, number=True)
MICROSECONDS: Final = Form(_microseconds, number=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    id: str
    title: str
    headings: Sequence[str]
    numeric: Sequence[bool]
    rows: Sequence[Sequence[Cell]]
    #: The total number of rows, of which these are the first.
    total: int
    note: str


def table(
    id: str,
    title: str,
    rows: Sequence[Any] | Top[Any],
    *columns: tuple[str, Form, str | Callable[[Any], Any]],
    note: str = "",
) -> Table:
    """Each column has a heading, a form, and the attribute of a row that it shows, or a function that gets the
    value."""
    rows, total = (rows.rows, rows.total) if isinstance(rows, Top) else (rows, len(rows))
    made: list[list[Cell]] = []
    for _, form, get in columns:
        values: list[Any] = [getattr(row, get) if isinstance(get, str) else get(row) for row in rows]
        top = max(values, default=0) if form.bar else 0
        made.append(
            [
                Cell(
                    "–" if value is None and form not in (BEGIN, END) else form.say(value),
                    round(100 * value / top, 1) if top and value is not None else None,
                    value or "" if form is CLIENT else "",
                )
                for value in values[:MAX_ROWS]
            ]
        )
    return Table(
        id=id,
        title=title,
        headings=[heading for heading, _, _ in columns],
        numeric=[form.number for _, form, _ in columns],
        rows=list(zip(*made, strict=True)),
        total=total,
        note=note,
    )
