"""The live table: the newest results of each job."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from reference import SECOND
from results import Results
from trunkline.analytics.report import wording


def table(headline: str, results: Results) -> RenderableType:
    latency = [
        (
            wording.name(f"{row['prefix']}/…"),
            str(row["qos"]),
            wording.whole(row["delivered"]),
            *(_delay(row.get(f"p{share}_us")) for share in (50, 95, 99)),
            wording.whole(row.get("undelivered") or 0),
        )
        for row in results.newest("latency")
    ]
    traffic = [
        (wording.name(row["name"]), wording.whole(row["messages"]), wording.size(row["bytes"]))
        for row in results.newest("traffic")
    ]
    flapping = [
        (
            wording.name(row["subject"]),
            wording.whole(row["count"]),
            _clock(row["began"]),
            "flaps" if row["state"] == "begin" else "calm again",
        )
        for row in results.latest("flapping")
    ]
    silent = [
        (
            wording.name(row["client_id"]),
            f"every {wording.duration(row['usual'])}",
            _clock(row["last_seen"]),
            "silent" if row["state"] == "begin" else "back again",
        )
        for row in results.latest("silent")
    ]
    windows = results.newest("latency") or results.newest("traffic")
    bounds = f", {_clock(windows[0]['window_start'])} to {_clock(windows[0]['window_end'])} UTC" if windows else ""
    return Group(
        Text(headline, style="bold"),
        _filled(
            f"Delivery latency{bounds}",
            ("topics", "QoS", "delivered", "p50", "p95", "p99", "not delivered"),
            latency,
        ),
        _filled("Busiest topics", ("topic", "messages", "bytes"), traffic),
        _filled("Flapping clients", ("client", "connections", "since", ""), flapping),
        _filled("Silent devices", ("client", "usually", "last seen", ""), silent),
    )


def _filled(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    made = Table(title=title if rows else f"{title}: nothing yet", title_justify="left", title_style="")
    for number, heading in enumerate(headings):
        made.add_column(heading, justify="right" if number else "left", overflow="fold")
    for row in rows:
        made.add_row(*map(Text, row))  # not as markup: names come from clients
    return made


def _clock(microseconds: int) -> str:
    return f"{datetime.fromtimestamp(microseconds / SECOND, UTC):%H:%M:%S}"


def _delay(microseconds: Any) -> str:
    return "–" if microseconds is None else wording.duration(microseconds / SECOND)
