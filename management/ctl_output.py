"""The output of `trunkline ctl`: tables for people, JSON for programs.

Clients choose their names and payloads, so unprintable characters are escaped. A payload that is not text is shown as
hex, and in JSON as base64.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, cast

import click

from trunkline.management.config_view import dump_as_toml
from trunkline.management.control_json import as_text, to_json
from trunkline.management.logs import printable

#: The columns of tables that would be too wide with all fields of the JSON form.
COLUMNS: Final = {
    "clients.list": "client_id username peer listener version connected_at subscriptions queued inflight",
    "sessions.list": "client_id connected username created_at expiry_interval subscriptions queued inflight",
    "subscriptions.list": "client_id filter qos no_local retain_as_published retain_handling identifier",
    "retained.list": "topic size qos timestamp expires_in payload",
    "metrics": "name value",
    "alarms.list": "name since text",
    "alarms.history": "name since until text",
    "trace.list": "guid topic publisher qos published_at state reason receivers others delivered acked dropped",
    "streams.list": "name filters retention messages bytes first last consumers",
    "trace.outcomes": "client_id state reason deliveries steps",
}
#: Columns that are left out on a narrow terminal, the first one first; after these, the last columns.
DISPENSABLE: Final = {
    "clients.list": "listener connected_at version inflight queued subscriptions",
    "sessions.list": "created_at expiry_interval inflight username queued",
    "streams.list": "consumers retention bytes first",
    "trace.list": "published_at qos acked delivered dropped others receivers reason publisher",
}
#: Columns of free text, which is wrapped; words, addresses and ids in other columns are never broken.
_FOLDED: Final = frozenset({"text", "payload", "steps", "deliveries", "reason", "does", "problem", "value"})
#: The minimum width of a column of free text, if the terminal is wide enough.
_FOLDED_WIDTH: Final = 24
#: Fields that hold seconds since the epoch.
_MOMENTS: Final = frozenset(
    {
        "at",
        "connected_at",
        "created_at",
        "started_at",
        "published_at",
        "timestamp",
        "since",
        "until",
        "first_at",
        "last_at",
        "last_delivered_at",
        "last_acked_at",
        "pause_until",
        "start_time",
    }
)
_MOMENT: Final = "%Y-%m-%dT%H:%M:%SZ"


def print_rows(name: str, pages: Iterable[list[dict[str, Any]]], as_json: bool) -> None:
    """Print the rows of an operation. Each page is printed before the next one is requested."""
    empty = True
    widths: list[int] = []
    hidden: list[str] = []
    for page in pages:
        if as_json:
            click.echo("\n".join(to_json(row) for row in page))
        else:
            columns = COLUMNS[name].split() if name in COLUMNS else list(page[0])
            cells = [[_cell(column, row.get(column), row) for column in columns] for row in page]
            if sys.stdout.isatty():
                hidden = _print_table(name, columns, cells)
            else:
                print_columns(columns, cells, widths, head=empty)
        empty = False
    if empty and not as_json:
        click.echo("none", err=True)
    if hidden:
        click.echo(f"(a wider terminal, or --json, has {', '.join(hidden)} too)", err=True)


def print_result(name: str, result: Any, as_json: bool) -> None:
    """Print the result of an operation that is not a listing."""
    if as_json:
        click.echo(to_json(result))
    elif isinstance(result, list) and all(isinstance(row, dict) for row in cast("list[object]", result)):
        rows = cast("list[dict[str, Any]]", result)
        print_rows(name, [rows] if rows else [], as_json)
    elif isinstance(result, dict):
        _print_pairs(cast("dict[str, Any]", result))
    else:
        click.echo(_cell("", result, {}))


def print_toml(config: dict[str, Any]) -> None:
    click.echo(dump_as_toml(config))


def print_columns(columns: list[str], cells: list[list[str]], widths: list[int], *, head: bool = True) -> None:
    """Columns side by side, without cutting anything. `widths` are those of the previous pages, and grow with the
    widest cell."""
    lines = [columns, *cells] if head else cells
    widest = [max(map(len, column)) for column in zip(*lines, strict=True)]
    widths[:] = map(max, zip(widest, widths or widest, strict=True))
    for line in lines:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _print_table(name: str, columns: list[str], cells: list[list[str]]) -> list[str]:
    """Print a table on a terminal. Returns the columns that do not fit."""
    # imported here: it takes as long as all the rest
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    shown = _fitting(name, columns, cells, console.width)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number in shown:
        table.add_column(columns[number], overflow="fold", no_wrap=len(shown) > 1 and columns[number] not in _FOLDED)
    for line in cells:
        table.add_row(*[Text(line[number]) for number in shown])
    console.print(table)
    return [column for number, column in enumerate(columns) if number not in shown]


def _fitting(name: str, columns: list[str], cells: list[list[str]], width: int) -> list[int]:
    """The numbers of the columns that fit side by side."""
    from rich.cells import cell_len

    needed = [max(cell_len(line[number]) for line in [columns, *cells]) for number in range(len(columns))]
    for number, column in enumerate(columns):
        if column in _FOLDED:
            needed[number] = min(needed[number], _FOLDED_WIDTH)
    first = [columns.index(column) for column in DISPENSABLE.get(name, "").split() if column in columns]
    last = [number for number in reversed(range(1, len(columns))) if number not in first]
    shown = list(range(len(columns)))
    for number in [*first, *last]:
        if sum(needed[each] + 2 for each in shown) - 2 <= width:
            break
        shown.remove(number)
    return shown


def _print_pairs(result: Mapping[str, Any]) -> None:
    pairs = list(_pairs("", result, result))
    width = max((len(name) for name, _ in pairs), default=0)
    for name, text in pairs:
        click.echo(f"{name.ljust(width)}  {text}".rstrip())


def _pairs(path: str, value: Any, holder: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        table = cast("dict[str, Any]", value)
        for name, inner in table.items():
            yield from _pairs(f"{path}.{name}" if path else name, inner, table)
    elif isinstance(value, list) and any(isinstance(inner, dict) for inner in cast("list[object]", value)):
        for number, inner in enumerate(cast("list[object]", value)):
            yield from _pairs(f"{path}[{number}]", inner, holder)
    else:
        yield printable(path), _cell(path.rpartition(".")[2], value, holder)


def _cell(name: str, value: Any, row: Mapping[str, Any]) -> str:
    """A value on one line."""
    if value is None or value in ("", b""):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, bytes):
        return _payload(value, row)
    if isinstance(value, int | float) and name in _MOMENTS:
        return datetime.fromtimestamp(value, UTC).strftime(_MOMENT)
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    if name == "steps":
        steps = cast("list[dict[str, str]]", value)
        return ", ".join(f"{step['word']} ({step['reason']})" if step["reason"] else step["word"] for step in steps)
    if isinstance(value, list):
        return ", ".join(_cell("", inner, row) for inner in cast("list[object]", value)) or "-"
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value).items()
        return ", ".join(f"{printable(key)}={_cell(key, inner, row)}" for key, inner in pairs) or "-"
    return printable(str(value))


def _payload(payload: bytes, row: Mapping[str, Any]) -> str:
    cut = row.get("size", len(payload)) > len(payload)
    text = as_text(payload, cut)
    shown = f"0x{payload.hex()}" if text is None else printable(text)
    return f"{shown}…" if cut else shown
