"""Every number of the summary, and every "N of M" below a table, is of the whole period, however few rows a table has.

A log has more of everything than any table. What it says is compared with sums over the plan that the log was made
from. `THOROUGH=20` tries twenty logs.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from dataclasses import fields, replace
from random import Random
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pytest

from tests.analytics.events_made import INCARNATION, START, at, guid, row, table
from tests.analytics.source.logs import write
from trunkline.analytics.report import wording
from trunkline.analytics.report.collecting import collect
from trunkline.analytics.report.cutting import MAX_ROWS
from trunkline.analytics.report.findings import FindingName, findings, tiles, totals
from trunkline.analytics.report.results import Results, Top, Who
from trunkline.analytics.report.sections.named import names
from trunkline.analytics.report.sections.order import sections

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

THOROUGH = int(os.environ.get("THOROUGH", "1"))
LENGTH = 3600.0
#: When queues are read: within the last quarter of an hour.
READ_AT = (2900.0, 3100.0, 3300.0, 3500.0)
USUAL = ("no_subscribers", "no_local", "expired")
LOSSES = ("queue_full", "slow_consumer", "overloaded", "qos0_msg")
UNUSUAL = (*LOSSES, "too_large")
WRITTEN = "session_ended"
#: What must be recorded before subscriptions are said to be dead.
RECORDED = ("message.delivered", "session.subscribed")


class Plan:
    """What happens in a log."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.rows: list[dict[str, Any]] = []
        #: By sort of client: how often each did what its sort does.
        self.counts: dict[str, Counter[str]] = {}
        self.drops = Counter[str]()
        self.dropped: dict[str, dict[str, int]] = defaultdict(dict)
        self.topics = Counter[str]()
        #: Of silent clients: when they published last, and who came back and left.
        self.last_seen: dict[str, float] = {}
        self.left: set[str] = set()
        #: When subscriptions were made.
        self.since: dict[str, float] = {}
        self.delivered = 0
        self.bytes = 0
        self.sizes = Counter[int]()
        #: What happened in the period before, by the names of totals.
        self.before = Counter[str]()
        for make in (
            self._flap,
            self._fall_silent,
            self._guess,
            self._lose,
            self._go_unheard,
            self._ack_late,
            self._fill,
            self._nodes,
            self._gauges,
            self._move,
            self._go_deaf,
            self._tell_many,
            self._past,
        ):
            make()
        self.rows.sort(key=lambda one: one["time"])

    def clients(self, sort: str) -> list[str]:
        """More of them than a table has rows."""
        self.counts[sort] = Counter()
        return [f"{sort}{number:03}" for number in range(MAX_ROWS + self.random.randrange(5, 50))]

    def add(self, kind: str, seconds: float, **columns: Any) -> None:
        self.rows.append(row(kind, seconds, **columns))

    def soon(self) -> float:
        return self.random.uniform(0, 60)

    def _flap(self) -> None:
        for name in self.clients("flapping"):
            begin, times = self.soon(), self.random.randrange(11, 15)
            for number in range(times):
                self.add("client.connected", begin + number, client_id=name)
            self.counts["flapping"][name] = times

    def _fall_silent(self) -> None:
        for number, name in enumerate(self.clients("silent")):
            begin, size, usual = self.soon(), self.random.randrange(500), self.random.randrange(15, 25)
            times = [begin + usual * number for number in range(self.random.randrange(5, 9))]
            self.last_seen[name] = times[-1]
            if self.random.random() < 0.1:
                times.append(begin + 1000)
                self.add("client.disconnected", begin + 1001, client_id=name, reason_code=0)
                self.left.add(name)
            for second in times:
                of = {"username": f"user of {name}", "listener": f"by {name}", "protocol": 1000 + number}
                # one message of each has a topic of its own
                topic = f"t/{name}/{'once' if second == begin else 'often'}"
                self.topics[topic] += 1
                self.add("message.publish", second, client_id=name, topic=topic, size=size, qos=0, **of)
            self.counts["silent"][name] = len(times)
            self.bytes += size * len(times)
            self.sizes[next(most for most in (0, 100, 1000) if size <= most)] += len(times)

    def _guess(self) -> None:
        for name in self.clients("guess"):
            self.counts["guess"][name] = self.random.randrange(21, 24)
            for _ in range(self.counts["guess"][name]):
                self.add("client.connack", self.soon(), client_id=f"of {name}", peer=name, reason_code=0x86)

    def _lose(self) -> None:
        for name in self.clients("loser"):
            for reason in self.random.sample((*UNUSUAL, *USUAL), 3):
                weight = self.random.randrange(1, 9)
                self.add("message.dropped", self.soon(), client_id=name, reason=reason, weight=weight, topic="t", qos=1)
                self.drops[reason] += weight
                self.dropped[name][reason] = weight
                if reason in LOSSES:
                    self.counts["loser"][f"{name} {reason}"] = weight

    def _go_unheard(self) -> None:
        for name in self.clients("unheard"):
            weight = self.random.randrange(1, 9)
            self.add("message.dropped", self.soon(), topic=f"u/{name}", reason="no_subscribers", weight=weight)
            self.drops["no_subscribers"] += weight
            self.counts["unheard"][f"u/{name}"] = weight

    def _ack_late(self) -> None:
        for number, name in enumerate(self.clients("late")):
            second = self.soon()
            of = {"client_id": name, "qos": 1, "topic": f"{name}/t", "guid": guid(at(second), number), "size": 7}
            self.add("message.delivered", second, latency_us=1000, **of)
            self.add("message.acked", second + 2, latency_us=2_001_000, **of)
            # another one, which is lost when it was written
            of["guid"] = guid(at(second), 1000 + number)
            self.add("message.delivered", second, latency_us=1000, **of)
            self.add("message.dropped", second + 1, reason=WRITTEN, **of)
            self.drops[WRITTEN] += 1
            self.counts["late"][name] = 2
            self.delivered += 2

    def _fill(self) -> None:
        """Queues at the end."""
        for sort in ("full", "filling"):
            for name in self.clients(sort):
                last = self.random.randrange(50, 90)
                for second, less in zip(READ_AT, (30, 20, 10, 0), strict=True):
                    length = 100 if sort == "full" else last - less
                    self.add("session.stats", second, client_id=name, queue_length=length, queue_limit=100)
                self.counts[sort][f"queue_length of {name}"] = last if sort == "filling" else 100

    def _nodes(self) -> None:
        """One was killed again and again."""
        self.killed = [INCARNATION - 1000 + number for number in range(self.random.randrange(5, 9))]
        self.unwritten = self.random.randrange(1, 50)
        self.add("exporter.dropped", self.soon(), value=float(self.unwritten), reason="disk")
        self.corrections = self.random.randrange(4, 9)
        for _ in range(self.corrections):
            self.add("node.clock", self.soon(), value=1.0)
        self.alarms = [f"alarm{number}" for number in range(self.random.randrange(4, 9))]
        for number, name in enumerate(self.alarms):
            self.add("alarm.activated", number, name=name, reason="")
        self.missing = self.random.randrange(1, 9)
        self.add("node.tick", LENGTH)

    def _gauges(self) -> None:
        """Nodes that fill up, and are late."""
        self.filled = [f"filled{number}" for number in range(self.random.randrange(5, 9))]
        for number, node in enumerate(self.filled):
            of = {"node": node, "name": "connections.count", "value_limit": 10_000.0}
            self.add("node.stats", 100, value=1000.0, **of)
            self.add("node.stats", 3500, value=9500.0, **of)
            self.add("node.stats", 3500, node=node, name="loop.lag.microseconds", value=600_000.0 + number)
            self.add("node.tick", LENGTH, node=node)

    def _move(self) -> None:
        """From one node to another and back."""
        for name in self.clients("mover"):
            begin, moves = self.soon(), self.random.randrange(4, 8)
            for number in range(moves + 1):
                node = self.filled[0] if number % 2 else "n1"
                self.add("client.connected", begin + 10 * number, client_id=name, node=node)
            self.counts["mover"][name] = moves

    def _go_deaf(self) -> None:
        """Subscribe, and get nothing."""
        for kind in RECORDED:
            for node in ("n1", *self.filled):
                self.add("exporter.records", 0, name=kind, node=node)
        for name in self.clients("deaf"):
            self.since[name] = self.soon()
            self.add("session.subscribed", self.since[name], client_id=name, filter=f"never/{name}", qos=1)

    def _tell_many(self) -> None:
        """One message becomes most deliveries."""
        of = {"topic": "heavy", "size": 7, "qos": 0}
        self.add("message.routed", 1, receivers=9999, **of)
        self.add("message.delivered", 2, weight=9999, delivery="waited", **of)
        self.delivered += 9999

    def _past(self) -> None:
        """The period before, and an event of before that."""
        self.add("node.tick", -LENGTH - 1)
        kinds = {"connected": "client.connected", "published": "message.publish", "lost": "message.dropped"}
        self.before = Counter({total: self.random.randrange(1, 50) for total in (*kinds, "denied")})
        for total, kind in kinds.items():
            for _ in range(self.before[total]):
                self.add(kind, -self.soon(), client_id="past", topic="past", size=3, reason="queue_full")
        for _ in range(self.before["denied"]):
            self.add("client.connack", -self.soon(), client_id="past", reason_code=0x86)
        self.before["published_bytes"] = 3 * self.before["published"]
        self.before["refused"] = self.before["denied"]

    def write(self, log: Path) -> None:
        write(log, table(self.rows))
        for incarnation in (*self.killed, INCARNATION):
            rows = [row("exporter.records", 0, name=kind) for kind in RECORDED] + [row("node.tick", LENGTH)]
            write(log, table([{**one, "node": "killed", "incarnation": incarnation} for one in rows]))
        rows = [row("exporter.records", 0, name=kind, node="damaged") for kind in RECORDED]
        rows += [row("node.tick", second, node="damaged") for second in range(12)]
        write(log, table(rows), rows=1, roll_bytes=1)
        for segment in sorted((log / f"node=damaged@{INCARNATION}").glob("*.arrows"))[2 : 2 + self.missing]:
            segment.unlink()
            segment.with_suffix(".idx").unlink()

    def first(self, sort: str) -> list[str]:
        counts = self.counts[sort]
        return sorted(counts, key=lambda name: (-counts[name], name))

    @property
    def silences(self) -> list[str]:
        return sorted(self.last_seen, key=lambda name: (name in self.left, self.last_seen[name], name))

    @property
    def losers(self) -> list[str]:
        """Names of clients do not differ in length."""
        return list(dict.fromkeys(entry.split()[0] for entry in self.first("loser")))

    @property
    def slow(self) -> list[str]:
        lost = {entry.split()[0] for entry in self.counts["loser"] if entry.endswith(("queue_full", "slow_consumer"))}
        return [*self.first("late"), *lost]

    @property
    def lost(self) -> int:
        return sum(self.drops[reason] for reason in (*UNUSUAL, WRITTEN))

    @property
    def connected(self) -> int:
        return sum(self.counts["flapping"].values()) + sum(moves + 1 for moves in self.counts["mover"].values())

    @property
    def deaf(self) -> list[str]:
        return sorted(self.since, key=lambda name: self.since[name])

    @property
    def brief(self) -> tuple[int, int]:
        """Connections that lasted less than 5 seconds, and all that ended: nobody who flaps disconnects, and who moves
        stays for 20 seconds each time but the last on each node."""
        flapped = sum(times - 1 for times in self.counts["flapping"].values())
        moved = sum(moves - 1 for moves in self.counts["mover"].values())
        return flapped, flapped + moved + len(self.left)

    @property
    def full_in(self) -> float:
        """Seconds until the first queue is full, by the line through its length, second by second."""
        times = np.arange(READ_AT[0], LENGTH) + 0.5
        lengths = np.searchsorted(READ_AT, times) * 10.0
        return (100 - max(self.counts["filling"].values())) / float(np.polyfit(times, lengths, 1)[0])


