"""Brokers side by side: every round starts each peer afresh, one after the other, so that the machine's moods hit
all."""

import argparse
import pstats
import sys
import tempfile
from pathlib import Path

from bench import results
from bench.compare import compare
from bench.load import Outcome, RunFailed, generator_cores, measure
from bench.markdown import markdown
from bench.options import chosen_peers, parse
from bench.peers import PEERS, NotStarted, Peer, running
from bench.plan import FORMS, VERSIONS, Group, allow_files, groups, within
from bench.plot import NotDrawn, plot
from bench.progress import Progress
from bench.report import case_of, generator_margin, line, short_table, table
from bench.results import NotResults, Series
from bench.wire import Refused
from bench.workloads import WORKLOADS


class Bench:
    """All runs of one call."""

    def __init__(self, options: argparse.Namespace, peers: list[Peer], plan: list[Group]) -> None:
        self.options, self.peers, self.plan = options, peers, plan
        self.core, self.cores = (None, []) if options.unpinned else generator_cores()
        self.generators = options.generators or min(3, max(1, len(self.cores)))
        self.everything: list[Series] = []
        self.versions = {peer.name: peer.version() for peer in peers}
        able = sum(peer.cannot(group.workload, group.version) is None for group in plan for peer in peers)
        self.progress = Progress(able * options.rounds)

    def run(self) -> None:
        for group in self.plan:
            all_series = [group.empty(peer.name, peer.cannot(group.workload, group.version)) for peer in self.peers]
            self.everything += all_series
            self.run_group(group, all_series)
            if self.options.form != "short":
                for series in all_series:
                    self.progress.say(line(series, all_series[0]))
            if self.options.json:
                results.write(self.options.json, self.document())

    def run_group(self, group: Group, all_series: list[Series]) -> None:
        with tempfile.TemporaryDirectory(prefix="bench-profile-") as folder:
            profile = Path(folder) / "prof" if self.options.profile else None
            for number in range(self.options.rounds):
                for series, peer in zip(all_series, self.peers, strict=True):
                    if series.unsupported is None:
                        self.progress.begin(f"{case_of(all_series[0])}, {peer.name}, round {number + 1}")
                        self.run_once(group, series, peer, profile if peer.name == "trunkline" else None)
                        self.progress.end()
            if profile is not None and profile.exists():
                pstats.Stats(str(profile)).sort_stats("tottime").print_stats(35)

    def run_once(self, group: Group, series: Series, peer: Peer, profile: Path | None) -> None:
        options = self.options
        try:
            with running(peer, self.core, profile, transport=group.workload.transport) as broker:
                outcome: Outcome = measure(
                    group.workload,
                    broker,
                    VERSIONS[group.version],
                    cores=self.cores,
                    workers=self.generators,
                    warmup=options.warmup,
                    seconds=options.seconds,
                )
            series.outcomes.append(outcome)
        except (RunFailed, NotStarted, Refused, OSError) as error:
            series.failures.append(str(error))
            self.progress.say(f"{peer.name}: {error}")

    def document(self) -> dict[str, object]:
        options = {key: str(value) if isinstance(value, Path) else value for key, value in vars(self.options).items()}
        return results.document(options, self.versions, self.everything)


def run(arguments: list[str]) -> int:
    options, form = parse(arguments)
    if options.list:
        show_lists()
        return 0
    before = results.read(options.compare) if options.compare else None
    files = allow_files()
    workloads = []
    for name in options.workload:
        asked = WORKLOADS[name].scaled(
            flows=options.flows, window=options.window, topics=options.topics, held=options.held
        )
        workload = within(asked, files)
        if workload.flows < asked.flows:
            print(f"{name}: {workload.flows:,} connections, as {files:,} files may be open", file=sys.stderr)
        workloads.append(workload)
    bench = Bench(
        options,
        chosen_peers(options, form),
        list(groups(workloads, options.version, options.payload, options.transport)),
    )
    bench.run()
    kept = bench.document()
    print(short_table(bench.everything) if options.form == "short" else table(bench.everything))
    if options.form != "short" and (margin := generator_margin(results.rows(kept))):
        print(margin)
    if before is not None:
        print(f"\n{compare(before, kept)}")
    if options.markdown:
        options.markdown.write_text(markdown(kept))
    if options.plot:
        plot(kept, options.plot)
    return 0 if all(series.good for series in bench.everything) else 1


def show_lists() -> None:
    for workload in WORKLOADS.values():
        print(f"{workload.name:<18}{workload.text}{'; also with larger payloads' if workload.sizes else ''}")
    print()
    for peer in PEERS.values():
        print(f"{peer.name:<18}{peer.missing() or peer.version() or ''}")
    print()
    for name, form in FORMS.items():
        print(f"{name:<18}{form.text}")


def show(command: str, arguments: list[str]) -> int:
    """What can be done with results that were kept."""
    names = {"plot": ["results", "chart"], "markdown": ["results", "table"], "compare": ["before", "after"]}[command]
    parser = argparse.ArgumentParser(prog=f"python -m bench {command}")
    for name in names:
        parser.add_argument(name, type=Path, metavar=f"{name.upper()}{'' if name in ('chart', 'table') else '.json'}")
    first, second = vars(parser.parse_args(arguments)).values()
    kept = results.read(first)
    if command == "plot":
        plot(kept, second)
    elif command == "markdown":
        second.write_text(markdown(kept))
    else:
        print(compare(kept, results.read(second)))
    return 0


def main() -> int:
    arguments = sys.argv[1:]
    try:
        if arguments and arguments[0] in ("plot", "markdown", "compare"):
            return show(arguments[0], arguments[1:])
        return run(arguments)
    except (NotResults, NotDrawn) as error:
        sys.exit(f"bench: {error}")


if __name__ == "__main__":
    sys.exit(main())
