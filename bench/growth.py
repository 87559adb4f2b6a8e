"""The cost of a publish beside unrelated sessions and subscriptions: `python -m bench.growth --help`.

The cost is the broker's processor time a message: of one pair that streams, and of one message that goes to its own
sender and is sent again when it is there. Idle sessions and filters that almost match are added step by step. The pair
has one topic, whose subscribers a broker may remember; what finding them anew costs in Trunkline is timed in-process.
"""

import contextlib
import math
import random
import resource
import socket
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from typing import Final, Literal, get_args

from bench import router, wire
from bench.command import attempt, chosen, options, pinned, shown, write_results
from bench.load import RunFailed, measure
from bench.peers import Running, running
from bench.wire import Refused
from bench.workloads import WORKLOADS
from trunkline.router import Router

Kind = Literal["sessions", "exact", "wildcard"]

COUNTS: Final[dict[Kind, tuple[int, ...]]] = {
    "sessions": (0, 1_000, 10_000),
    "exact": (0, 1_000, 100_000, 1_000_000),
    "wildcard": (0, 1_000, 100_000, 1_000_000),
}
HOLDER: Final = 5_000  # filters of one connection
BATCH: Final = 1_000  # filters of one SUBSCRIBE
SETTLING: Final = 0.3  # s before memory is read
INDEPENDENT: Final = 1.15  # times the cost without them: no more than machines vary
BYTES: Final = 500  # that a subscription may take
TOPICS: Final = 20_000  # that are matched for the first time

# They share all but one level with the topics that are measured, and never match.
FILTERS: Final[dict[Kind, str]] = {"exact": "bench/000/{:07}/t", "wildcard": "bench/+/{:07}/#"}
MAKERS: Final[dict[Kind, Callable[[int], str]]] = {"exact": router.exact, "wildcard": router.wildcard}


@dataclass(frozen=True, slots=True)
class Step:
    """Costs in µs of the broker's processor time; rates in messages and round trips a second."""

    kind: Kind
    count: int
    stream: float
    stream_rate: float
    round_trip: float
    round_trip_rate: float
    bytes_each: float | None  # resident, of a session or subscription; None without any
    took: float  # s, to make those of this step


