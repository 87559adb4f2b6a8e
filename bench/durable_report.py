"""What the durable benchmark found, as tables for a document."""

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from bench.backlog import Backlog
from bench.load import Outcome
from bench.report import BUSY

TRUNKLINE, MEMORY = "trunkline-fsync", "trunkline-memory"
#: Sessions of one filter.
FANOUT: Final = 1000
#: Messages, and sessions, that a broker starts with.
MESSAGES, SESSIONS = 1_000_000, 100_000


def median(values: Iterable[float]) -> float | None:
    found = list(values)
    return statistics.median(found) if found else None


@dataclass(slots=True)
class Series:
    """One peer in one workload, round by round."""

    workload: str
    peer: str
    outcomes: list[Outcome] = field(default_factory=list[Outcome])
    backlogs: list[Backlog] = field(default_factory=list[Backlog])
    #: Seconds of one `fdatasync` of what is in flight, before each round, and how many messages that is.
    syncs: list[float] = field(default_factory=list[float])
    in_flight: int = 0
    failure: str = ""

    @property
    def rate(self) -> float | None:
        """Messages a second; none where one was lost."""
        if self.failure or any(outcome.lost for outcome in self.outcomes):
            return None
        return median(outcome.rate for outcome in self.outcomes)

    @property
    def work(self) -> float | None:
        """Microseconds of the broker's processor time a message."""
        return median(outcome.broker_cpu / outcome.rate * 1e6 for outcome in self.outcomes if outcome.rate)

    @property
    def share(self) -> float | None:
        """Of the limit that each round had."""
        pairs = zip(self.outcomes, self.syncs, strict=False)
        return median(outcome.rate * seconds / self.in_flight for outcome, seconds in pairs)

    @property
    def state(self) -> str:
        lost = sum(outcome.lost for outcome in self.outcomes)
        return f"lost {lost:,}" if lost else self.failure or "-"

    def of_backlog(self, figure: Callable[[Backlog], float | None]) -> float | None:
        found = [value for each in self.backlogs if (value := figure(each)) is not None]
        return median(found)


All = dict[tuple[str, str], Series]


def report(found: All, scale: int = 1) -> str:
    parts = [streams(found), backlogs(found), bars(found, scale)]
    if scale > 1:
        parts.append(f"Backlogs have one in {scale:,} of the messages and sessions.")
    return "\n\n".join(part for part in parts if part)


def table(head: list[str], rows: list[list[str]], left: int) -> str:
    rule = ["---"] * left + ["---:"] * (len(head) - left)
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, rule, *rows])


def shown(value: float | None, digits: int = 0, unit: str = "") -> str:
    return "-" if value is None else f"{value:,.{digits}f}{unit}"


def streams(found: All) -> str:
    peers = list(dict.fromkeys(each.peer for each in found.values() if not each.backlogs))
    rows: list[list[str]] = []
    for name in dict.fromkeys(each.workload for each in found.values() if each.in_flight):
        of = {peer: found[name, peer] for peer in peers if (name, peer) in found}
        seconds = median(sync for series in of.values() for sync in series.syncs)
        ours = of.get(TRUNKLINE)
        in_flight = max(series.in_flight for series in of.values())
        row = [f"`{name}`", shown(in_flight / seconds if seconds else None)]
        row += [shown(ours.share if ours else None, 2), shown(ours.work if ours else None, 1)]
        rows.append(row + [rate(of[peer], ours) if peer in of else "-" for peer in peers])
    head = ["workload", "limit", "share of it", "µs", *peers]
    return table(head, rows, 1) if rows else ""


def rate(series: Series, ours: Series | None) -> str:
    """With the ratio of ours to it."""
    if series.rate is None:
        return series.state
    text = f"{series.rate:,.0f}"
    if ours is not None and ours is not series and ours.rate and series.rate:
        text += f" ({ours.rate / series.rate:.2f})"
    busy = median(outcome.generator_cpu for outcome in series.outcomes) or 0.0
    return text + " *" * (busy >= BUSY)


FIGURES: Final[list[tuple[str, Callable[[Backlog], float | None], int]]] = [
    ("queued/s", lambda each: each.queued, 0),
    ("µs", lambda each: each.work, 1),
    ("memory, B", lambda each: each.memory, 0),
    ("disk, B", lambda each: each.disk, 0),
    ("start, s", lambda each: each.start, 2),
    ("of a core, s", lambda each: each.start_work, 2),
    ("memory then, MB", lambda each: each.started_with and each.started_with / 1e6, 0),
    ("first, s", lambda each: each.first, 2),
    ("delivered/s", lambda each: each.resumed, 0),
]


def backlogs(found: All) -> str:
    rows: list[list[str]] = []
    for series in found.values():
        if series.backlogs or (series.failure and not series.in_flight):
            figures = [shown(series.of_backlog(figure), digits) for _, figure, digits in FIGURES]
            rows.append([f"`{series.workload}`", series.peer, *figures, series.failure])
    return table(["backlog", "broker", *[name for name, _, _ in FIGURES], ""], rows, 2) if rows else ""


class Bar(NamedTuple):
    """What is asked for, and what was measured."""

    text: str
    wanted: float
    had: float | None
    at_most: bool = False

    @property
    def verdict(self) -> str:
        if self.had is None:
            return "not measured"
        return "reached" if (self.had <= self.wanted if self.at_most else self.had >= self.wanted) else "not reached"


def bars(found: All, scale: int) -> str:
    def of(workload: str, peer: str = TRUNKLINE) -> Series:
        return found.get((workload, peer)) or Series(workload, peer)

    def ratio(one: Series, other: Series) -> float | None:
        return one.rate / other.rate if one.rate and other.rate else None

    listed = [
        Bar(
            "online, 8 publishers, QoS 1: of the rate in memory",
            0.6,
            ratio(of("online-qos1-8"), of("online-qos1-8", MEMORY)),
        )
    ]
    for flows in (8, 64):
        name = f"offline-qos1-{flows}"
        listed.append(Bar(f"offline, {flows} publishers: share of the limit", 0.7, of(name).share))
        for peer in dict.fromkeys(peer for _, peer in found if not peer.startswith("trunkline")):
            listed.append(Bar(f"offline, {flows} publishers: times {peer}", 1.0, ratio(of(name), of(name, peer))))
        listed.append(Bar(f"offline, {flows} publishers: µs of processor time a message", 3.0, of(name).work, True))
    listed += [
        Bar(
            f"to {FANOUT:,} offline sessions of one filter: of the rate to one",
            0.5,
            ratio(of(f"offline-to-{FANOUT}"), of("offline-qos1-1")),
        ),
        Bar(
            f"start with {SESSIONS:,} sessions and {MESSAGES:,} messages, s",
            3.0,
            of("sessions").of_backlog(lambda each: each.start) if scale == 1 else None,
            True,
        ),
        Bar("memory for each message of a backlog, B", 8.0, of("backlog").of_backlog(lambda each: each.memory), True),
    ]
    rows = [[bar.text, shown(bar.wanted, 2), shown(bar.had, 2), bar.verdict] for bar in listed]
    return table(["bar", "wanted", "measured", ""], rows, 1)
