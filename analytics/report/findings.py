"""The sums of a report, and what needs attention, before all other figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias, get_args

from trunkline.analytics.report import wording
from trunkline.analytics.report.loads import loads
from trunkline.analytics.report.results import BRIEF, LAG, WITHIN, Who

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from trunkline.analytics.report.results import GaugeSums, Results

#: A message had no subscriber: nothing is wrong, but nobody needs it.
UNHEARD: Final = "no_subscribers"
#: Reasons for which messages are dropped in a healthy broker.
USUAL_DROPS: Final = frozenset((UNHEARD, "no_local", "expired", "redispatched"))
#: Names in a sentence.
_NAMED: Final = 3


FindingName: TypeAlias = Literal[
    "missing",
    "unwritten",
    "killed",
    "clocks",
    "alarms",
    "flapping",
    "silent",
    "guesses",
    "refused",
    "dropped",
    "losers",
    "slow",
    "full",
    "filling",
    "near",
    "late",
    "grown",
    "uneven",
    "moving",
    "brief",
    "heavy",
    "dead",
]


#: From what something was lost by, or is wrong now, to what is worth a look.
Severity: TypeAlias = Literal["error", "warning", "note"]
SEVERITIES: Final[tuple[Severity, ...]] = get_args(Severity)
_ERRORS: Final = ("missing", "unwritten", "killed", "alarms", "dropped", "losers", "full")
_NOTES: Final = ("refused", "grown", "uneven", "brief", "heavy", "dead")
#: Part of its limit at which a gauge comes near it.
_NEAR: Final = 0.9
#: Brief connections that are worth a word, if they are half of all.
_MANY_BRIEF: Final = 100
#: Microseconds by which the event loop is late: that many make the broker refuse clients.
_LATE: Final = 500_000


class Tile(NamedTuple):
    name: str
    #: What the first figure says, as a number; None where there is none.
    value: float | None
    figure: str
    #: A second figure: a rate, or a share.
    more: str
    #: Both in the period before, and by how much the first has changed.
    before: str = ""


class Finding(NamedTuple):
    name: FindingName
    #: The id of the section with the details.
    section: str
    text: str
    #: How many events, clients, or others of the text.
    number: int

    @property
    def severity(self) -> Severity:
        return "error" if self.name in _ERRORS else "note" if self.name in _NOTES else "warning"


#: How many there are, the name, the section, and the text of what may be a finding.
_Told: TypeAlias = "tuple[int, FindingName, str, str]"


class Totals(NamedTuple):
    """The sums of a period; latencies are of live deliveries, in microseconds."""

    published: int
    published_bytes: int
    delivered: int
    delivered_bytes: int
    connected: int
    refused: int
    lost: int
    #: Of `lost`: those that were delivered before, and not acknowledged.
    lost_delivered: int
    without_subscribers: int
    denied: int
    live_deliveries: int
    within_10_ms: int
    within_100_ms: int
    within_1_s: int
    worst_p99_us: int | None
    usual_p50_us: int | None


def totals(results: Results) -> Totals:
    usual = sorted(row.p50 for row in results.latency)
    windows = results.timeline
    return Totals(
        published=sum(row.published for row in windows),
        published_bytes=sum(row.published_bytes for row in windows),
        delivered=sum(row.delivered for row in windows),
        delivered_bytes=sum(row.delivered_bytes for row in windows),
        connected=sum(row.connected for row in windows),
        refused=sum(row.refused for row in windows),
        lost=_dropped(results),
        lost_delivered=results.written,
        without_subscribers=sum(row.messages for row in results.drops if row.reason == UNHEARD),
        denied=results.denied,
        live_deliveries=sum(row.deliveries for row in results.latency),
        **{name: sum(getattr(row, name) for row in results.latency) for name in WITHIN},
        worst_p99_us=max((row.p99 for row in results.latency), default=None),
        usual_p50_us=usual[len(usual) // 2] if usual else None,
    )


def tiles(results: Results) -> list[Tile]:
    now = _tiles(results)
    if results.before is None:
        return now
    return [
        tile._replace(before=_before(tile, former)) for tile, former in zip(now, _tiles(results.before), strict=True)
    ]


def _before(tile: Tile, former: Tile) -> str:
    change = ""
    if tile.value is not None and former.value:
        change = f" ({100 * (tile.value / former.value - 1):+.3g}%)".replace("-", "\N{MINUS SIGN}")
    return f"before: {former.figure}{change}; {former.more}"


def _tiles(results: Results) -> list[Tile]:
    seconds = max((results.end - results.begin).total_seconds(), 1e-6)
    sums = totals(results)
    published, delivered, lost, unheard = sums.published, sums.delivered, sums.lost, sums.without_subscribers
    worst, usual = sums.worst_p99_us, sums.usual_p50_us
    short = wording.short
    return [
        Tile(
            "Published",
            published,
            short(published),
            f"{short(published / seconds)}/s, {wording.size(sums.published_bytes)}",
        ),
        Tile(
            "Delivered",
            delivered,
            short(delivered),
            f"{short(delivered / seconds)}/s, {wording.size(sums.delivered_bytes)}",
        ),
        Tile(
            "Latency, worst p99",
            worst,
            "–" if worst is None else wording.duration(worst / 1e6),
            "nothing delivered" if usual is None else f"usual p50 {wording.duration(usual / 1e6)}",
        ),
        Tile(
            "Within 100\N{NO-BREAK SPACE}ms",
            sums.within_100_ms / sums.live_deliveries if sums.live_deliveries else None,
            wording.share(sums.within_100_ms, sums.live_deliveries),
            f"of {wording.count(sums.live_deliveries, 'live delivery', 'live deliveries')}",
        ),
        Tile(
            "Connections",
            sums.connected,
            short(sums.connected),
            f"{short(sums.refused)} refused",
        ),
        Tile("Lost", lost, short(lost), _of_deliveries(sums)),
        Tile("Without subscribers", unheard, short(unheard), _share(unheard, published, "messages")),
        Tile("Denied", results.denied, short(results.denied), wording.count(results.denied_clients, "client")),
    ]


def _dropped(results: Results) -> int:
    """Messages and deliveries that were dropped for an unusual reason."""
    return sum(row.messages for row in results.drops if row.reason not in USUAL_DROPS)


def _share(part: int, whole: int, of: str) -> str:
    return f"{wording.share(part, whole)} of {of}" if whole else f"no {of}"


def _of_deliveries(sums: Totals) -> str:
    """What was written and then lost is one delivery, and counts on both sides."""
    share = _share(sums.lost, sums.delivered + sums.lost - sums.lost_delivered, "deliveries")
    return f"{share}; {wording.short(sums.lost_delivered)} were delivered first" if sums.lost_delivered else share


def _named(who: Who) -> str:
    """The first of them."""
    first = list(map(wording.name, who.first[:_NAMED]))
    more = who.total - len(first)
    return ", ".join(first) + (f" and {wording.whole(more)} more" if more > 0 else "")


def _all(names: Iterable[str]) -> Who:
    found = tuple(dict.fromkeys(names))
    return Who(len(found), found)


def _of_nodes(rows: Iterable[GaugeSums]) -> Who:
    return _all(f"{row.name} of {row.node}" for row in rows)


def _of_load(results: Results) -> list[_Told]:
    gauges = results.gauge_sums
    near = _of_nodes(row for row in gauges if row.share is not None and row.share >= _NEAR)
    lags = [row.high for row in gauges if row.name == LAG]
    late = _all(row.node for row in gauges if row.name == LAG and row.high >= _LATE)
    grown = _of_nodes(row for row in gauges if row.has_grown)
    uneven = _all(f"{load.node} ({load.name})" for load in loads(results) if load.is_uneven)
    brief = sum(row.brief for row in results.stays)
    stays = sum(row.connections for row in results.stays if row.how != "open")
    dead_after = wording.duration(results.dead_after or 0.0)
    count = wording.count
    return [
        (near.total, "near", "gauges", f"Came near their limit, or reached it: {_named(near)}."),
        (
            late.total,
            "late",
            "gauges",
            f"The event loop was late, at most by {wording.duration(max(lags, default=0.0) / 1e6)}: {_named(late)}.",
        ),
        (grown.total, "grown", "gauges", f"Grew, and did not come back: {_named(grown)}."),
        (uneven.total, "uneven", "nodes", f"Uneven load, with most of it on {_named(uneven)}."),
        (
            results.movers.total,
            "moving",
            "connections",
            f"{count(results.movers.total, 'client')} went to and fro between nodes: {_named(results.movers)}.",
        ),
        (
            brief if brief >= _MANY_BRIEF and 2 * brief >= stays else 0,
            "brief",
            "connections",
            f"{count(brief, 'connection')} of {wording.whole(stays)} lasted less than {wording.duration(BRIEF)}.",
        ),
        (
            results.heavy.total,
            "heavy",
            "topics",
            f"Most deliveries are of few messages, each to many: {_named(results.heavy)}.",
        ),
        (
            results.dead.total,
            "dead",
            "topics",
            f"{count(results.dead.total, 'subscription')} got nothing for {dead_after}, of {_named(results.deaf)}.",
        ),
    ]


def findings(results: Results) -> list[Finding]:
    """What stands out, the most severe first. Each number is a sum or a count over the whole period, never over the
    rows of a table."""
    missing = sum(row.missing + row.corrupt for row in results.health)
    unwritten = sum(row.dropped for row in results.health)
    killed = _all(row.node for row in results.health if row.end == "killed")
    on = _all(alarm.name for alarm in results.alarms if alarm.end is None)
    dropped = _dropped(results)
    denied = 0 if results.guessers.total else results.denied
    first_full = wording.duration(results.full_in or 0.0)
    count = wording.count
    found: list[_Told] = [
        (missing, "missing", "pipeline", f"{count(missing, 'event')} cannot be read: figures are too low."),
        (unwritten, "unwritten", "pipeline", f"The exporter lost {count(unwritten, 'event')}: figures are too low."),
        (killed.total, "killed", "pipeline", f"Ended without a stop: {_named(killed)}."),
        (
            len(results.corrections),
            "clocks",
            "nodes",
            f"Clocks were corrected {count(len(results.corrections), 'time')}: durations across that are not exact.",
        ),
        (on.total, "alarms", "alarms", f"Alarms that are on: {_named(on)}."),
        (
            results.flapped.total,
            "flapping",
            "flapping",
            f"{count(results.flapped.total, 'client')} flapped: {_named(results.flapped)}.",
        ),
        (
            results.silent.total,
            "silent",
            "silent",
            f"{count(results.silent.total, 'client')} fell silent: {_named(results.silent)}.",
        ),
        (
            results.guessers.total,
            "guesses",
            "denials",
            f"Many logins failed from {_named(results.guessers)}.",
        ),
        (denied, "refused", "denials", f"Refused: {count(denied, 'request')}."),
        (dropped, "dropped", "drops", f"{count(dropped, 'message')} did not reach a subscriber."),
        (
            results.losers.total,
            "losers",
            "queues",
            f"Too slow or away too long, and lost {count(results.lost, 'message')}: {_named(results.losers)}.",
        ),
        (results.slow_clients.total, "slow", "queues", f"Slow subscribers: {_named(results.slow_clients)}."),
        (results.full.total, "full", "queues", f"Full: {_named(results.full)}."),
        (
            results.filling.total,
            "filling",
            "queues",
            f"Will be full, the first in {first_full}: {_named(results.filling)}.",
        ),
        *_of_load(results),
    ]
    told = [Finding(name, section, text, happened) for happened, name, section, text in found if happened]
    return sorted(told, key=lambda one: SEVERITIES.index(one.severity))


def failing(found: Iterable[Finding], worst: Severity, allowed: Mapping[str, int]) -> list[Finding]:
    """Those that are at least so severe, and more than is allowed of them."""
    counted = SEVERITIES[: SEVERITIES.index(worst) + 1]
    return [one for one in found if one.severity in counted and one.number > allowed.get(one.name, 0)]
