"""The effect of one client that stops reading on the others: `python -m bench.stuck --help`.

A publisher sends 50,000 messages a second to two subscribers, and one of these reads nothing for a while, then all
again. Eight pairs beside them go on as before, or should. Then, with another broker: a publisher that sends as fast as
it can to a subscriber that reads at a pace of its own. A broker with bounded memory slows the first or drops messages.
"""

import select
import socket
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from os import environ
from typing import Final

from bench import wire
from bench.command import attempt, chosen, options, pinned, shown, write_results
from bench.fairness import Flood
from bench.loop import CHUNK, BrokenRun, Loop
from bench.paced import PAYLOAD, Account, PacedPublisher, Spread, StampedSubscriber, Station, Usage, clock, conduct
from bench.peers import Running, running
from bench.transport import IN
from bench.wire import Refused

RATE: Final = 50_000  # messages a second to the two
PAIRS: Final = 8
PAIR_RATE: Final = 1_000  # messages a second of each other pair
WINDOW: Final = 1_000  # of the publisher with QoS 1
READERS: Final = (2_000, 20_000, 100_000)  # messages a second that slow subscribers read
BAR: Final = 0.9  # of their rate is what the other pairs keep
FIGURES: Final = "$SYS/broker/publish/messages/#"
TOPIC: Final = "bench/flood/t"
SETTLE: Final = 5.0  # seconds between a broker's figures