def named(names: Sequence[str]) -> str:
    return f"{', '.join(names[:3])} and {len(names) - 3} more"


#: What each sentence should be.
SENTENCES: dict[str, Callable[[Plan], str]] = {
    "missing": lambda plan: f"{wording.count(plan.missing, 'event')} cannot be read: figures are too low.",
    "unwritten": lambda plan: f"The exporter lost {wording.count(plan.unwritten, 'event')}: figures are too low.",
    "killed": lambda plan: f"Ended without a stop: {named([f'killed@{each}' for each in plan.killed])}.",
    "clocks": lambda plan: f"Clocks were corrected {plan.corrections} times: durations across that are not exact.",
    "alarms": lambda plan: f"Alarms that are on: {named(plan.alarms)}.",
    "flapping": lambda plan: f"{len(plan.counts['flapping'])} clients flapped: {named(plan.first('flapping'))}.",
    "silent": lambda plan: (
        f"{len(plan.last_seen) - len(plan.left)} clients fell silent: "
        f"{named([name for name in plan.silences if name not in plan.left])}."
    ),
    "guesses": lambda plan: f"Many logins failed from {named(plan.first('guess'))}.",
    "refused": lambda plan: f"Refused: {wording.whole(plan.counts['guess'].total())} requests.",
    "dropped": lambda plan: f"{wording.whole(plan.lost)} messages did not reach a subscriber.",
    "losers": lambda plan: (
        f"Too slow or away too long, and lost {wording.whole(plan.counts['loser'].total())} messages: "
        f"{named(plan.losers)}."
    ),
    "slow": lambda plan: f"Slow subscribers: {named(plan.first('late'))}.",
    "full": lambda plan: f"Full: {named(plan.first('full'))}.",
    "near": lambda plan: (
        f"Came near their limit, or reached it: {named([f'connections.count of {node}' for node in plan.filled])}."
    ),
    "late": lambda plan: (
        f"The event loop was late, at most by {wording.duration(0.6 + 1e-6 * len(plan.filled))}: {named(plan.filled)}."
    ),
    "grown": lambda plan: (
        f"Grew, and did not come back: {named([f'connections.count of {node}' for node in plan.filled])}."
    ),
    "uneven": lambda plan: "Uneven load, with most of it on n1 (published), n1 (delivered), n1 (connections).",
    "moving": lambda plan: (
        f"{len(plan.counts['mover'])} clients went to and fro between nodes: {named(plan.first('mover'))}."
    ),
    "brief": lambda plan: (
        f"{wording.whole(plan.brief[0])} connections of {wording.whole(plan.brief[1])} lasted less than "
        f"{wording.duration(5)}."
    ),
    "heavy": lambda plan: "Most deliveries are of few messages, each to many: heavy.",
    "dead": lambda plan: (
        f"{len(plan.deaf)} subscriptions got nothing for {wording.duration(1800)}, of {named(plan.deaf)}."
    ),
    "filling": lambda plan: (
        f"Will be full, the first in {wording.duration(plan.full_in)}: {named(plan.first('filling'))}."
    ),
}

