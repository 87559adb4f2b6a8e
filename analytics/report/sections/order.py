"""The sections of the page, in their order."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trunkline.analytics.report.axes import Grid
from trunkline.analytics.report.sections import clients, gauges, messages, nodes, queues

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trunkline.analytics.report.results import Results
    from trunkline.analytics.report.sections.section import Section


def sections(results: Results) -> list[Section]:
    """All of them, the empty ones too, in the order of the page."""
    grid = Grid(results.begin, results.end, results.window)
    makers: Sequence[Callable[[Results, Grid], Section]] = (
        nodes.nodes,
        nodes.alarms,
        gauges.gauges,
        messages.traffic,
        messages.latency,
        clients.connections,
        clients.ends,
        clients.flapping,
        clients.silent,
        messages.talkers,
        messages.topics,
        messages.use,
        clients.denials,
        messages.drops,
        queues.queues,
        nodes.pipeline,
    )
    return [_honest(make(results, grid), results) for make in makers]


def _honest(section: Section, results: Results) -> Section:
    """Nothing is said of events that are not recorded."""
    if section.parts or not section.needs:
        return section
    if results.recorded is None:
        return replace(section, nothing="The log has nothing of that, and does not say whether it is recorded.")
    missing = [kind for kind in section.needs if kind not in results.recorded]
    if missing:
        return replace(section, nothing=f"Not recorded: {', '.join(missing)}.")
    if results.narrowed:
        return replace(section, nothing=f"{section.nothing} Only some {' and '.join(results.narrowed)} are recorded.")
    return section