class Held:
    """Connections that do nothing, and their subscriptions."""

    def __init__(self, broker: Running, kind: Kind) -> None:
        self.broker, self.kind = broker, kind
        self.socks: list[socket.socket] = []
        self.count = 0

    def add_up_to(self, count: int) -> None:
        while self.count < count:
            if self.kind == "sessions":
                self.socks.append(self.open([f"held/{self.count}/t"]))
                self.count += 1
            else:
                if self.count % HOLDER == 0:
                    self.socks.append(self.open([]))
                    self.socks[-1].settimeout(60)
                to = min(count, self.count + BATCH, (self.count // HOLDER + 1) * HOLDER)
                self.subscribe([FILTERS[self.kind].format(number) for number in range(self.count, to)])
                self.count = to

    def open(self, filters: list[str]) -> socket.socket:
        return wire.open_connection(self.broker.address, f"h-{len(self.socks)}", wire.V311, filters)

    def subscribe(self, filters: list[str]) -> None:
        sock = self.socks[-1]
        sock.sendall(wire.subscribe_all(filters, 0, wire.V311))
        first, body = wire.read_packet(sock)
        if first != 0x90 or body[2:] != bytes(len(filters)):
            raise Refused(f"SUBSCRIBE was answered with {first:#x} {body[:8].hex()}")

    def close(self) -> None:
        for sock in self.socks:
            sock.close()


def growth(
    broker: Running, kind: Kind, counts: Sequence[int], *, seconds: float = 1.0, cores: Sequence[int] = ()
) -> Iterator[Step]:
    """The broker keeps what earlier steps made; so `counts` must rise."""
    with contextlib.closing(Held(broker, kind)) as held:
        occupied = 0
        for count in counts:
            before, began = broker.memory(), time.perf_counter()
            held.add_up_to(count)
            took = time.perf_counter() - began
            time.sleep(SETTLING)
            occupied += broker.memory() - before
            stream, stream_rate = cost(broker, "pair-qos0", seconds, cores)
            round_trip, round_trip_rate = cost(broker, "sparse-qos0", seconds, cores)
            each = occupied / count if count else None
            yield Step(kind, count, stream, stream_rate, round_trip, round_trip_rate, each, took)


def cost(broker: Running, workload: str, seconds: float, cores: Sequence[int]) -> tuple[float, float]:
    """Processor time a message in µs, and messages a second, of one flow."""
    load = WORKLOADS[workload].scaled(flows=1, window=None, topics=None)
    warmup = min(0.3, seconds)
    outcome = measure(load, broker, wire.V311, cores=list(cores), workers=1, warmup=warmup, seconds=seconds)
    if outcome.lost or not outcome.rate:
        raise RunFailed(f"{workload}: {outcome.rate:,.0f} a second, {outcome.lost:,} lost")
    return outcome.broker_cpu / outcome.rate * 1e6, outcome.rate


@dataclass(frozen=True, slots=True)
class Match:
    """Nanoseconds to find the one subscriber of a topic among so many."""

    kind: Kind
    count: int
    first: float  # the first message of a topic
    known: float  # any later one


def match_cost(kind: Kind, count: int) -> Match:
    table: Router[router.Client] = Router()
    router.load(table, MAKERS[kind], count)
    chance = random.Random(1)
    topics = [router.exact(number) for number in chance.sample(range(max(count, TOPICS)), TOPICS)]
    first = router.each(table.match, topics)
    hot = topics[-1000:]
    router.each(table.match, hot)
    return Match(kind, count, first, router.each(table.match, hot * 20))


def match_costs(kinds: Sequence[Kind], most: int) -> Iterator[Match]:
    """Each in a process of its own, which gives its memory back."""
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool:
        for kind in kinds:
            for count in COUNTS[kind]:
                if count <= most:
                    yield pool.submit(match_cost, kind, count).result()


def logarithmic(count: int, least: int, ratio: float) -> bool:
    """Has the cost grown by no more than a logarithm does, from the smallest number to this?"""
    return ratio <= INDEPENDENT * math.log(max(count, 2)) / math.log(max(least, 2))


def middle(rounds: Sequence[Step], name: str) -> float:
    return float(statistics.median(getattr(each, name) for each in rounds))


def times(cost: float, least: float) -> float:
    """A broker that got no turn in the time that was measured used no processor time."""
    return cost / least if least else math.inf


def verdicts(steps: list[list[Step]]) -> str:
    """Of all steps of one peer and kind, each with its rounds."""
    last, least = steps[-1][0].count, next((rounds[0].count for rounds in steps if rounds[0].count), 0)
    said = []
    for name, words in (("stream", "streaming"), ("round_trip", "round trip")):
        by_count = {rounds[0].count: middle(rounds, name) for rounds in steps}
        if steps[0][0].kind == "sessions":
            good, bar = by_count[last] <= INDEPENDENT * by_count[0], f"at most x {INDEPENDENT}"
        else:
            good, bar = logarithmic(last, least, times(by_count[last], by_count[least])), f"logarithmic from {least:,}"
        said.append(f"{words} x {times(by_count[last], by_count[0]):.2f} ({bar}: {'met' if good else 'MISSED'})")
    each = middle(steps[-1], "bytes_each")
    if steps[0][0].kind != "sessions":
        said.append(f"{each:,.0f} bytes each (at most {BYTES}: {'met' if each <= BYTES else 'MISSED'})")
    return f"{last:,} {steps[0][0].kind}: {', '.join(said)}"


HEADER: Final = (
    f"{'peer':<12}{'beside':>20}{'streaming, CPU µs a message':>32}{'x':>6}{'round trip, CPU µs':>32}{'x':>6}"
    f"{'bytes each':>12}{'made in':>10}"
)


def line(peer: str, rounds: list[Step], none: list[Step]) -> str:
    step = rounds[0]
    each = "-" if step.bytes_each is None else f"{middle(rounds, 'bytes_each'):,.0f}"
    return (
        f"{peer:<12}{f'{step.count:,} {step.kind}':>20}{shown((each.stream for each in rounds), span=True):>32}"
        f"{times(middle(rounds, 'stream'), middle(none, 'stream')):>6.2f}"
        f"{shown((each.round_trip for each in rounds), 1, span=True):>32}"
        f"{times(middle(rounds, 'round_trip'), middle(none, 'round_trip')):>6.2f}{each:>12}"
        f"{middle(rounds, 'took'):>8.1f} s"
    )


def main() -> int:
    parser = options("growth", "What a publish costs beside sessions and subscriptions.", 1.0, 3)
    parser.add_argument("--kind", action="append", choices=get_args(Kind), help="default: each")
    parser.add_argument("--most", type=int, default=1_000_000, help="sessions or subscriptions")
    given = parser.parse_args()
    if given.most < 1000:
        parser.error("--most must be 1,000 or more: growth needs something to grow to")
    peers, (core, cores), kinds = chosen(given), pinned(given), given.kind or get_args(Kind)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # the broker inherits it
    steps: dict[tuple[str, Kind], dict[int, list[Step]]] = {}
    failures: list[str] = []
    for _ in range(given.rounds):
        for kind in kinds:
            counts = [count for count in COUNTS[kind] if count <= given.most]
            for peer in peers:
                with attempt(failures, f"{peer.name}, {kind}"), running(peer, core) as broker:
                    for step in growth(broker, kind, counts, seconds=given.seconds, cores=cores):
                        steps.setdefault((peer.name, kind), {}).setdefault(step.count, []).append(step)
                        print(f"{peer.name}: {step.count:,} {kind}", file=sys.stderr, flush=True)
    print(HEADER, "-" * len(HEADER), sep="\n")
    for (name, _), by_count in steps.items():
        for rounds in by_count.values():
            print(line(name, rounds, by_count[0]))
        print(f"{'':<12}{verdicts(list(by_count.values()))}", end="\n\n")
    matches = list(match_costs([kind for kind in kinds if kind in MAKERS], given.most))
    if matches:
        print("Trunkline's router alone, a match in ns:")
    for match in matches:
        print(
            f"{f'{match.count:,} {match.kind}':>32}{match.first:>10,.0f} of a new topic{match.known:>8,.0f} of a "
            "known one"
        )
    print(*failures, sep="\n")
    results = {
        "steps": [
            {"peer": name, "rounds": [asdict(step) for step in rounds]}
            for (name, _), by_count in steps.items()
            for rounds in by_count.values()
        ],
        "matches": [asdict(match) for match in matches],
        "failures": failures,
    }
    write_results(given, results)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
