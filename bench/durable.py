"""What it costs that nothing is lost: `python -m bench.durable --help`.

Brokers that keep their sessions on one disk take turns, round by round. What the disk can do is measured between them:
one `fdatasync` of as many bytes as are in flight. The rate of a broker that answers after its disk can hardly be higher
than the messages in flight, each time.
"""

import argparse
import sys
from dataclasses import asdict
from typing import Final

from bench import backlog, command, wire
from bench.disk import sync_seconds
from bench.durable_peers import PEERS
from bench.durable_report import FANOUT, MEMORY, MESSAGES, SESSIONS, Series, report
from bench.load import RunFailed, measure
from bench.loop import BrokenRun
from bench.peers import NotStarted, Peer, running
from bench.plan import allow_files
from bench.workloads import Kind, Workload

KINDS: Final[tuple[Kind, ...]] = ("online", "offline")
WORKLOADS: Final = {
    workload.name: workload
    for workload in [
        *[
            Workload(
                f"{kind}-qos{qos}-{flows}",
                f"{flows} publisher{'s' * (flows > 1)} to as many sessions that are {kind}, QoS {qos}, window 100",
                kind,
                flows,
                qos=qos,
                window=100,
            )
            for qos in (1, 2)
            for kind in KINDS
            for flows in (1, 8, 64)
        ],
        *[
            Workload(
                f"connect{name}",
                f"connect, CONNACK, DISCONNECT; 150 at a time, {text}",
                "connect",
                150,
                window=1,
                stays=stays,
                will=will,
            )
            for name, text, stays, will in (
                ("", "sessions that end with them", False, False),
                ("-will", "the same, with a will", False, True),
                ("-stays", "each with a new session that outlives it", True, False),
            )
        ],
        Workload(
            f"offline-to-{FANOUT}",
            f"one publisher to {FANOUT:,} sessions of one filter that are offline, QoS 1, window 100",
            "offline",
            1,
            qos=1,
            window=100,
            members=FANOUT,
        ),
    ]
}
BACKLOGS: Final = {"backlog": 1, "sessions": SESSIONS}


class Bench:
    def __init__(self, given: argparse.Namespace, peers: list[Peer]) -> None:
        self.given, self.peers = given, peers
        self.core, self.cores = command.pinned(given)
        self.series: dict[tuple[str, str], Series] = {}

    def run(self) -> None:
        for name in self.given.workload:
            for number in range(self.given.rounds):
                for peer in self.peers:
                    series = self.series.setdefault((name, peer.name), Series(name, peer.name))
                    if not series.failure:
                        print(f"{name}, {peer.name}, round {number + 1}", file=sys.stderr, flush=True)
                        self.run_once(series, peer)
            command.write_results(self.given, [asdict(series) for series in self.series.values()])

    def run_once(self, series: Series, peer: Peer) -> None:
        name = series.workload
        try:
            if name in BACKLOGS:
                scale = self.given.scale
                found = backlog.run(
                    peer, self.core, max(1, BACKLOGS[name] // scale), MESSAGES // scale, keeps=peer.name != MEMORY
                )
                series.backlogs.append(found)
                series.failure = found.failure
            elif reason := peer.cannot(WORKLOADS[name], "3.1.1"):
                series.failure = f"no {reason}"
            else:
                self.run_stream(series, peer, WORKLOADS[name])
        except (BrokenRun, NotStarted, RunFailed, wire.Refused, OSError) as error:
            series.failure = str(error).strip().splitlines()[-1]
        if series.failure:
            print(f"{name}, {peer.name}: {series.failure}", file=sys.stderr, flush=True)

    def run_stream(self, series: Series, peer: Peer, load: Workload) -> None:
        series.in_flight = load.flows * load.window
        series.syncs.append(sync_seconds(series.in_flight * load.frame_size(wire.V311)))
        with running(peer, self.core) as broker:
            series.outcomes.append(
                measure(
                    load,
                    broker,
                    wire.V311,
                    cores=self.cores,
                    workers=1,
                    warmup=self.given.warmup,
                    seconds=self.given.seconds,
                )
            )


def main() -> int:
    parser = command.options(
        "durable", "What it costs that nothing is lost.", seconds=1.0, rounds=3, known=PEERS, default="all"
    )
    parser.add_argument("--workload", "-w", action="append", choices=[*WORKLOADS, *BACKLOGS], help="default: all")
    parser.add_argument("--warmup", type=float, default=0.3)
    parser.add_argument("--scale", type=int, default=1, help="a backlog of one in so many messages and sessions")
    given = parser.parse_args()
    given.workload = given.workload or [*WORKLOADS, *BACKLOGS]
    allow_files()
    bench = Bench(given, command.chosen(given, PEERS, [*PEERS]))
    bench.run()
    print(report(bench.series, given.scale))
    return 0


if __name__ == "__main__":
    sys.exit(main())
