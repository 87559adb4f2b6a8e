"""Connections, sessions and refusals of clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trunkline.analytics.report.plots import bars
from trunkline.analytics.report.sections.section import Section, sums
from trunkline.analytics.report.tables import CLIENT, COUNT, END, NAME, SECONDS, TIME, table

if TYPE_CHECKING:
    from trunkline.analytics.report.axes import Grid
    from trunkline.analytics.report.results import Results

_ALERTS: Final = {
    "denied": "denied accesses",
    "logins": "failed logins",
    "names": "user names that failed",
    "storm": "connections of a node",
}


def connections(results: Results, grid: Grid) -> Section:
    rows = [row for row in results.timeline if row.connected or row.refused or row.disconnected]
    up = sums(rows, grid, connected="connected", refused="refused")
    down = sums(rows, grid, disconnected="disconnected")
    parts = [bars("churn", "Connections that began and ended", grid, up, down)] if rows else []
    words = "Upwards: clients that connected or were refused. Downwards: clients that disconnected."
    return Section(
        "connections",
        "Connection churn",
        words,
        parts,
        "No client connected or disconnected.",
        ("client.connected", "client.disconnected"),
    )


def ends(results: Results, grid: Grid) -> Section:
    parts = [
        table(
            f"{of}-ends",
            f"Ends of {of}s",
            sorted((row for row in results.ends if row.of == of), key=lambda row: (-row.times, row.reason)),
            ("Reason", NAME, "reason"),
            ("Times", COUNT, "times"),
        )
        for of in ("session", "connection")
        if any(row.of == of for row in results.ends)
    ]
    words = "Why sessions and connections ended. A session that was taken over went on with another connection."
    needs = ("session.terminated", "session.discarded", "client.disconnected")
    return Section("ends", "Ends of sessions", words, parts, "No session or connection ended.", needs)


def flapping(results: Results, grid: Grid) -> Section:
    made = table(
        "flapping-clients",
        "Flapping clients",
        results.flapping,
        ("Client", CLIENT, "subject"),
        ("Connections", COUNT, "events"),
        ("From (UTC)", TIME, "begin"),
        ("To (UTC)", END, "end"),
    )
    words = "Clients that connected again and again, more often than healthy devices do."
    return Section(
        "flapping", "Flapping clients", words, [made] if made.total else [], "No client flapped.", ("client.connected",)
    )


def silent(results: Results, grid: Grid) -> Section:
    made = table(
        "silent-clients",
        "Silent clients",
        results.silences,
        ("Client", CLIENT, "client_id"),
        ("Published last (UTC)", TIME, "last_seen"),
        ("Usually every", SECONDS, "usual"),
        ("Until (UTC)", END, "end"),
    )
    words = "Clients that published nothing for much longer than was usual for them, and had not disconnected in order."
    return Section(
        "silent", "Silent clients", words, [made] if made.total else [], "No client fell silent.", ("message.publish",)
    )


def denials(results: Results, grid: Grid) -> Section:
    parts = [
        table(
            "denied",
            "Refused",
            results.denials,
            ("Client", CLIENT, "client_id"),
            ("Address", NAME, "peer"),
            ("Action", NAME, "action"),
            ("Topic, or reason", NAME, "target"),
            ("Times", COUNT, "times"),
        )
    ]
    if results.alerts:
        parts.append(
            table(
                "alerts",
                "More than usual",
                results.alerts,
                ("Events", NAME, lambda row: _ALERTS.get(row.name, row.name)),
                ("Client", CLIENT, lambda row: row.subject if row.scope == "client" else None),
                ("Address or node", NAME, lambda row: None if row.scope == "client" else row.subject),
                ("From (UTC)", TIME, "begin"),
                ("To (UTC)", END, "end"),
                ("Number", COUNT, "events"),
            )
        )
    words = "Connections and accesses that were refused."
    found = results.denials or results.alerts
    return Section(
        "denials",
        "Denials",
        words,
        parts if found else [],
        "Nothing was refused.",
        ("client.connack", "client.acl_decided"),
    )