#: The rows that each table would have, by what tells them apart, in their order where that is known.
TABLES: dict[str, tuple[Callable[[Plan], Sequence[str]], Callable[[Any], str] | None]] = {
    "slow": (lambda plan: plan.first("late"), None),
    "flapping": (lambda plan: plan.first("flapping"), lambda row: str(row.subject)),
    "topics": (lambda plan: sorted(plan.topics), None),
    "clients": (lambda plan: plan.first("silent"), None),
    "branches": (
        lambda plan: ["t/+", *(f"t/{name}/+" for name in sorted(plan.last_seen))],
        lambda row: str(row.branch),
    ),
    "unheard": (lambda plan: ["t", *plan.first("unheard")], lambda row: str(row.topic)),
    "users": (
        lambda plan: ["None", *(f"user of {name}" for name in plan.first("silent"))],
        lambda row: str(row.name),
    ),
    "listeners": (lambda plan: ["None", *(f"by {name}" for name in plan.first("silent"))], lambda row: str(row.name)),
    "protocols": (
        lambda plan: ["None", *(str(1000 + int(name.removeprefix("silent"))) for name in plan.first("silent"))],
        lambda row: str(row.name),
    ),
    "fanout": (
        lambda plan: ["heavy", *(f"{name}/t" for name in plan.first("late"))],
        lambda row: str(row.name),
    ),
    "dead": (lambda plan: plan.deaf, lambda row: str(row.client_id)),
    "moves": (lambda plan: plan.first("mover"), lambda row: str(row.client_id)),
    "denials": (lambda plan: plan.first("guess"), lambda row: str(row.peer)),
    "alerts": (lambda plan: plan.first("guess"), None),
    "losses": (lambda plan: plan.first("loser"), lambda row: f"{row.client_id} {row.reason}"),
    "growth": (
        lambda plan: [*plan.first("full"), *plan.first("filling")],
        lambda row: f"{row.metric} of {row.client_id}",
    ),
    "consumers": (lambda plan: plan.slow, None),
    "silences": (lambda plan: plan.silences, lambda row: str(row.client_id)),
}


