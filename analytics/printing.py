"""Prints rows of results: as a table, or as JSON lines."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from trunkline.analytics.sinks.messages import in_json
from trunkline.management.logs import printable

Row = Mapping[str, Any]

#: Numbers that are copied into other commands: as `--node n1@1763739192123`.
_IDS: Final = ("incarnation",)
#: Wider than any table.
UNLIMITED_WIDTH: Final = 100_000


def with_zone(row: Row) -> dict[str, Any]:
    """The row with times of UTC: Spark gives them without zone, in this machine's."""
    return {name: value.astimezone(UTC) if isinstance(value, datetime) else value for name, value in row.items()}


def as_json(row: Row) -> str:
    """One line, in which values are written as the MQTT sink writes them."""
    return json.dumps(in_json(row), ensure_ascii=False)


def print_table(
    console: Console, columns: Sequence[str], rows: Sequence[Row], title: str = "", *, more: bool = False
) -> None:
    """A table as wide as the terminal. Columns that are empty in all rows are left out, and so are the last columns if
    there is no room for them; a line below names those. `more`: there are more rows than these.
    """
    shown = [name for name in columns if any(row[name] is not None for row in rows)] or list(columns)
    narrow: list[str] = []
    endless = console.options.update(max_width=UNLIMITED_WIDTH)
    while len(shown) > 1 and Measurement.get(console, endless, _table(shown, rows)).maximum > console.width:
        narrow.insert(0, shown.pop())
    console.print(Text(title, style="bold"))
    console.print(_table(shown, rows) if rows else Text("nothing"))
    if narrow:
        console.print(Text(f"no room for {', '.join(narrow)}: choose with --columns, or --format json"))
    if more:
        console.print(Text("there are more rows: --rows shows more of them"))


def _table(columns: Sequence[str], rows: Sequence[Row]) -> Table:
    table = Table()
    for name in columns:
        numbers = any(isinstance(row[name], int | float) for row in rows)
        table.add_column(name, justify="right" if numbers else "left", no_wrap=True)
    for row in rows:
        # not as markup: clients choose the names
        table.add_row(*[Text(str(row[name]) if name in _IDS else _cell(row[name])) for name in columns])
    return table


def _cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case datetime():
            return f"{value:%Y-%m-%d %H:%M:%S}" + (f".{value:%f}".rstrip("0") if value.microsecond else "")
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
        case str():
            return printable(value)
        case _:
            return json.dumps(in_json(value), ensure_ascii=False)
