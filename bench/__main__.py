"""Brokers side by side: every round starts each peer afresh, one after the other, so that the machine's moods hit all."""

import argparse
import dataclasses
import pstats
import shlex
import sys
import tempfile
from pathlib import Path

from bench import wire
from bench.load import RunFailed, generator_cores, measure
from bench.peers import PEERS, NotStarted, Peer, running
from bench.report import Series, line, table, write_json
from bench.wire import Refused
from bench.workloads import WORKLOADS

VERSIONS = {"3.1.1": wire.V311, "5": wire.V5}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--workload", "-w", action="append", choices=[*WORKLOADS, "all"], help="default: all")
    parser.add_argument(
        "--peer",
        "-p",
        action="append",
        help=f"{', '.join(PEERS)}, or NAME=COMMAND with {{port}} in it; default: mosquitto and trunkline",
    )
    parser.add_argument("--version", "-V", action="append", choices=list(VERSIONS), help="default: 3.1.1")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="measured time of a round")
    parser.add_argument("--warmup", type=float, default=0.5)
    parser.add_argument(
        "--generators", type=int, help="generator processes; default: one a core that is left, 3 at most"
    )
    parser.add_argument("--flows", type=int, help="at most so many pairs, subscribers or connections")
    parser.add_argument("--window", type=int, help="at most so many messages on their way")
    parser.add_argument("--topics", type=int, help="at most so many topics a publisher")
    parser.add_argument("--unpinned", action="store_true", help="leave it to the system which core runs what")
    parser.add_argument("--config", type=Path, help="configuration file for trunkline")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--profile", action="store_true", help="run trunkline under cProfile and show where time goes")
    parser.add_argument("--list", action="store_true", help="the workloads, and nothing else")
    return parser.parse_args()


def chosen_peers(options: argparse.Namespace) -> list[Peer]:
    peers = []
    for text in options.peer or (["trunkline"] if options.profile else ["mosquitto", "trunkline"]):
        name, given, command = text.partition("=")
        if given:
            peer = Peer(name, shlex.split(command))
        elif name in PEERS:
            peer = PEERS[name]
        else:
            sys.exit(f"unknown peer {name!r}: {', '.join(PEERS)}, or NAME=COMMAND")
        if name == "trunkline" and options.config:
            peer = dataclasses.replace(peer, command=[*peer.command, "--config", str(options.config.resolve())])
        if reason := peer.missing():
            print(f"without {name}: {reason}", file=sys.stderr)
            continue
        peers.append(peer)
    return peers


def main() -> int:
    options = arguments()
    if options.list:
        for workload in WORKLOADS.values():
            print(f"{workload.name:<15}{workload.text}")
        return 0
    names = options.workload or ["all"]
    workloads = [
        workload.scaled(flows=options.flows, window=options.window, topics=options.topics)
        for workload in WORKLOADS.values()
        if "all" in names or workload.name in names
    ]
    versions = options.version or ["3.1.1"]
    peers = chosen_peers(options)
    broker_core, cores = (None, []) if options.unpinned else generator_cores()
    generators = options.generators or min(3, max(1, len(cores)))
    folder = Path(tempfile.mkdtemp(prefix="bench-profile-")) if options.profile else None

    everything: list[Series] = []
    for workload in workloads:
        for version in versions:
            group = [Series(workload, version, peer.name) for peer in peers]
            everything += group
            for round_number in range(options.rounds):
                for series, peer in zip(group, peers, strict=True):
                    profile = folder / f"{workload.name}-{version}-{round_number}.prof" if folder else None
                    try:
                        with running(peer, broker_core, profile if peer.name == "trunkline" else None) as broker:
                            outcome = measure(
                                workload,
                                broker,
                                VERSIONS[version],
                                cores=cores,
                                workers=generators,
                                warmup=options.warmup,
                                seconds=options.seconds,
                            )
                            series.outcomes.append(outcome)
                    except (RunFailed, NotStarted, Refused, OSError) as error:
                        series.failures.append(str(error))
                        print(f"{peer.name}: {error}", file=sys.stderr)
            for series in group:
                print(line(series, group[0]), file=sys.stderr, flush=True)
            if folder:
                for profile in sorted(folder.glob(f"{workload.name}-{version}-*.prof"))[-1:]:
                    pstats.Stats(str(profile)).sort_stats("tottime").print_stats(35)
    print(table(everything))
    if options.json:
        chosen = {key: str(value) if isinstance(value, Path) else value for key, value in vars(options).items()}
        write_json(options.json, chosen, everything)
    return 0 if all(series.ranked for series in everything) else 1


if __name__ == "__main__":
    sys.exit(main())
