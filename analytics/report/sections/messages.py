"""Messages: those that went through, and those that were dropped."""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import TYPE_CHECKING, Final

from trunkline.analytics.report import wording
from trunkline.analytics.report.findings import totals
from trunkline.analytics.report.plots import Plot, Series, bars, lines
from trunkline.analytics.report.results import WITHIN
from trunkline.analytics.report.sections.section import MAX_SERIES, Section, sums
from trunkline.analytics.report.tables import (
    CLIENT,
    COUNT,
    LEVEL,
    MICROSECONDS,
    NAME,
    NUMBER,
    SHARE,
    SIZE,
    TIME,
    Form,
    Table,
    table,
)
from trunkline.mqtt.versions import Version

if TYPE_CHECKING:
    from pyspark.sql import Row

    from trunkline.analytics.report.axes import Grid
    from trunkline.analytics.report.results import Results, Top


_WAYS: Final = {
    "live": "at once",
    "waited": "after waiting for its client",
    "retained": "to a new subscription, because it was retained",
    "resent": "once more",
    "unknown": "not recorded",
}


_VERSIONS: Final[dict[int, str]] = {version.value: str(version) for version in Version}


def _version(level: int) -> str:
    return _VERSIONS.get(level, str(level))


_VERSION: Final = Form(_version)
_UP_TO: Final = Form(lambda most: wording.size(most) if most < inf else "more")


def traffic(results: Results, grid: Grid) -> Section:
    rows = [row for row in results.timeline if row.published or row.delivered]
    messages = sums(rows, grid, published="published", delivered="delivered")
    payloads = sums(rows, grid, published="published_bytes", delivered="delivered_bytes")
    parts: list[Plot | Table] = [
        lines("traffic-messages", "Messages", grid, messages, wording.short),
        lines("traffic-bytes", "Bytes of payload", grid, payloads, wording.size),
    ]
    if results.sizes:
        parts.append(
            table(
                "payload-sizes",
                "Sizes of published payloads",
                results.sizes,
                ("Up to", _UP_TO, lambda row: inf if row.most is None else row.most),
                ("Messages", COUNT, "messages"),
                ("Bytes", SIZE, "bytes"),
                ("Largest", SIZE._replace(bar=False), "largest"),
            )
        )
    words = "Messages that clients published, and messages that were written to subscribers."
    return Section(
        "traffic",
        "Traffic",
        words,
        parts if rows else [],
        "No message was published or delivered.",
        ("message.publish", "message.delivered"),
    )


def latency(results: Results, grid: Grid) -> Section:
    rows = results.latency
    series = [
        Series(name, grid.highest((row.time, getattr(row, name)) for row in rows)) for name in ("p50", "p95", "p99")
    ]
    parts: list[Plot | Table] = []
    if rows:
        parts.append(
            lines("latency-percentiles", "Percentiles of latency", grid, series, MICROSECONDS.say, adds_up=False)
        )
    if rows:
        sums = totals(results)
        parts.append(
            table(
                "within",
                "Delivered in time",
                [(most, getattr(sums, name)) for name, most in WITHIN.items()],
                ("Within", MICROSECONDS, lambda row: row[0]),
                ("Deliveries", COUNT, lambda row: row[1]),
                ("Share", SHARE, lambda row: (row[1], sums.live_deliveries)),
            )
        )
    if results.ways:
        parts.append(
            table(
                "deliveries",
                "How messages came",
                results.ways,
                ("Delivery", NAME, lambda row: _WAYS.get(row.way, row.way)),
                ("Deliveries", COUNT, "deliveries"),
                ("Usual age", MICROSECONDS, "p50"),
                ("Oldest", MICROSECONDS, "oldest"),
            )
        )
    if results.slow:
        parts.append(
            table(
                "latency-slowest",
                "The slowest windows",
                results.slow,
                ("From (UTC)", TIME, "window_start"),
                ("p99", MICROSECONDS._replace(bar=True), "p99_us"),
                ("Topics", NAME, lambda row: f"{row.prefix}/…"),
                ("QoS", NUMBER, "qos"),
                ("Deliveries", NUMBER, "delivered"),
                ("Never delivered", NUMBER, "undelivered"),
            )
        )
    words = "From the moment at which the broker accepted a message until it was written to a subscriber, if at once."
    if grid.grouped > 1:
        words += f" Each point is the worst of {grid.grouped} windows."
    return Section("latency", "Delivery latency", words, parts, "Nothing was delivered.", ("message.delivered",))


