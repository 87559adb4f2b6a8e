"""The state of each node over time: clients, messages that wait, memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from trunkline.analytics.report import wording
from trunkline.analytics.report.axes import MAX_POINTS, Grid
from trunkline.analytics.report.plots import Band, Plot, bands
from trunkline.analytics.report.results import GAUGES
from trunkline.analytics.report.sections.section import MAX_SERIES, Section
from trunkline.analytics.report.tables import LEVEL, MICROSECONDS, NAME, SIZE, TIME, Form, Table, table

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.analytics.report.results import GaugeSums, Results

TITLES: Final = {
    "connections.count": "Clients connected",
    "sessions.count": "Sessions",
    "subscriptions.count": "Subscriptions",
    "retained.count": "Retained messages",
    "queue.count": "Messages that wait",
    "inflight.count": "Messages not yet acknowledged",
    "process.memory": "Memory of the process",
    "process.files": "Open files",
    "store.bytes": "Store on the disk",
    "loop.lag.microseconds": "How late the event loop is",
}
_FORMS: Final = {"process.memory": SIZE, "store.bytes": SIZE, "loop.lag.microseconds": MICROSECONDS}
_SAID: Final = Form(str, number=True)


def _say(name: str, value: float) -> str:
    return _FORMS.get(name, LEVEL).say(value)


def _of(attribute: str) -> Callable[[GaugeSums], str]:
    return lambda row: _say(row.name, getattr(row, attribute))


def _limit(row: GaugeSums) -> str | None:
    if row.limit is None or row.share is None:
        return None
    return f"{_say(row.name, row.limit)}, {wording.share(row.share, 1)} of it at most"


def gauges(results: Results, grid: Grid) -> Section:
    coarse = Grid(results.begin, results.end, results.window, MAX_POINTS // 3)
    columns: tuple[tuple[str, Form, Any], ...] = (
        ("Gauge", NAME, lambda row: TITLES[row.name]),
        ("Node", NAME, "node"),
        ("Lowest", _SAID, _of("low")),
        ("Mean", _SAID, _of("mean")),
        ("Highest", _SAID, _of("high")),
        ("First that high (UTC)", TIME, "high_at"),
        ("Last", _SAID, _of("last")),
        ("Limit", _SAID, _limit),
    )
    parts: list[Plot | Table] = []
    if results.gauge_sums:
        parts.append(table("gauge-levels", "Levels", results.gauge_sums, *columns))
    parts += [plot for name in GAUGES if (plot := _drawn(name, results, coarse))]
    words = (
        "The state of each node. The line is the mean, by how long each reading held; the area around it goes from the "
        "lowest to the highest. A gauge that never changed is in the table alone."
    )
    return Section("gauges", "Gauges", words, parts, "The log has no readings of the nodes.")


def _drawn(name: str, results: Results, grid: Grid) -> Plot | None:
    """A gauge, of the nodes where it is highest, unless it is the same all the time. There are several, so each has few
    points: the lowest and the highest show all the same."""
    own = [row for row in results.gauge_sums if row.name == name]
    if all(row.low == row.high for row in own):
        return None
    nodes = [row.node for row in sorted(own, key=lambda row: (-row.high, row.node))[:MAX_SERIES]]
    series = [
        Band(
            wording.name(node),
            grid.spans(
                (each.time, (each.low, each.mean, each.high))
                for each in results.gauges
                if (each.node, each.name) == (node, name)
            ),
        )
        for node in nodes
    ]
    title = TITLES[name] + ("" if len(own) == len(nodes) else f", of the highest {len(nodes)} of {len(own)} nodes")
    return bands(f"gauge-{name.replace('.', '-')}", title, grid, series, lambda value: _say(name, value))