@pytest.fixture(scope="module", params=range(THOROUGH))
def told(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Plan, Results]:
    plan = Plan(request.param)
    log = tmp_path_factory.mktemp("log")
    plan.write(log)
    return plan, collect(spark, str(log), now=START, since=START)


def test_each_sentence_is_of_the_whole_period(told: tuple[Plan, Results]) -> None:
    plan, results = told
    found = {finding.name: finding.text for finding in findings(results)}
    # only where no passwords were guessed
    found |= {one.name: one.text for one in findings(replace(results, guessers=Who())) if one.name == "refused"}
    assert SENTENCES.keys() == set(get_args(FindingName))
    assert found == {name: sentence(plan) for name, sentence in SENTENCES.items()}


def test_each_tile_is_of_the_whole_period(told: tuple[Plan, Results]) -> None:
    plan, results = told
    seconds = (results.end - results.begin).total_seconds()
    short, delivered, live = wording.short, plan.delivered, plan.counts["late"].total()
    deliveries = delivered + plan.lost - plan.drops[WRITTEN]
    published, unheard = plan.topics.total(), plan.drops["no_subscribers"]
    expected = {
        "Published": (short(published), f"{short(published / seconds)}/s, {wording.size(plan.bytes)}"),
        "Delivered": (short(delivered), f"{short(delivered / seconds)}/s, {wording.size(7 * delivered)}"),
        "Latency, worst p99": (wording.duration(0.001), f"usual p50 {wording.duration(0.001)}"),
        "Within 100\N{NO-BREAK SPACE}ms": (
            "100%",
            f"of {wording.count(live, 'live delivery', 'live deliveries')}",
        ),
        "Connections": (
            short(plan.connected),
            f"{short(plan.counts['guess'].total())} refused",
        ),
        "Lost": (
            short(plan.lost),
            f"{wording.share(plan.lost, deliveries)} of deliveries; {short(plan.drops[WRITTEN])} were delivered first",
        ),
        "Without subscribers": (short(unheard), f"{wording.share(unheard, published)} of messages"),
        "Denied": (short(plan.counts["guess"].total()), f"{len(plan.counts['guess'])} clients"),
    }
    assert {tile.name: (tile.figure, tile.more) for tile in tiles(results)} == expected