class Figures:
    """What the broker itself says of its messages, below `$SYS`; nothing of a broker that says nothing."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.values: dict[str, int] = {}
        self.sock: socket.socket | None = None
        try:
            self.sock = wire.open_connection(address, "figures", wire.V311, [FIGURES])
        except Refused:
            return
        self.sock.setblocking(True)

    def read(self, seconds: float = 0.0) -> str | None:
        """All that is there; or, with a time, the next to come within it. Returns the name of the last figure."""
        name = None
        while self.sock and (name is None or not seconds) and select.select([self.sock], [], [], seconds)[0]:
            first, body = wire.read_packet(self.sock)
            if first & 0xF0 == 0x30:
                length = int.from_bytes(body[:2], "big")
                name, value = body[2 : 2 + length].decode().removeprefix(FIGURES.rstrip("#")), body[2 + length :]
                if value.isdigit():
                    self.values[name] = int(value)
        return name

    def settle(self, seconds: float) -> None:
        """Read until a figure comes for the third time, so that all were taken after the last message, or none has come
        for so long: what a broker sends of these is itself such a figure."""
        seen = Counter[str]()
        while max(seen.values(), default=0) < 3 and (name := self.read(seconds)):
            seen[name] += 1

    def close(self) -> None:
        if self.sock:
            self.sock.close()


class Sleeper(StampedSubscriber):
    """Stops to read, and starts again. A broker may have closed the connection meanwhile."""

    def __init__(self, loop: Loop, sock: socket.socket, topic: str, qos: int, station: Station) -> None:
        super().__init__(loop, sock, topic, qos, station.account("stuck"))
        self.recovery, self.closed = station.account("recovery"), station.account("closed")
        self.woken = 0
        self.gone = False

    def sleep(self, now: int) -> None:
        if not self.gone:
            self.loop.epoll.modify(self.fd, 0)

    def wake(self, now: int) -> None:
        self.woken = now
        if not self.gone:
            self.loop.epoll.modify(self.fd, IN)

    def ready(self, mask: int) -> None:
        try:
            super().ready(mask)
        except (BrokenRun, OSError):
            self.gone = True
            self.loop.remove(self.fd)
            self.closed.late.add(clock() - self.closed.edges[2])

    def read(self, data: bytes) -> None:
        before = self.last
        super().read(data)
        if before < self.woken <= self.last:  # fresh again
            self.recovery.late.add(clock() - self.woken)


class Trouble(Station):
    """The publisher and its two subscribers."""

    patience = 3.0

    def __init__(self, address: tuple[str, int], rate: float, qos: int) -> None:
        super().__init__(address)
        flood = self.account("flood")
        StampedSubscriber(self.loop, self.open("s-flood-0", [TOPIC], qos), TOPIC, qos, flood)
        self.sleeper = Sleeper(self.loop, self.open("s-flood-1", [TOPIC], qos), TOPIC, qos, self)
        publisher = PacedPublisher(self.loop, self.open("p-flood"), TOPIC, qos, rate, flood, WINDOW)
        self.paced.append((publisher, 0.0))

    def begin(self) -> None:
        super().begin()
        self.at(self.edges[2], self.sleeper.sleep)
        self.at(self.edges[3], self.sleeper.wake)

    def complete(self) -> bool:
        """With all that the sleeper missed, unless it was dropped: then patience ends it."""
        missing = sum(self.accounts["flood"].sent) - self.sleeper.messages
        return self.accounts["flood"].lost <= 0 and (self.sleeper.gone or missing <= 0)


@dataclass(frozen=True, slots=True)
class Phase:
    """Rates in messages a second, times in milliseconds."""

    name: str
    pairs: float
    pairs_spread: Spread
    healthy: float
    healthy_spread: Spread
    stuck: float


@dataclass(frozen=True, slots=True)
class Stuck:
    """Memory in resident bytes, `series` with the seconds since the subscriber stopped to read."""

    qos: int
    wanted: float
    seconds: float
    phases: list[Phase]  # before, during, after
    growth: int
    series: list[tuple[float, int]]
    sent: int
    pairs_lost: int
    healthy_lost: int
    stuck_lost: int
    recovered: float | None  # s from reading again until it had what was sent then
    closed: float | None  # s after which the broker had closed its connection
    figures: dict[str, int]

    @property
    def ratio(self) -> float:
        return self.phases[1].pairs / self.phases[0].pairs if self.phases[0].pairs else 0.0


def stuck(
    broker: Running,
    *,
    qos: int = 0,
    rate: float = RATE,
    pair_rate: float = PAIR_RATE,
    seconds: float = 60.0,
    around: float | None = None,
    settle: float = 0.0,
    cores: Sequence[int] = (),
) -> Stuck:
    """`around` is the time before and after; `settle` how long the broker may take for its next figures."""

    def others() -> Station:
        station = Station(broker.address)
        for number in range(PAIRS):
            station.pair(f"{number:03}", 0, pair_rate, station.account("pairs"), number / PAIRS)
        return station

    around = around or min(10.0, max(0.5, seconds / 2))
    usage, figures = Usage(broker), Figures(broker.address)

    def watch(now: int) -> None:
        usage(now)
        figures.read()

    lengths = [0.5, around, seconds, around]
    edges, accounts = conduct([others, lambda: Trouble(broker.address, rate, qos)], lengths, cores, watch)
    figures.settle(settle)
    figures.close()
    pairs, flood, sleeper = accounts["pairs"], accounts["flood"], accounts["stuck"]
    phases = [
        Phase(
            name=name,
            pairs=pairs.arrived[number] / lengths[number],
            pairs_spread=Spread.of(pairs.latencies[number]),
            healthy=flood.arrived[number] / lengths[number],
            healthy_spread=Spread.of(flood.latencies[number]),
            stuck=sleeper.arrived[number] / lengths[number],
        )
        for number, name in enumerate(("before", "during", "after"), 1)
    ]
    start = max((memory for when, _, memory in usage.samples if when < edges[2]), default=0)
    since = [(when, memory) for when, _, memory in usage.samples if when >= edges[2]]
    recovered, closed = accounts["recovery"].late.quantile(0), accounts["closed"].late.quantile(0)
    return Stuck(
        qos=qos,
        wanted=rate,
        seconds=seconds,
        phases=phases,
        growth=max([memory for _, memory in since] + [start]) - start,
        series=[(round((when - edges[2]) / 1e9, 1), memory) for when, memory in since[::5]],
        sent=sum(flood.sent),
        pairs_lost=pairs.lost,
        healthy_lost=flood.lost,
        stuck_lost=sum(flood.sent) - sum(sleeper.arrived),
        recovered=None if recovered is None else recovered / 1000,
        closed=None if closed is None else closed / 1000,
        figures=figures.values,
    )


class SlowReader:
    """Takes so many messages' bytes a second, a little every millisecond."""

    def __init__(self, loop: Loop, sock: socket.socket, rate: float, account: Account) -> None:
        self.sock, self.account, self.loop = sock, account, loop
        self.frame = len(wire.publish(TOPIC, bytes(PAYLOAD), 0, wire.V311))
        self.speed = rate * self.frame / 1e9
        self.bytes = self.began = 0
        self.fd = loop.add(sock, self.ready, 0)

    def begin(self, now: int) -> None:
        self.began = now

    def step(self, now: int) -> int:
        allowed = int((now - self.began) * self.speed) - self.bytes
        if allowed > 0:
            try:
                self.take(min(allowed, CHUNK))
            except BlockingIOError:  # nothing there: what it could have read meanwhile is no credit
                self.began = now - int(self.bytes / self.speed)
        return now + 1_000_000

    def hurry(self) -> None:
        """Whatever is there from now on."""
        self.loop.epoll.modify(self.fd, IN)

    def ready(self, mask: int) -> None:
        self.take(CHUNK)

    def take(self, size: int) -> None:
        data = self.sock.recv(size)
        if not data:
            raise BrokenRun("the broker closed the slow subscriber's connection")
        before = self.bytes // self.frame
        self.bytes += len(data)
        self.account.arrived[self.account.phase(clock())] += self.bytes // self.frame - before


