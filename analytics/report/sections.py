"""The sections of the page, with the plots and tables of each."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from trunkline.analytics.report import wording
from trunkline.analytics.report.axes import Grid
from trunkline.analytics.report.plots import Plot, Series, bars, lines
from trunkline.analytics.report.tables import (
    BEGIN,
    COUNT,
    END,
    MICROSECONDS,
    NAME,
    NUMBER,
    SECONDS,
    SIZE,
    TIME,
    Form,
    Table,
    table,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import Row

    from trunkline.analytics.report.results import Results, Window

#: Reasons, or clients, that a plot shows apart; the rest is one.
MAX_SERIES: Final = 5
LIMITS: Final = "“Full in” is for limits that the event log holds; without one, nothing is forecast."

_ALERTS: Final = {
    "denied": "denied accesses",
    "logins": "failed logins",
    "names": "user names that failed",
    "storm": "connections of a node",
}


def _a_minute(slope: float) -> str:
    return f"{slope * 60:+.3g} a minute".replace("-", "\N{MINUS SIGN}")


def _full_in(seconds: float) -> str:
    return "is full" if not seconds else wording.duration(max(1.0, seconds))


SLOPE: Final = Form(_a_minute, number=True)
FULL_IN: Final = Form(_full_in, number=True)
LEVEL: Final = Form(wording.short, number=True)


@dataclass(frozen=True, slots=True)
class Section:
    id: str
    title: str
    #: Its subject.
    words: str
    parts: Sequence[Plot | Table]
    #: Shown where there are no parts.
    nothing: str
    #: Kinds of events without which nothing is known.
    needs: Sequence[str] = ()


def sections(results: Results) -> list[Section]:
    """All of them, the empty ones too, in the order of the page."""
    grid = Grid(results.begin, results.end, results.window)
    makers: Sequence[Callable[[Results, Grid], Section]] = (
        _nodes,
        _alarms,
        _traffic,
        _latency,
        _connections,
        _ends,
        _flapping,
        _silent,
        _talkers,
        _denials,
        _drops,
        _queues,
        _pipeline,
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


def _sums(rows: Sequence[Window], grid: Grid, **attributes: str) -> list[Series]:
    """A series for each attribute of the rows, by its name in the plot."""
    return [
        Series(name, grid.sums((row.time, getattr(row, attribute)) for row in rows))
        for name, attribute in attributes.items()
    ]


def _traffic(results: Results, grid: Grid) -> Section:
    rows = [row for row in results.timeline if row.published or row.delivered]
    messages = _sums(rows, grid, published="published", delivered="delivered")
    payloads = _sums(rows, grid, published="published_bytes", delivered="delivered_bytes")
    parts: list[Plot | Table] = [
        lines("traffic-messages", "Messages", grid, messages, wording.short),
        lines("traffic-bytes", "Bytes of payload", grid, payloads, wording.size),
    ]
    words = "Messages that clients published, and messages that were written to subscribers."
    return Section(
        "traffic",
        "Traffic",
        words,
        parts if rows else [],
        "No message was published or delivered.",
        ("message.publish", "message.delivered"),
    )


def _latency(results: Results, grid: Grid) -> Section:
    rows = results.latency
    series = [
        Series(name, grid.highest((row.time, getattr(row, name)) for row in rows)) for name in ("p50", "p95", "p99")
    ]
    parts: list[Plot | Table] = [
        lines("latency-percentiles", "Percentiles of latency", grid, series, MICROSECONDS.say, adds_up=False)
    ]
    if results.slow:
        parts.append(
            table(
                "latency-slowest",
                "The slowest windows",
                sorted(results.slow, key=lambda row: (-row.p99_us, row.window_start, row.prefix, row.qos)),
                ("From (UTC)", TIME, "window_start"),
                ("p99", MICROSECONDS._replace(bar=True), "p99_us"),
                ("Topics", NAME, lambda row: f"{row.prefix}/…"),
                ("QoS", NUMBER, "qos"),
                ("Deliveries", NUMBER, "delivered"),
                ("Never delivered", NUMBER, "undelivered"),
            )
        )
    words = "From the moment at which the broker accepted a message until it was written to a subscriber."
    if grid.grouped > 1:
        words += f" Each point is the worst of {grid.grouped} windows."
    return Section(
        "latency", "Delivery latency", words, parts if rows else [], "Nothing was delivered.", ("message.delivered",)
    )


def _connections(results: Results, grid: Grid) -> Section:
    rows = [row for row in results.timeline if row.connected or row.refused or row.disconnected]
    up = _sums(rows, grid, connected="connected", refused="refused")
    down = _sums(rows, grid, disconnected="disconnected")
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


def _ends(results: Results, grid: Grid) -> Section:
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


def _nodes(results: Results, grid: Grid) -> Section:
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


def _alarms(results: Results, grid: Grid) -> Section:
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


def _flapping(results: Results, grid: Grid) -> Section:
    made = table(
        "flapping-clients",
        "Flapping clients",
        sorted(results.flapping, key=lambda row: (-row.events, row.subject, row.begin)),
        ("Client", NAME, "subject"),
        ("Connections", COUNT, "events"),
        ("From (UTC)", TIME, "begin"),
        ("To (UTC)", END, "end"),
    )
    words = "Clients that connected again and again, more often than healthy devices do."
    return Section(
        "flapping", "Flapping clients", words, [made] if made.total else [], "No client flapped.", ("client.connected",)
    )


def _silent(results: Results, grid: Grid) -> Section:
    made = table(
        "silent-clients",
        "Silent clients",
        sorted(results.silences, key=lambda row: (row.end is not None, row.last_seen, row.client_id)),
        ("Client", NAME, "client_id"),
        ("Published last (UTC)", TIME, "last_seen"),
        ("Usually every", SECONDS, "usual"),
        ("Until (UTC)", END, "end"),
    )
    words = "Clients that published nothing for much longer than was usual for them."
    return Section(
        "silent", "Silent clients", words, [made] if made.total else [], "No client fell silent.", ("message.publish",)
    )


def _talkers(results: Results, grid: Grid) -> Section:
    parts = [
        _talker_table(id, title, heading, rows)
        for id, title, heading, rows in (
            ("top-topics", "Topics", "Topic", results.topics),
            ("top-clients", "Clients", "Client", results.clients),
        )
        if rows
    ]
    words = "The topics with most messages, and the clients that published most."
    return Section("talkers", "Top talkers", words, parts, "No message was published.", ("message.publish",))


def _talker_table(id: str, title: str, heading: str, rows: Sequence[Row]) -> Table:
    return table(
        id,
        title,
        sorted(rows, key=lambda row: (-row.messages, -row.bytes, row.name)),
        (heading, NAME, "name"),
        ("Messages", COUNT, "messages"),
        ("Bytes", SIZE, "bytes"),
    )


def _denials(results: Results, grid: Grid) -> Section:
    parts = [
        table(
            "denied",
            "Refused",
            sorted(results.denials, key=lambda row: (-row.times, row)),
            ("Client", NAME, "client_id"),
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
                sorted(results.alerts, key=lambda row: (row.begin, row)),
                ("Events", NAME, lambda row: _ALERTS.get(row.name, row.name)),
                ("Client, address or node", NAME, "subject"),
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


def _drops(results: Results, grid: Grid) -> Section:
    totals = Counter[str]()
    for drop in results.drops:
        totals[drop.reason] += drop.messages
    reasons = sorted(totals.items(), key=lambda item: (-item[1], item[0]))
    own = [reason for reason, _ in (reasons if len(reasons) <= MAX_SERIES else reasons[: MAX_SERIES - 1])]
    groups: dict[str, list[Row]] = {reason: [] for reason in own}
    for drop in results.drops:
        groups.setdefault(drop.reason if drop.reason in own else "other reasons", []).append(drop)
    series = [
        Series(wording.name(reason), grid.sums((row.time, row.messages) for row in rows))
        for reason, rows in groups.items()
    ]
    parts: list[Plot | Table] = [
        bars("drops-by-reason", "Messages that were dropped, by reason", grid, series),
        table(
            "drop-reasons",
            "Reasons",
            reasons,
            ("Reason", NAME, lambda item: item[0]),
            ("Messages", COUNT, lambda item: item[1]),
        ),
    ]
    words = "Messages that did not reach a subscriber, or that had none."
    return Section("drops", "Drops", words, parts if reasons else [], "No message was dropped.", ("message.dropped",))


def _queues(results: Results, grid: Grid) -> Section:
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
                sorted(results.growth, key=lambda row: (row.full_in is None, row.full_in or 0.0, -(row.slope or 0.0))),
                ("Metric", NAME, "metric"),
                ("Client, or node", NAME, lambda row: row.client_id or row.node),
                ("Last", LEVEL, "last"),
                ("Limit", LEVEL, "limit"),
                ("Growth", SLOPE, "slope"),
                ("Full in", FULL_IN, "full_in"),
                note=LIMITS,
            )
        )
    if results.consumers:
        parts.append(
            table(
                "slow-consumers",
                "Slow consumers",
                sorted(results.consumers, key=lambda row: (-row.dropped, -row.unanswered, -(row.ack_p99_us or 0.0))),
                ("Client", NAME, "client_id"),
                ("Delivered", COUNT, "delivered"),
                ("Lost", COUNT, "dropped"),
                ("Not acknowledged", NUMBER, "unanswered"),
                ("p99 of acknowledgements", MICROSECONDS, "ack_p99_us"),
            )
        )
    if results.losses:
        parts.append(
            table(
                "losses",
                "Who lost messages by being slow or away",
                sorted(results.losses, key=lambda row: (-row.messages, row.client_id, row.reason)),
                ("Client", NAME, "client_id"),
                ("Reason", NAME, "reason"),
                ("Messages", COUNT, "messages"),
            )
        )
    words = "Messages that waited for a client that was away, or slower than its subscriptions."
    return Section("queues", "Queue growth", words, parts, "No message waited for a client.")


def _pipeline(results: Results, grid: Grid) -> Section:
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
