"""Messages that waited for clients."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from trunkline.analytics.report import wording
from trunkline.analytics.report.plots import Plot, Series, lines
from trunkline.analytics.report.sections.section import MAX_SERIES, Section
from trunkline.analytics.report.tables import CLIENT, COUNT, LEVEL, MICROSECONDS, NAME, NUMBER, Form, Table, table

if TYPE_CHECKING:
    from trunkline.analytics.report.axes import Grid
    from trunkline.analytics.report.results import Results


LIMITS: Final = "“Full in” is for limits that the event log holds; without one, nothing is forecast."


def _a_minute(slope: float) -> str:
    return f"{slope * 60:+.3g} a minute".replace("-", "\N{MINUS SIGN}")


def _full_in(seconds: float) -> str:
    return "is full" if not seconds else wording.duration(max(1.0, seconds))


_SLOPE: Final = Form(_a_minute, number=True)
_FULL_IN: Final = Form(_full_in, number=True)


def queues(results: Results, grid: Grid) -> Section:
    longest = Counter[str]()
    for row in results.queues:
        longest[row.client_id] = max(row.length, longest[row.client_id])
    series = [
        Series(
            wording.name(client_id),
            grid.held(
                (row.time, row.length, row.last, row.until) for row in results.queues if row.client_id == client_id
            ),
        )
        for client_id in sorted(longest, key=lambda client_id: (-longest[client_id], client_id))[:MAX_SERIES]
    ]
    parts: list[Plot | Table] = []
    if series:
        parts.append(lines("queue-lengths", "The longest queues", grid, series, wording.short, adds_up=False))
    if results.growth:
        parts.append(
            table(
                "queue-growth",
                "Growth at the end",
                results.growth,
                ("Metric", NAME, "metric"),
                ("Client", CLIENT, lambda row: row.client_id or None),
                ("Node", NAME, "node"),
                ("Last", LEVEL, "last"),
                ("Limit", LEVEL, "limit"),
                ("Growth", _SLOPE, "slope"),
                ("Full in", _FULL_IN, "full_in"),
                note=LIMITS,
            )
        )
    if results.consumers:
        parts.append(
            table(
                "slow-consumers",
                "Slow consumers",
                results.consumers,
                ("Client", CLIENT, "client_id"),
                ("Delivered", COUNT, "delivered"),
                ("Lost", COUNT, "dropped"),
                ("Not acknowledged in time", NUMBER, "unanswered"),
                ("p99 of acknowledgements", MICROSECONDS, "ack_p99_us"),
            )
        )
    if results.losses:
        parts.append(
            table(
                "losses",
                "Who lost messages by being slow or away",
                results.losses,
                ("Client", CLIENT, "client_id"),
                ("Reason", NAME, "reason"),
                ("Messages", COUNT, "messages"),
            )
        )
    words = "Messages that waited for a client that was away, or slower than its subscriptions."
    return Section("queues", "Queue growth", words, parts, "No message waited for a client.")