def talkers(results: Results, grid: Grid) -> Section:
    parts = [
        _talker_table(id, title, heading, form, rows)
        for id, title, heading, form, rows in (
            ("top-topics", "Topics", "Topic", NAME, results.topics),
            ("top-clients", "Clients that published most", "Client", CLIENT, results.clients),
        )
        if rows
    ]
    words = "The topics with most messages, and the clients that published most."
    return Section("talkers", "Top talkers", words, parts, "No message was published.", ("message.publish",))


def _talker_table(id: str, title: str, heading: str, form: Form, rows: Top[Row]) -> Table:
    return table(
        id,
        title,
        rows,
        (heading, form, "name"),
        ("Messages", COUNT, "messages"),
        ("Bytes", SIZE, "bytes"),
    )


def topics(results: Results, grid: Grid) -> Section:
    parts: list[Plot | Table] = []
    if results.topics:
        parts.append(
            table(
                "topic-numbers",
                "Topics that messages were published to",
                [("different topics", results.topics.total), ("of these with one message only", results.topics_once)],
                ("Topics", NAME, lambda row: row[0]),
                ("Number", COUNT, lambda row: row[1]),
            )
        )
    if results.branches:
        parts.append(
            table(
                "branches",
                "Where they spread",
                results.branches,
                ("Level", NAME, "branch"),
                ("Different names", COUNT, "names"),
                ("Topics", NUMBER, "topics"),
            )
        )
    if results.unheard:
        parts.append(
            table(
                "unheard-topics",
                "Topics that nobody heard",
                results.unheard,
                ("Topic", NAME, "topic"),
                ("Messages without subscribers", COUNT, "messages"),
                ("The last (UTC)", TIME, "last"),
            )
        )
    if results.fanout:
        parts.append(
            table(
                "fanout",
                "What messages became",
                results.fanout,
                ("Topic", NAME, "name"),
                ("Messages", NUMBER, "routed"),
                ("Deliveries", COUNT, "deliveries"),
                ("Of one message", LEVEL, "amplification"),
                ("Bytes delivered", SIZE, "bytes_out"),
            )
        )
    if results.dead:
        parts.append(
            table(
                "dead-subscriptions",
                f"Subscriptions that got nothing for {wording.duration(results.dead_after or 0.0)}",
                results.dead,
                ("Client", CLIENT, "client_id"),
                ("Filter", NAME, "filter"),
                ("Since (UTC)", TIME, "since"),
                ("The last message (UTC)", TIME, "last"),
            )
        )
    words = (
        "How many topics there are, at which level they have most names, what their messages became, which have no "
        "subscriber, and which subscriptions got nothing."
    )
    return Section("topics", "Topics", words, parts, "No message was published.", ("message.publish",))


def use(results: Results, grid: Grid) -> Section:
    parts = [
        table(
            f"use-by-{id}",
            f"By {id}",
            rows,
            (heading, form, "name"),
            ("Connections", COUNT, "connected"),
            ("Published", COUNT, "published"),
            ("Bytes", SIZE, "published_bytes"),
            ("Delivered", COUNT, "delivered"),
            ("Bytes", SIZE, "delivered_bytes"),
        )
        for id, heading, rows, form in (
            ("user", "User", results.users, NAME),
            ("listener", "Listener", results.listeners, NAME),
            ("protocol", "MQTT", results.protocols, _VERSION),
        )
        if rows
    ]
    words = "Connections that began, and messages in both directions. A dash is no user name, or not recorded."
    needs = ("client.connected", "message.publish", "message.delivered")
    return Section("use", "Use", words, parts, "No client connected, published or received anything.", needs)


def drops(results: Results, grid: Grid) -> Section:
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
