"""How long messages take at a given rate: `python -m bench.latency --help`."""

import itertools
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Final

from bench import wire
from bench.command import attempt, chosen, options, pinned, shown, write_results
from bench.load import RunFailed, measure
from bench.paced import Spread, Station, Usage, conduct
from bench.peers import Running, running
from bench.workloads import WORKLOADS

PAIRS: Final = 8
FRACTIONS: Final = (0.1, 0.5, 0.9)
BAR: Final = 5.0  # ms, the 99th percentile at half of the maximum


@dataclass(frozen=True, slots=True)
class Latency:
    """One load: rates in messages a second, times in milliseconds from when a message was due."""

    qos: int
    wanted: float
    sent: int
    delivered: float
    spread: Spread
    late: float | None  # of the generator itself, the 99th percentile
    lost: int
    broker_cpu: float
    generator_cpu: float  # of the busiest process


def latency(
    broker: Running,
    rate: float,
    *,
    qos: int = 0,
    pairs: int = PAIRS,
    seconds: float = 2.0,
    warmup: float = 0.5,
    cores: Sequence[int] = (),
) -> Latency:
    """`rate` is that of all pairs together."""
    workers = max(1, min(pairs, len(cores), 3))

    def build(worker: int) -> Station:
        station = Station(broker.address)
        for number in range(worker, pairs, workers):
            station.pair(f"{number:03}", qos, rate / pairs, station.account("pairs"), number / pairs)
        return station

    usage = Usage(broker)
    edges, accounts = conduct([partial(build, worker) for worker in range(workers)], [warmup, seconds], cores, usage)
    account = accounts["pairs"]
    return Latency(
        qos=qos,
        wanted=rate,
        sent=sum(account.sent),
        delivered=account.arrived[1] / seconds,
        spread=Spread.of(account.latencies[1]),
        late=account.late.quantile(0.99),
        lost=account.lost,
        broker_cpu=usage.cpu(edges[1], edges[2]),
        generator_cpu=account.busy,
    )


def maximum(broker: Running, qos: int, seconds: float, cores: Sequence[int]) -> float:
    """Deliveries a second when the generator waits for the broker."""
    workers = max(1, min(3, len(cores)))
    workload = WORKLOADS[f"pairs-qos{qos}"]
    outcome = measure(
        workload, broker, wire.V311, cores=list(cores), workers=workers, warmup=min(0.5, seconds), seconds=seconds
    )
    if outcome.lost or not outcome.rate:
        raise RunFailed(f"no maximum: {outcome.rate:,.0f} a second, {outcome.lost:,} lost")
    return outcome.rate


def line(peer: str, load: str, judged: bool, rounds: list[Latency]) -> str:
    tails = [each.spread.p99 for each in rounds if each.spread.p99 is not None]
    notes = []
    if any(each.lost for each in rounds):
        notes.append(f"lost {sum(each.lost for each in rounds):,}")
    if sum(each.delivered for each in rounds) < 0.97 * sum(each.wanted for each in rounds):
        notes.append("not sustained")
    if judged:
        notes.append("met" if tails and statistics.median(tails) < BAR else "MISSED")
    return (
        f"{peer:<12}{load:<28}{shown((each.wanted for each in rounds), 0):>10}"
        f"{shown((each.delivered for each in rounds), 0):>10}{shown(each.spread.p50 for each in rounds):>9}"
        f"{shown(tails, span=True):>27}{max((each.spread.max or 0 for each in rounds), default=0):>9,.1f}"
        f"{statistics.median(each.broker_cpu for each in rounds):>8.0%}"
        f"{statistics.median(each.generator_cpu for each in rounds):>6.0%}{shown(each.late for each in rounds):>7}"
        f"  {', '.join(notes)}"
    )


HEADER: Final = (
    f"{'peer':<12}{'load':<28}{'wanted/s':>10}{'had/s':>10}{'p50':>9}{'p99 (min … max)':>27}{'max':>9}"
    f"{'broker':>8}{'gen.':>6}{'late':>7}  p99 < {BAR:g} ms"
)


def main() -> int:
    parser = options("latency", "How long messages take at a given rate.", 2.0, 3)
    parser.add_argument("--qos", type=int, action="append", choices=(0, 1), help="default: both")
    parser.add_argument("--maximum", type=float, help="messages a second that count as the maximum of each peer")
    parser.add_argument("--fraction", type=float, action="append", help="of the maximum; default: 0.1, 0.5, 0.9")
    given = parser.parse_args()
    peers, (core, cores) = chosen(given), pinned(given)
    results: dict[tuple[str, str, bool], list[Latency]] = {}
    failures: list[str] = []
    for qos, _ in itertools.product(given.qos or (0, 1), range(given.rounds)):
        reference = 0.0
        for peer in peers:
            with attempt(failures, f"{peer.name}, QoS {qos}"), running(peer, core) as broker:
                top = given.maximum or maximum(broker, qos, given.seconds, cores)
                loads = [(f"{share:.0%} of its own", share * top, share) for share in given.fraction or FRACTIONS]
                if reference:  # the same rates for all
                    loads += [(f"{share:.0%} of {peers[0].name}'s", share * reference, 0) for share in (0.1, 0.5)]
                elif peer is peers[0]:
                    reference = top
                for load, rate, share in loads:
                    row = results.setdefault((peer.name, f"QoS {qos}, {load}", share == 0.5), [])
                    row.append(latency(broker, rate, qos=qos, seconds=given.seconds, cores=cores))
    print(HEADER, "-" * len(HEADER), sep="\n")
    for (name, load, judged), rounds in results.items():
        if rounds:
            print(line(name, load, judged, rounds))
    print(
        "\nMilliseconds from when a message was due until it was read, medians of the rounds; the load is a share of a"
    )
    print("maximum without pauses. broker, gen.: shares of a core. late: the generator itself was so late (p99).")
    print(*failures, sep="\n")
    rows = [
        {"peer": name, "load": load, "judged": judged, "rounds": [asdict(each) for each in rounds]}
        for (name, load, judged), rounds in results.items()
    ]
    write_results(given, {"rows": rows, "failures": failures})
    return 1 if failures or any(each.lost for rounds in results.values() for each in rounds) else 0


if __name__ == "__main__":
    sys.exit(main())