class Outrun(Station):
    patience = 3.0

    def __init__(self, address: tuple[str, int], rate: float) -> None:
        super().__init__(address)
        account = self.account("outrun")
        self.reader = SlowReader(self.loop, self.open("s-flood-0", [TOPIC]), rate, account)
        self.flood = Flood(self.loop, self.open("p-flood"), TOPIC, account, 1)

    def begin(self) -> None:
        super().begin()
        self.flood.start()
        self.reader.begin(self.edges[0])
        self.at(self.edges[0], self.reader.step)

    def end(self) -> None:
        self.flood.stop()
        self.reader.hurry()


@dataclass(frozen=True, slots=True)
class Outran:
    """Messages a second once all buffers were full, and what became of the messages of the whole run."""

    reads: float
    sent_rate: float
    read_rate: float
    sent: int
    lost: int
    growth: int
    figures: dict[str, int]


def outrun(
    broker: Running,
    rate: float,
    *,
    seconds: float = 5.0,
    fill: float = 2.0,
    settle: float = 0.0,
    cores: Sequence[int] = (),
) -> Outran:
    """`fill` is the time that the buffers of the system and the broker get to fill before the rates are taken."""
    usage, figures = Usage(broker), Figures(broker.address)
    before = broker.memory()
    _, accounts = conduct([lambda: Outrun(broker.address, rate)], [fill, seconds], cores, usage)
    figures.settle(settle)
    figures.close()
    account = accounts["outrun"]
    return Outran(
        reads=rate,
        sent_rate=account.sent[1] / seconds,
        read_rate=account.arrived[1] / seconds,
        sent=sum(account.sent),
        lost=account.lost,
        growth=max((memory for _, _, memory in usage.samples), default=before) - before,
        figures=figures.values,
    )


def dropped(figures: dict[str, int]) -> dict[str, int]:
    return {name: value for name, value in figures.items() if name.startswith("dropped")}


