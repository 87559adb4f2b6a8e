"""The sections of the page: which plots and tables each of them has."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from trunkline.analytics.report import wording
from trunkline.analytics.report.grid import Grid
from trunkline.analytics.report.plots import Plot, Series, bars, lines
from trunkline.analytics.report.tables import Column, Table, table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trunkline.analytics.report.results import Drop, Results, Talker

#: Reasons, or clients, that a plot tells apart; the rest is one.
MOST_SERIES: Final = 5

#: Seconds for which a reading counts: three times as long as brokers usually wait for the next.
HELD: Final = 30.0

_ALERTS: Final = {
    "denied": "denied accesses",
    "logins": "failed logins",
    "names": "user names that failed",
    "storm": "connections of a node",
}


@dataclass(frozen=True, slots=True)
class Section:
    id: str
    title: str
    #: What it is about, and what to look for.
    words: str
    parts: Sequence[Plot | Table]
    #: What is said where there are none.
    nothing: str


def sections(results: Results) -> list[Section]:
    """All of them, the empty ones too, in the order of the page."""
    grid = Grid(results.begin, results.end, results.window)
    makers: Sequence[Callable[[Results, Grid], Section]] = (
        _traffic,
        _latency,
        _connections,
        _flapping,
        _silent,
        _talkers,
        _denials,
        _drops,
        _queues,
        _pipeline,
    )
    return [make(results, grid) for make in makers]


def _microseconds(value: float) -> str:
    return wording.duration(value / 1e6)


def _traffic(results: Results, grid: Grid) -> Section:
    rows = results.traffic
    parts: list[Plot | Table] = [
        lines(
            "traffic-messages",
            "Messages",
            grid,
            [
                Series("published", grid.sums((row.time, row.received) for row in rows)),
                Series("delivered", grid.sums((row.time, row.delivered) for row in rows)),
            ],
            wording.short,
        ),
        lines(
            "traffic-bytes",
            "Bytes of payload",
            grid,
            [
                Series("published", grid.sums((row.time, row.received_bytes) for row in rows)),
                Series("delivered", grid.sums((row.time, row.delivered_bytes) for row in rows)),
            ],
            wording.size,
        ),
    ]
    words = "What clients published, and what was written to subscribers."
    return Section("traffic", "Traffic", words, parts if rows else [], "No message was published or delivered.")


def _latency(results: Results, grid: Grid) -> Section:
    rows = results.latency
    series = [
        Series("p50", grid.highest((row.time, row.p50) for row in rows)),
        Series("p95", grid.highest((row.time, row.p95) for row in rows)),
        Series("p99", grid.highest((row.time, row.p99) for row in rows)),
    ]
    parts: list[Plot | Table] = [
        lines("latency-percentiles", "Percentiles of latency", grid, series, _microseconds, adds_up=False)
    ]
    if results.slow:
        slow = sorted(results.slow, key=lambda row: (-row.p99, row.time, row.prefix, row.qos))
        parts.append(
            table(
                "latency-slowest",
                "The slowest windows",
                Column("From (UTC)", [wording.moment(row.time) for row in slow]),
                Column("p99", [_microseconds(row.p99) for row in slow], [row.p99 for row in slow], number=True),
                Column("Topics", [wording.name(f"{row.prefix}/…") for row in slow]),
                Column("QoS", [str(row.qos) for row in slow], number=True),
                Column("Deliveries", [wording.whole(row.deliveries) for row in slow], number=True),
                Column("Never delivered", [wording.whole(row.undelivered) for row in slow], number=True),
            )
        )
    words = "From the moment at which the broker took a message over until it was written to a subscriber."
    if grid.grouped > 1:
        words += f" Each point is the worst of {grid.grouped} windows."
    return Section("latency", "Delivery latency", words, parts if rows else [], "Nothing was delivered.")


def _connections(results: Results, grid: Grid) -> Section:
    rows = results.churn
    up = [
        Series("connected", grid.sums((row.time, row.connected) for row in rows)),
        Series("refused", grid.sums((row.time, row.refused) for row in rows)),
    ]
    down = [Series("disconnected", grid.sums((row.time, row.disconnected) for row in rows))]
    parts: list[Plot | Table] = [bars("churn", "Connections that began and ended", grid, up, down)]
    words = "Upwards: clients that came, let in or refused. Downwards: clients that went."
    return Section("connections", "Connection churn", words, parts if rows else [], "Nobody came or went.")


def _flapping(results: Results, grid: Grid) -> Section:
    rows = sorted(results.flapping, key=lambda row: (-row.connections, row.client_id, row.begin))
    parts: list[Plot | Table] = [
        table(
            "flapping-clients",
            "Flapping clients",
            Column("Client", [wording.name(row.client_id) for row in rows]),
            Column("Connections", *_counts([row.connections for row in rows]), number=True),
            Column("From (UTC)", [wording.moment(row.begin) for row in rows]),
            Column("To (UTC)", ["goes on" if row.end is None else wording.moment(row.end) for row in rows]),
        )
    ]
    words = "Clients that came and went more often than devices do that are well."
    return Section("flapping", "Flapping clients", words, parts if rows else [], "No client flapped.")


def _silent(results: Results, grid: Grid) -> Section:
    rows = sorted(results.silences, key=lambda row: (row.end is not None, row.last_seen, row.client_id))
    parts: list[Plot | Table] = [
        table(
            "silent-clients",
            "Silent clients",
            Column("Client", [wording.name(row.client_id) for row in rows]),
            Column("Published last (UTC)", [wording.moment(row.last_seen) for row in rows]),
            Column("Usually every", [wording.duration(row.usual) for row in rows], number=True),
            Column("Until (UTC)", ["goes on" if row.end is None else wording.moment(row.end) for row in rows]),
        )
    ]
    words = "Clients that published no more for much longer than was usual for them."
    return Section("silent", "Silent clients", words, parts if rows else [], "No client fell silent.")


def _talkers(results: Results, grid: Grid) -> Section:
    parts = [
        _talker_table(name, title, heading, rows)
        for name, title, heading, rows in (
            ("top-topics", "Topics", "Topic", results.topics),
            ("top-clients", "Clients", "Client", results.clients),
        )
        if rows
    ]
    words = "Where most messages were published, and by whom."
    return Section("talkers", "Top talkers", words, parts, "No message was published.")


def _talker_table(name: str, title: str, heading: str, rows: Sequence[Talker]) -> Table:
    rows = sorted(rows, key=lambda row: (-row.messages, -row.bytes, row.name))
    return table(
        name,
        title,
        Column(heading, [wording.name(row.name) for row in rows]),
        Column("Messages", *_counts([row.messages for row in rows]), number=True),
        Column("Bytes", [wording.size(row.bytes) for row in rows], [row.bytes for row in rows], number=True),
    )


def _counts(numbers: Sequence[int]) -> tuple[list[str], Sequence[float]]:
    return [wording.whole(number) for number in numbers], numbers


def _denials(results: Results, grid: Grid) -> Section:
    rows = sorted(results.denials, key=lambda row: (-row.times, row))
    parts: list[Plot | Table] = [
        table(
            "denied",
            "Refused",
            Column("Client", [wording.name(row.client_id) for row in rows]),
            Column("Address", [wording.name(row.peer) for row in rows]),
            Column("Wanted to", [wording.name(row.action) for row in rows]),
            Column("What, or why not", [wording.name(row.target) for row in rows]),
            Column("Times", *_counts([row.times for row in rows]), number=True),
        )
    ]
    words = "Connections and accesses that were refused."
    if results.alerts:
        alerts = sorted(results.alerts, key=lambda row: (row.begin, row))
        parts.append(
            table(
                "alerts",
                "More than usual",
                Column("What", [_ALERTS.get(row.name, row.name) for row in alerts]),
                Column("Who", [wording.name(row.subject) for row in alerts]),
                Column("From (UTC)", [wording.moment(row.begin) for row in alerts]),
                Column("To (UTC)", ["goes on" if row.end is None else wording.moment(row.end) for row in alerts]),
                Column("Events", *_counts([row.events for row in alerts]), number=True),
            )
        )
    return Section("denials", "Denials", words, parts if rows or results.alerts else [], "Nothing was refused.")


def _drops(results: Results, grid: Grid) -> Section:
    totals = Counter[str]()
    for drop in results.drops:
        totals[drop.reason] += drop.messages
    reasons = sorted(totals, key=lambda reason: (-totals[reason], reason))
    own = set(reasons if len(reasons) <= MOST_SERIES else reasons[: MOST_SERIES - 1])
    groups: dict[str, list[Drop]] = {reason: [] for reason in reasons if reason in own}
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
            Column("Reason", [wording.name(reason) for reason in reasons]),
            Column("Messages", *_counts([totals[reason] for reason in reasons]), number=True),
        ),
    ]
    words = "Messages that did not get to a subscriber, or that nobody had subscribed to."
    return Section("drops", "Drops", words, parts if reasons else [], "No message was dropped.")


def _queues(results: Results, grid: Grid) -> Section:
    longest = Counter[str]()
    for row in results.queues:
        longest[row.client_id] = max(row.length, longest[row.client_id])
    clients = sorted(longest, key=lambda client_id: (-longest[client_id], client_id))
    series = [
        Series(
            wording.name(client_id),
            grid.held(
                grid.highest((row.time, row.length) for row in results.queues if row.client_id == client_id), HELD
            ),
        )
        for client_id in clients[:MOST_SERIES]
    ]
    parts: list[Plot | Table] = []
    if series:
        parts.append(lines("queue-lengths", "The longest queues", grid, series, wording.short, adds_up=False))
    if results.growth:
        rows = sorted(results.growth, key=lambda row: (row.full_in is None, row.full_in or 0.0, -(row.slope or 0.0)))
        parts.append(
            table(
                "queue-growth",
                "Growth at the end",
                Column("What", [wording.name(row.metric) for row in rows]),
                Column("Client, or node", [wording.name(row.client_id or row.node) for row in rows]),
                Column("Last", [wording.short(row.last) for row in rows], number=True),
                Column("Growth", [_a_minute(row.slope) for row in rows], number=True),
                Column(
                    "Full in",
                    ["–" if row.full_in is None else _whole_seconds(row.full_in) for row in rows],
                    number=True,
                ),
            )
        )
    if results.consumers:
        slow = sorted(results.consumers, key=lambda row: (-row.dropped, -row.unanswered, -(row.ack_p99 or 0.0)))
        parts.append(
            table(
                "slow-consumers",
                "Slow consumers",
                Column("Client", [wording.name(row.client_id) for row in slow]),
                Column("Delivered", *_counts([row.delivered for row in slow]), number=True),
                Column("Lost", *_counts([row.dropped for row in slow]), number=True),
                Column("Unanswered", [wording.whole(row.unanswered) for row in slow], number=True),
                Column(
                    "p99 of answers",
                    ["–" if row.ack_p99 is None else _microseconds(row.ack_p99) for row in slow],
                    number=True,
                ),
            )
        )
    words = "Messages that waited for a client: it was away, or slower than what it subscribed to."
    return Section("queues", "Queue growth", words, parts, "No message waited for anybody.")


def _a_minute(slope: float | None) -> str:
    if slope is None:
        return "–"
    return f"{slope * 60:+.3g} a minute".replace("-", "\N{MINUS SIGN}")


def _whole_seconds(seconds: float) -> str:
    return "is full" if not seconds else wording.duration(max(1.0, seconds))


def _pipeline(results: Results, grid: Grid) -> Section:
    rows = sorted(results.health)
    parts: list[Plot | Table] = []
    if rows:
        parts.append(
            table(
                "nodes",
                "What nodes recorded",
                Column("Node", [wording.name(row.node) for row in rows]),
                Column("From (UTC)", [wording.moment(row.begin) for row in rows]),
                Column("Newest (UTC)", [wording.moment(row.newest) for row in rows]),
                Column("End", [row.end for row in rows]),
                Column("Events", *_counts([row.events for row in rows]), number=True),
                Column("Missing", [wording.whole(row.missing) for row in rows], number=True),
                Column("Dropped", [wording.whole(row.dropped) for row in rows], number=True),
                Column("Corrupt", [wording.whole(row.corrupt) for row in rows], number=True),
            )
        )
    if results.lags:
        lags = sorted(results.lags, key=lambda row: (-row.rows, row.consumer))
        parts.append(
            table(
                "consumers",
                "How far readers are behind",
                Column("Reader", [wording.name(row.consumer) for row in lags]),
                Column("Rows", *_counts([row.rows for row in lags]), number=True),
                Column("Time", [wording.duration(row.seconds) for row in lags], number=True),
            )
        )
    words = "Whether the figures of this page tell everything: rows are numbered, so what is not there is known."
    return Section("pipeline", "Health of the pipeline", words, parts, "No node recorded anything.")