def test_the_totals_before_are_of_the_period_before(told: tuple[Plan, Results]) -> None:
    plan, results = told
    assert results.before is not None
    found = totals(results.before)._asdict()
    assert {name: number for name, number in found.items() if number} == plan.before


def test_topics_with_one_message_are_counted_among_all(told: tuple[Plan, Results]) -> None:
    plan, results = told
    assert results.topics_once == sum(number == 1 for number in plan.topics.values()) > MAX_ROWS
    assert (results.branches.rows[0].names, results.branches.rows[0].topics) == (len(plan.last_seen), len(plan.topics))


def test_sums_by_size_and_by_use_are_those_of_the_totals(told: tuple[Plan, Results]) -> None:
    plan, results = told
    assert {row.most: row.messages for row in results.sizes} == plan.sizes
    assert sum(row.bytes for row in results.sizes) == plan.bytes
    for used in (results.users, results.listeners, results.protocols):
        nobody, first = used.rows[:2]
        assert nobody.name is None
        assert (nobody.connected, nobody.delivered) == (
            plan.connected,
            plan.delivered,
        )
        assert (first.connected, first.published, first.delivered) == (0, max(plan.counts["silent"].values()), 0)


def test_each_table_says_how_many_rows_it_would_have_and_has_the_first(told: tuple[Plan, Results]) -> None:
    plan, results = told
    cuts = {each.name: getattr(results, each.name) for each in fields(Results)}
    assert TABLES.keys() == {name for name, value in cuts.items() if isinstance(value, Top)}
    for name, (rows, name_of) in TABLES.items():
        expected = list(rows(plan))
        assert cuts[name].total == len(expected) > MAX_ROWS, name
        assert len(cuts[name].rows) == MAX_ROWS, name
        if name_of is not None:
            assert [name_of(each) for each in cuts[name].rows] == expected[:MAX_ROWS], name


def test_each_client_that_a_table_of_the_page_names_is_told_of(told: tuple[Plan, Results]) -> None:
    plan, results = told
    assert results.named.keys() == set(names(sections(results)))
    flapping, silent, loser = plan.first("flapping")[0], plan.first("silent")[0], plan.losers[0]
    stay = results.named[flapping].stay
    assert stay is not None
    assert (stay.connections, stay.how) == (plan.counts["flapping"][flapping], "open")
    assert results.named[silent].published.number == plan.counts["silent"][silent]
    assert results.named[loser].dropped == plan.dropped[loser]