def describe(peer: str, run: Stuck) -> str:
    lines = [f"{peer}, QoS {run.qos}: {run.wanted:,.0f} messages a second to two, one of which does not read"]
    lines.append(f"  {'':<8}{'pairs/s':>10}{'p50':>8}{'p99':>9}{'max':>10}{'healthy/s':>12}{'p99':>10}{'stuck/s':>11}")
    for phase in run.phases:
        pairs, healthy = phase.pairs_spread, phase.healthy_spread
        lines.append(
            f"  {phase.name:<8}{phase.pairs:>10,.0f}{shown([pairs.p50]):>8}{shown([pairs.p99]):>9}"
            f"{shown([pairs.max]):>10}{phase.healthy:>12,.0f}{shown([healthy.p99]):>10}{phase.stuck:>11,.0f}"
        )
    verdict = "met" if run.ratio >= BAR else "MISSED"
    lines.append(f"  the pairs kept {run.ratio:.0%} of their rate ({BAR:.0%}: {verdict}) and lost {run.pairs_lost:,}")
    lines.append(f"  resident memory grew by at most {run.growth / 1e6:,.1f} MB in {run.seconds:g} s")
    lines.append(
        f"  of {run.sent:,} sent the healthy one missed {run.healthy_lost:,}, the stuck one {run.stuck_lost:,}"
    )
    if run.closed is not None:
        lines.append(f"  the stuck one was disconnected after {run.closed:,.1f} s")
    elif run.recovered is not None:
        lines.append(f"  reading again, it had fresh messages after {run.recovered:,.2f} s")
    else:
        lines.append("  reading again, it did not get to fresh messages")
    lines += [f"  the broker says: {name} {value:,}" for name, value in dropped(run.figures).items()]
    return "\n".join(lines)


def describe_outran(peer: str, run: Outran) -> str:
    said = "".join(f", it says: {name} {value:,}" for name, value in dropped(run.figures).items())
    return (
        f"{peer:<12}{run.reads:>10,.0f}{run.read_rate:>11,.0f}{run.sent_rate:>12,.0f}"
        f"{run.sent:>14,}{run.lost:>14,}{run.growth / 1e6:>9,.1f} MB{said}"
    )


def main() -> int:
    parser = options("stuck", "What one client that stops reading does to the others.", 60.0, 1)
    parser.add_argument("--rate", type=float, default=RATE, help="messages a second to the two")
    parser.add_argument("--qos", type=int, action="append", choices=(0, 1), help="default: both")
    parser.add_argument("--reader", type=float, action="append", help="messages a second that a slow reader takes")
    given = parser.parse_args()
    peers, (core, cores) = chosen(given), pinned(given)
    environ.setdefault("TRUNKLINE_SYS__INTERVAL", "0.5")  # or its figures come late
    stuck_runs: list[tuple[str, Stuck]] = []
    outran_runs: list[tuple[str, Outran]] = []
    failures: list[str] = []
    for _ in range(given.rounds):
        for peer in peers:
            with attempt(failures, peer.name):
                for qos in given.qos or (0, 1):
                    with running(peer, core) as broker:
                        run = stuck(broker, qos=qos, rate=given.rate, seconds=given.seconds, settle=SETTLE, cores=cores)
                    stuck_runs.append((peer.name, run))
                    print(describe(peer.name, run), end="\n\n", flush=True)
                for rate in given.reader or READERS:
                    with running(peer, core) as broker:
                        seconds = min(5.0, given.seconds)
                        fill = min(2.0, given.seconds)
                        result = outrun(broker, rate, seconds=seconds, fill=fill, settle=SETTLE, cores=cores)
                    outran_runs.append((peer.name, result))
    print(
        "A publisher without a pace, and a subscriber that reads slowly: messages a second once the buffers are full.\n"
    )
    print(f"{'peer':<12}{'reader':>10}{'read/s':>11}{'sent/s':>12}{'sent in all':>14}{'lost of it':>14}{'memory':>12}")
    print(*(describe_outran(peer, run) for peer, run in outran_runs), *failures, sep="\n")
    results = {
        "stuck": [{"peer": peer, "ratio": run.ratio, **asdict(run)} for peer, run in stuck_runs],
        "outran": [{"peer": peer, **asdict(run)} for peer, run in outran_runs],
        "failures": failures,
    }
    write_results(given, results)
    return 1 if failures or any(run.pairs_lost for _, run in stuck_runs) else 0


if __name__ == "__main__":
    sys.exit(main())
