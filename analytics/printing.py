"""Rows of results for people and for programs: a table, or JSON lines."""

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite
from typing import Any

from rich.table import Table
from rich.text import Text

from trunkline.management.logs import printable

Row = Mapping[str, Any]


def as_json(row: Row) -> str:
    """One line: times are ISO 8601 in UTC with microseconds, bytes are Base64, and nulls are left out."""
    return json.dumps({name: _plain(value) for name, value in row.items() if value is not None}, ensure_ascii=False)


def _plain(value: Any) -> Any:
    match value:
        case datetime():
            return utc(value).isoformat(timespec="microseconds").replace("+00:00", "Z")
        case bytes() | bytearray():
            return b64encode(value).decode()
        case list():
            return [_plain(each) for each in value]
        case dict():
            return {name: _plain(each) for name, each in value.items()}
        case float() if not isfinite(value):
            return str(value)
        case _:
            return value


def utc(time: datetime) -> datetime:
    """Spark gives times of this machine's zone that do not say so."""
    return time.astimezone(UTC)


def as_table(columns: Sequence[str], rows: Iterable[Row], title: str = "", more: bool = False) -> Table:
    """A table for a terminal. Columns that are empty in all rows are left out, and `more` says that rows were."""
    held = list(rows)
    shown = [name for name in columns if any(row[name] is not None for row in held)] or list(columns)
    caption = "there are more rows" if more else "" if held else "no rows"
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left", title_style="bold")
    for name in shown:
        numbers = any(isinstance(row[name], int | float) for row in held)
        table.add_column(name, justify="right" if numbers else "left", overflow="fold")
    for row in held:
        # what clients chose is text, whatever it looks like
        table.add_row(*[Text(_cell(row[name])) for name in shown])
    return table


def _cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case datetime():
            time = utc(value)
            return f"{time:%Y-%m-%d %H:%M:%S}" + (f".{time:%f}".rstrip("0") if time.microsecond else "")
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
        case str():
            return printable(value)
        case _:
            return json.dumps(_plain(value), ensure_ascii=False)
