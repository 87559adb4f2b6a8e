"""The live table: what the results say at the moment."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Group
from rich.table import Table
from rich.text import Text

from trunkline.analytics.demo.reference import SECOND
from trunkline.analytics.report import wording

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from trunkline.analytics.demo.devices import Tally
    from trunkline.analytics.demo.results import Received

_BAR = 24


class Progress(NamedTuple):
    """How far the demonstration is; seconds."""

    doing: str
    elapsed: float
    duration: float


def table(progress: Progress, tally: Tally, received: Received) -> RenderableType:
    """All of it, for a terminal of any width."""
    return Group(
        Text(line(progress, tally, received), style="bold"),
        _latency(received.newest("latency")),
        _traffic(received.newest("traffic")),
        _flapping(received.flapping()),
    )


def line(progress: Progress, tally: Tally, received: Received) -> str:
    """The same in one line, for where there is no terminal."""
    number = sum(map(len, received.rows.values()))
    behind = "" if received.behind is None else f", {wording.duration(received.behind)} behind their windows"
    return (
        f"{progress.doing} {progress.elapsed:.0f}/{progress.duration:.0f} s: "
        f"{wording.whole(tally.published)} messages published, {wording.whole(tally.received)} received; "
        f"{wording.count(number, 'result')}{behind}"
    )


def _title(name: str, rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return f"{name}: nothing yet"
    begin, end = (datetime.fromtimestamp(rows[0][column] / SECOND, UTC) for column in ("window_start", "window_end"))
    return f"{name}, {begin:%H:%M:%S} to {end:%H:%M:%S} UTC"


def _empty(title: str, *headings: str, right: Sequence[str] = ()) -> Table:
    made = Table(title=title, title_justify="left", title_style="", expand=False)
    for heading in headings:
        made.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    return made


def _latency(rows: Sequence[dict[str, Any]]) -> Table:
    numbers = ("QoS", "delivered", "p50", "p95", "p99", "not delivered")
    made = _empty(_title("Delivery latency", rows), "topics", *numbers, right=numbers)
    for row in rows:
        made.add_row(
            _name(f"{row['prefix']}/…"),
            str(row["qos"]),
            wording.whole(row["delivered"]),
            *[_delay(row.get(column)) for column in ("p50_us", "p95_us", "p99_us")],
            "–" if row.get("undelivered") is None else wording.whole(row["undelivered"]),
        )
    return made


def _traffic(rows: Sequence[dict[str, Any]]) -> Table:
    made = _empty(_title("Busiest topics", rows), "topic", "messages", "bytes", "", right=("messages", "bytes"))
    top = max((row["messages"] for row in rows), default=0)
    for row in rows:
        bar = "█" * round(_BAR * row["messages"] / top)
        made.add_row(_name(row["name"]), wording.whole(row["messages"]), wording.size(row["bytes"]), Text(bar, "blue"))
    return made


def _flapping(rows: Sequence[dict[str, Any]]) -> Table:
    title = "Flapping clients" if rows else "Flapping clients: none yet"
    made = _empty(title, "client", "connections", "since", "", right=("connections",))
    for row in rows:
        since = datetime.fromtimestamp(row["began"] / SECOND, UTC)
        flaps = row["state"] == "begin"
        made.add_row(
            _name(row["subject"]),
            wording.whole(row["count"]),
            f"{since:%H:%M:%S}",
            Text("flaps", "red") if flaps else Text("calm again", "green"),
        )
    return made


def _delay(microseconds: float | None) -> str:
    return "–" if microseconds is None else wording.duration(microseconds / 1e6)


def _name(text: str) -> Text:
    """Not as markup: anything may be in it."""
    return Text(wording.name(text))
