"""What somebody should look at, before all figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from trunkline.analytics.report import wording

if TYPE_CHECKING:
    from trunkline.analytics.report.results import Results

#: Why messages are dropped although all is well: nobody wants them, or they were told not to come.
USUAL_DROPS = frozenset(("no_subscribers", "no_local", "expired", "redispatched"))


class Tile(NamedTuple):
    name: str
    figure: str
    #: The same, seen otherwise.
    more: str


class Finding(NamedTuple):
    #: Of the section that tells more.
    section: str
    text: str


def tiles(results: Results) -> list[Tile]:
    seconds = max((results.end - results.begin).total_seconds(), 1e-6)
    received = sum(row.received for row in results.traffic)
    delivered = sum(row.delivered for row in results.traffic)
    came = sum(row.connected for row in results.churn)
    drops = sum(row.messages for row in results.drops)
    worst = max(results.latency, key=lambda row: row.p99, default=None)
    usual = sorted(row.p50 for row in results.latency)
    return [
        Tile(
            "Published",
            wording.short(received),
            f"{wording.short(received / seconds)}/s, {wording.size(sum(row.received_bytes for row in results.traffic))}",
        ),
        Tile(
            "Delivered",
            wording.short(delivered),
            f"{wording.short(delivered / seconds)}/s, {wording.size(sum(row.delivered_bytes for row in results.traffic))}",
        ),
        Tile(
            "Latency, worst p99",
            "–" if worst is None else wording.duration(worst.p99 / 1e6),
            "nothing delivered" if not usual else f"usual p50 {wording.duration(usual[len(usual) // 2] / 1e6)}",
        ),
        Tile("Connections", wording.short(came), f"{wording.short(sum(row.refused for row in results.churn))} refused"),
        Tile("Dropped", wording.short(drops), _share(drops, delivered + drops, "of deliveries")),
        Tile(
            "Denied",
            wording.short(results.denied),
            wording.count(len({row.client_id for row in results.denials}), "client"),
        ),
    ]


def _share(part: int, whole: int, of: str) -> str:
    return f"{100 * part / whole:.2g}% {of}" if whole else f"none {of}"


def findings(results: Results) -> list[Finding]:
    found: list[Finding] = []
    missing = sum(row.missing + row.corrupt for row in results.health)
    dropped = sum(row.dropped for row in results.health)
    if missing:
        found.append(Finding("pipeline", f"{wording.count(missing, 'event')} cannot be read: figures are too low."))
    if dropped:
        found.append(Finding("pipeline", f"The exporter lost {wording.count(dropped, 'event')}: figures are too low."))
    flapping = len({row.subject for row in results.flapping})
    if flapping:
        found.append(Finding("flapping", f"{wording.count(flapping, 'client')} flapped."))
    silent = len({row.client_id for row in results.silences if row.end is None})
    if silent:
        found.append(Finding("silent", f"{wording.count(silent, 'client')} fell silent."))
    alerts = [row for row in results.alerts if row.name in ("logins", "names")]
    if alerts:
        guessed = wording.count(len({row.subject for row in alerts}), "address", "addresses")
        found.append(Finding("denials", f"Passwords were guessed from {guessed}."))
    elif results.denied:
        found.append(Finding("denials", f"Refused: {wording.count(results.denied, 'request')}."))
    lost = sum(row.messages for row in results.drops if row.reason not in USUAL_DROPS)
    if lost:
        found.append(Finding("drops", f"{wording.count(lost, 'message')} did not get to a subscriber."))
    full = [row for row in results.growth if row.full_in is not None]
    if full:
        soonest = min(full, key=lambda row: row.full_in or 0.0)
        found.append(
            Finding(
                "queues",
                f"{wording.count(len(full), 'queue or store', 'queues or stores')} will be full, "
                f"the first in {wording.duration(soonest.full_in or 0.0)}.",
            )
        )
    return found
