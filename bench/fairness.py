"""The effect of a busy client on quiet ones: `python -m bench.fairness --help`.

A hundred pairs exchange a message every tenth of a second each. BackgroundTask them nothing else happens, or one
publisher sends as fast as its socket takes, to one subscriber or to fifty, which read all that they get.
"""

import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Final, Literal, get_args

from bench import wire
from bench.command import attempt, chosen, options, pinned, shown, write_results
from bench.loop import CHUNK, BrokenRun, Loop
from bench.paced import PAYLOAD, Account, Spread, Station, Usage, clock, conduct
from bench.peers import Running, running
from bench.transport import IN, OUT

Noise = Literal["nothing", "one subscriber", "fifty subscribers"]

PAIRS: Final = 100
INTERVAL: Final = 0.1  # s between the messages of a quiet pair
BAR: Final = 20.0  # ms, the 99th percentile
SUBSCRIBERS: Final[dict[Noise, int]] = {"nothing": 0, "one subscriber": 1, "fifty subscribers": 50}


class Flood:
    """Sends whenever the socket takes something: no window, no pace. Whole messages in the end."""

    def __init__(self, loop: Loop, sock: socket.socket, topic: str, account: Account, copies: int) -> None:
        frame = wire.publish(topic, bytes(PAYLOAD), 0, wire.V311)
        self.loop, self.sock, self.frame, self.account = loop, sock, len(frame), account
        self.copies = copies
        self.buffer = memoryview(frame * (CHUNK // len(frame)))
        self.bytes = 0
        self.running = False
        self.fd = loop.add(sock, self.ready)

    def start(self) -> None:
        self.running = True
        self.loop.epoll.modify(self.fd, IN | OUT)

    def stop(self) -> None:
        """Nothing more, but for the rest of the message that was begun."""
        self.running = False

    def ready(self, mask: int) -> None:
        if mask & ~OUT:
            raise BrokenRun(f"a publisher got {self.sock.recv(16).hex() or 'end of stream'}")
        offset = self.bytes % len(self.buffer)
        end = len(self.buffer) if self.running else offset + -self.bytes % self.frame
        before = -(-self.bytes // self.frame)
        self.bytes += self.sock.send(self.buffer[offset:end])
        after = -(-self.bytes // self.frame)
        self.account.sent[self.account.phase(clock())] += (after - before) * self.copies
        if not self.running and not self.bytes % self.frame:
            self.loop.epoll.modify(self.fd, IN)


class Counter:
    """A subscriber that counts bytes; all PUBLISH packets have one length."""

    def __init__(self, loop: Loop, sock: socket.socket, topic: str, account: Account) -> None:
        self.sock, self.account = sock, account
        self.frame = len(wire.publish(topic, bytes(PAYLOAD), 0, wire.V311))
        self.bytes = 0
        self.scratch = bytearray(CHUNK)
        loop.add(sock, self.ready)

    def ready(self, mask: int) -> None:
        size = self.sock.recv_into(self.scratch)
        if not size:
            raise BrokenRun("the broker closed a subscriber's connection")
        self.account.arrived[self.account.phase(clock())] += (
            self.bytes + size
        ) // self.frame - self.bytes // self.frame
        self.bytes += size


class Crowd(Station):
    """A flood and those who read it."""

    def __init__(self, address: tuple[str, int], subscribers: int) -> None:
        super().__init__(address)
        topic, account = "bench/flood/t", self.account("flood")
        for number in range(subscribers):
            Counter(self.loop, self.open(f"s-flood-{number}", [topic]), topic, account)
        self.flood = Flood(self.loop, self.open("p-flood"), topic, account, subscribers)

    def begin(self) -> None:
        super().begin()
        self.flood.start()

    def end(self) -> None:
        self.flood.stop()


@dataclass(frozen=True, slots=True)
class Fairness:
    """Rates in messages a second; `spread` in milliseconds, of the quiet pairs."""

    noise: Noise
    spread: Spread
    late: float | None  # of the generator itself, the 99th percentile
    lost: int  # of the quiet pairs
    flood_sent: float
    flood_delivered: float
    flood_lost: int
    broker_cpu: float
    memory_growth: int  # resident bytes, the most beyond what there was at the start


def fairness(
    broker: Running,
    noise: Noise,
    *,
    pairs: int = PAIRS,
    interval: float = INTERVAL,
    seconds: float = 5.0,
    warmup: float = 0.5,
    cores: Sequence[int] = (),
) -> Fairness:
    def quiet() -> Station:
        station = Station(broker.address)
        for number in range(pairs):
            station.pair(f"{number:03}", 0, 1 / interval, station.account("quiet"), number / pairs)
        return station

    subscribers = SUBSCRIBERS[noise]
    builds: list[Callable[[], Station]] = [quiet]
    if subscribers:
        builds.append(partial(Crowd, broker.address, subscribers))
    usage = Usage(broker)
    before = broker.memory()
    edges, accounts = conduct(builds, [warmup, seconds], cores, usage)
    account, flood = accounts["quiet"], accounts.get("flood")
    return Fairness(
        noise=noise,
        spread=Spread.of(account.latencies[1]),
        late=account.late.quantile(0.99),
        lost=account.lost,
        flood_sent=flood.sent[1] / subscribers / seconds if flood else 0.0,
        flood_delivered=flood.arrived[1] / seconds if flood else 0.0,
        flood_lost=flood.lost if flood else 0,
        broker_cpu=usage.cpu(edges[1], edges[2]),
        memory_growth=max((sample[2] for sample in usage.samples), default=before) - before,
    )


HEADER: Final = (
    f"{'peer':<12}{'beside it':<19}{'p50':>8}{'p99 (min … max)':>25}{'max':>9}{'gen.':>7}{'flood sent/s':>14}"
    f"{'delivered/s':>13}{'broker':>8}{'memory':>10}  p99 < {BAR:g} ms"
)


def line(peer: str, rounds: list[Fairness]) -> str:
    tails = [each.spread.p99 for each in rounds]
    notes = ["met" if all(tail is not None and tail < BAR for tail in tails) else "MISSED"]
    if any(each.lost for each in rounds):
        notes.append(f"lost {sum(each.lost for each in rounds):,} of the quiet")
    if any(each.flood_lost for each in rounds):
        notes.append(f"lost {sum(each.flood_lost for each in rounds):,} of the flood")
    return (
        f"{peer:<12}{rounds[0].noise:<19}{shown(each.spread.p50 for each in rounds):>8}{shown(tails, span=True):>25}"
        f"{max((each.spread.max or 0 for each in rounds), default=0):>9,.1f}{shown(each.late for each in rounds):>7}"
        f"{shown((each.flood_sent for each in rounds), 0):>14}{shown((each.flood_delivered for each in rounds), 0):>13}"
        f"{shown((100 * each.broker_cpu for each in rounds), 0):>7}%"
        f"{max(each.memory_growth for each in rounds) / 1e6:>7,.1f} MB  {', '.join(notes)}"
    )


def main() -> int:
    parser = options("fairness", "What quiet clients feel of a loud one.", 5.0, 3)
    parser.add_argument("--pairs", type=int, default=PAIRS, help="quiet pairs")
    parser.add_argument("--noise", action="append", choices=get_args(Noise), help="default: each")
    given = parser.parse_args()
    peers, (core, cores) = chosen(given), pinned(given)
    results: dict[tuple[str, Noise], list[Fairness]] = {}
    failures: list[str] = []
    for _ in range(given.rounds):
        for noise in given.noise or get_args(Noise):
            for peer in peers:
                with attempt(failures, f"{peer.name}, {noise}"), running(peer, core) as broker:
                    outcome = fairness(broker, noise, pairs=given.pairs, seconds=given.seconds, cores=cores)
                    results.setdefault((peer.name, noise), []).append(outcome)
    print(HEADER, "-" * len(HEADER), *(line(name, rounds) for (name, _), rounds in results.items()), sep="\n")
    print("\nMilliseconds, of the quiet pairs, medians of the rounds. gen.: how late the generator itself was (p99).")
    print("memory: the most that the broker grew by.", *failures, sep="\n")
    rows = [{"peer": name, "rounds": [asdict(each) for each in rounds]} for (name, _), rounds in results.items()]
    write_results(given, {"rows": rows, "failures": failures})
    return 1 if failures or any(each.lost for rounds in results.values() for each in rounds) else 0


if __name__ == "__main__":
    sys.exit(main())
