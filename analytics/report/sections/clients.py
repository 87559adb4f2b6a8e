"""Connections, sessions and refusals of clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trunkline.analytics.report import wording
from trunkline.analytics.report.plots import Plot, bars
from trunkline.analytics.report.results import BRIEF
from trunkline.analytics.report.sections.section import Section, sums
from trunkline.analytics.report.tables import CLIENT, COUNT, END, NAME, NUMBER, SECONDS, TIME, Table, table

if TYPE_CHECKING:
    from trunkline.analytics.report.axes import Grid
    from trunkline.analytics.report.results import Results

#: In the words of the job sessions.
HOW: Final = {
    "left": "the client disconnected",
    "lost": "lost, or closed without a DISCONNECT",
    "keep_alive": "the client was silent",
    "taken_over": "another connection took the session over",
    "kicked": "disconnected by an operator",
    "shutdown": "the node shut down",
    "error": "an error",
    "node_killed": "the node was killed",
    "unrecorded": "not recorded",
    "open": "open at the end",
}
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
    parts: list[Plot | Table] = [bars("churn", "Connections that began and ended", grid, up, down)] if rows else []
    if results.stays:
        parts.append(
            table(
                "stays",
                "How long connections lasted",
                results.stays,
                ("End", NAME, lambda row: HOW.get(row.how, row.how)),
                ("Connections", COUNT, "connections"),
                ("Half of them up to", SECONDS, "p50"),
                ("Nine of ten up to", SECONDS, "p90"),
                ("The longest", SECONDS, "longest"),
                (f"Less than {wording.duration(BRIEF)}", NUMBER, "brief"),
            )
        )
    if results.moves:
        parts.append(
            table(
                "moves",
                "Clients that went to another node",
                results.moves,
                ("Client", CLIENT, "client_id"),
                ("Times", COUNT, "moves"),
                ("While still connected", NUMBER, "taken_over"),
                ("The last (UTC)", TIME, "last"),
                ("Came to", NAME, "node"),
            )
        )
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
