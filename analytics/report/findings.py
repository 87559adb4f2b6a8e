"""The sums of a report, and what needs attention, before all other figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from trunkline.analytics.report import wording

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import Row

    from trunkline.analytics.report.results import Results

#: Reasons for which messages are dropped in a healthy broker.
USUAL_DROPS: Final = frozenset(("no_subscribers", "no_local", "expired", "redispatched"))
#: Names in a sentence.
_NAMED: Final = 3


class Tile(NamedTuple):
    name: str
    figure: str
    #: A second figure: a rate, or a share.
    more: str


class Finding(NamedTuple):
    #: The id of the section with the details.
    section: str
    text: str


def tiles(results: Results) -> list[Tile]:
    seconds = max((results.end - results.begin).total_seconds(), 1e-6)
    published = sum(row.published for row in results.timeline)
    delivered = sum(row.delivered for row in results.timeline)
    published_bytes = wording.size(sum(row.published_bytes for row in results.timeline))
    delivered_bytes = wording.size(sum(row.delivered_bytes for row in results.timeline))
    drops = sum(row.messages for row in results.drops)
    worst = max((row.p99 for row in results.latency), default=None)
    usual = sorted(row.p50 for row in results.latency)
    denied = wording.count(len({row.client_id for row in results.denials}), "client")
    short = wording.short
    return [
        Tile("Published", short(published), f"{short(published / seconds)}/s, {published_bytes}"),
        Tile("Delivered", short(delivered), f"{short(delivered / seconds)}/s, {delivered_bytes}"),
        Tile(
            "Latency, worst p99",
            "–" if worst is None else wording.duration(worst / 1e6),
            f"usual p50 {wording.duration(usual[len(usual) // 2] / 1e6)}" if usual else "nothing delivered",
        ),
        Tile(
            "Connections",
            short(sum(row.connected for row in results.timeline)),
            f"{short(sum(row.refused for row in results.timeline))} refused",
        ),
        Tile("Dropped", short(drops), _share(drops, delivered + drops, "of deliveries")),
        Tile("Denied", short(results.denied), denied),
    ]


def _share(part: int, whole: int, of: str) -> str:
    return f"{100 * part / whole:.3g}% {of}" if whole else f"none {of}"


def _distinct(names: Iterable[str]) -> list[str]:
    return [wording.name(name) for name in dict.fromkeys(names)]


def _limited(row: Row) -> str:
    """What a row of the job `queues` is about."""
    return f"{row.metric} of {wording.name(row.client_id or row.node)}"


def _named(names: Sequence[str]) -> str:
    """The first of them."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def findings(results: Results) -> list[Finding]:
    missing = sum(row.missing + row.corrupt for row in results.health)
    dropped = sum(row.dropped for row in results.health)
    flapping = _distinct(row.subject for row in results.flapping)
    silent = _distinct(row.client_id for row in results.silences if row.end is None)
    guessing = _distinct(row.subject for row in results.alerts if row.name in ("logins", "names"))
    lost = sum(row.messages for row in results.drops if row.reason not in USUAL_DROPS)
    on = [alarm.name for alarm in results.alarms if alarm.end is None]
    losers = _distinct(row.client_id for row in results.losses)
    slow = [name for name in _distinct(row.client_id for row in results.consumers) if name not in losers]
    by_losers = sum(row.messages for row in results.losses)
    killed = [row.node for row in results.health if row.end == "killed"]
    growing = sorted((row for row in results.growth if row.full_in is not None), key=lambda row: row.full_in)
    full = [_limited(row) for row in growing if row.full_in == 0]
    filling = [_limited(row) for row in growing if row.full_in > 0]
    first = wording.duration(min((row.full_in for row in growing if row.full_in > 0), default=0.0))
    count = wording.count
    found = [
        (missing, "pipeline", f"{count(missing, 'event')} cannot be read: figures are too low."),
        (dropped, "pipeline", f"The exporter lost {count(dropped, 'event')}: figures are too low."),
        (killed, "pipeline", f"Ended without a stop: {_named(list(map(wording.name, killed)))}."),
        (
            results.corrections,
            "nodes",
            f"Clocks were corrected {count(len(results.corrections), 'time')}: durations across that are not exact.",
        ),
        (on, "alarms", f"Alarms that are on: {_named(list(map(wording.name, on)))}."),
        (flapping, "flapping", f"{count(len(flapping), 'client')} flapped: {_named(flapping)}."),
        (silent, "silent", f"{count(len(silent), 'client')} fell silent: {_named(silent)}."),
        (guessing, "denials", f"Passwords were guessed from {_named(guessing)}."),
        (results.denied and not guessing, "denials", f"Refused: {count(results.denied, 'request')}."),
        (lost, "drops", f"{count(lost, 'message')} did not reach a subscriber."),
        (losers, "queues", f"Too slow or away too long, and lost {count(by_losers, 'message')}: {_named(losers)}."),
        (slow, "queues", f"Slow subscribers: {_named(slow)}."),
        (full, "queues", f"Full: {_named(full)}."),
        (filling, "queues", f"Will be full, the first in {first}: {_named(filling)}."),
    ]
    return [Finding(section, text) for happened, section, text in found if happened]
