"""What the nodes did, and whether they recorded all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline.analytics.report.loads import loads
from trunkline.analytics.report.sections.section import Section
from trunkline.analytics.report.tables import BEGIN, COUNT, END, LEVEL, NAME, NUMBER, SECONDS, SHARE, TIME, Table, table

if TYPE_CHECKING:
    from trunkline.analytics.report.axes import Grid
    from trunkline.analytics.report.plots import Plot
    from trunkline.analytics.report.results import Results


def nodes(results: Results, grid: Grid) -> Section:
    parts: list[Plot | Table] = []
    if results.nodes:
        parts.append(
            table(
                "by-node",
                "Nodes",
                results.nodes,
                ("Node", NAME, "name"),
                ("Version", NAME, lambda row: row.version or "unknown"),
                ("Starts", NUMBER, "starts"),
                ("Connections", COUNT, "connected"),
                ("Published", COUNT, "published"),
                ("Delivered", COUNT, "delivered"),
                ("Dropped", COUNT, "dropped"),
            )
        )
    if carried := loads(results):
        parts.append(
            table(
                "balance",
                "How evenly the nodes carry the load",
                carried,
                ("Load", NAME, "name"),
                ("Mean of the nodes", LEVEL, "mean"),
                ("The most", LEVEL, "most"),
                ("Node", NAME, "node"),
                ("Times the mean", LEVEL, "skew"),
                ("Of all", SHARE, lambda row: (row.most, row.total)),
            )
        )
    if results.corrections:
        parts.append(
            table(
                "corrections",
                "Corrections of clocks",
                results.corrections,
                ("Node", NAME, "node"),
                ("Time (UTC)", TIME, "time"),
                ("Put forward by", SECONDS, "seconds"),
            )
        )
    if results.limits:
        parts.append(
            table(
                "limits",
                "Limits that were changed",
                results.limits,
                ("Node", NAME, "node"),
                ("Time (UTC)", TIME, "time"),
                ("Setting", NAME, "name"),
                ("Before", LEVEL, "former"),
                ("Since then", LEVEL, "value"),
            )
        )
    words = "What each node did in the period. Starts are those of its recording."
    return Section("nodes", "Nodes", words, parts, "No node recorded anything.")


def alarms(results: Results, grid: Grid) -> Section:
    made = table(
        "alarm-times",
        "Alarms",
        sorted(results.alarms, key=lambda row: (row.end is not None, row.begin or results.begin, row)),
        ("Alarm", NAME, "name"),
        ("Node", NAME, "node"),
        ("Text", NAME, "text"),
        ("From (UTC)", BEGIN, "begin"),
        ("To (UTC)", END, "end"),
    )
    words = "Conditions that an operator should know about. “Goes on” is what is known at the end of the period."
    needs = ("alarm.activated", "alarm.deactivated")
    return Section("alarms", "Alarms", words, [made] if made.total else [], "No alarm was raised.", needs)


def pipeline(results: Results, grid: Grid) -> Section:
    parts: list[Plot | Table] = []
    if results.health:
        parts.append(
            table(
                "incarnations",
                "Records of the nodes",
                sorted(results.health),
                ("Node", NAME, "node"),
                ("From (UTC)", TIME, "begin"),
                ("Newest (UTC)", TIME, "newest"),
                ("End", NAME, "end"),
                ("Events", COUNT, "events"),
                ("Missing", NUMBER, "missing"),
                ("Dropped", NUMBER, "dropped"),
                ("Corrupt", NUMBER, "corrupt"),
            )
        )
    if results.lags:
        parts.append(
            table(
                "consumers",
                "Readers that are behind",
                sorted(results.lags, key=lambda row: (-row.rows, row.consumer)),
                ("Reader", NAME, "consumer"),
                ("Rows", COUNT, "rows"),
                ("Time", SECONDS, "seconds"),
            )
        )
    words = "Whether the figures of this page are complete: rows are numbered, so a missing one is known."
    return Section("pipeline", "Health of the pipeline", words, parts, "No node recorded anything.")
