"""The command's options; where one isn't given, the form says what it is."""

import argparse
import shlex
import sys
from pathlib import Path

from bench.peers import PEERS, Peer, known
from bench.plan import DEFAULT, FORMS, VERSIONS, Form
from bench.transport import TRANSPORTS
from bench.workloads import WORKLOADS

EPILOG = """\
What is kept with --json can be shown later: python -m bench plot RESULTS.json CHART.svg,
python -m bench markdown RESULTS.json TABLE.md, and python -m bench compare BEFORE.json AFTER.json.
"""


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m bench",
        description="MQTT brokers side by side. Every round starts each peer afresh, one after the other, so that the "
        "machine's moods hit all.",
        epilog=EPILOG,
    )
    add = made.add_argument
    add("--form", choices=[*FORMS], default=DEFAULT, help="what is measured if nothing else is said; see --list")
    add("--workload", "-w", action="append", choices=[*WORKLOADS, "all"], help="default: as the form has it")
    add(
        "--peer",
        "-p",
        action="append",
        help=f"{', '.join(PEERS)}, 'all' of these that are there, or NAME=COMMAND with {{port}} in it",
    )
    add("--version", "-V", action="append", choices=list(VERSIONS), help="default: as the form has it")
    add(
        "--payload",
        action="append",
        type=size,
        metavar="BYTES",
        help="of the streaming workloads, the others have 64 bytes; all but the first with the first version alone",
    )
    add("--transport", "-t", action="append", choices=TRANSPORTS, help="default: as the form has it")
    add("--rounds", type=int)
    add("--seconds", type=float, help="measured time of a round")
    add("--warmup", type=float)
    add("--generators", type=int, help="generator processes; default: one a core that is left, 3 at most")
    add("--flows", type=int, help="at most so many pairs, subscribers or connections")
    add("--window", type=int, help="at most so many messages on their way")
    add("--topics", type=int, help="at most so many topics a publisher")
    add("--held", type=int, help="at most so many subscriptions or retained messages made beforehand")
    add("--unpinned", action="store_true", help="leave it to the system which core runs what")
    add("--config", type=Path, help="configuration file for trunkline instead of the benchmark's own")
    add("--node-modules", metavar="FOLDER", help="where npm put aedes; also BENCH_NODE_MODULES or NODE_PATH")
    add("--amqtt", metavar="COMMAND", help="the command of amqtt, in its own environment; also BENCH_AMQTT")
    add("--json", type=Path, metavar="FILE", help="keep the results; written after every group of runs")
    add("--compare", type=Path, metavar="FILE", help="show what changed since the results in this file")
    add("--markdown", type=Path, metavar="FILE", help="write tables for a document")
    add("--plot", type=Path, metavar="FILE", help="draw the ratios (svg, png, pdf); needs matplotlib")
    add("--profile", action="store_true", help="run trunkline under cProfile and show where time goes")
    add("--list", action="store_true", help="the workloads, peers and forms, and nothing else")
    return made


def size(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 256 * 1024:  # what is read at once must hold a whole message
        raise argparse.ArgumentTypeError("1 to 262144 bytes")
    return number


def parse(arguments: list[str]) -> tuple[argparse.Namespace, Form]:
    """All that is in the form is set in the options, too."""
    options = parser().parse_args(arguments)
    form = FORMS[options.form]
    for name in ("rounds", "seconds", "warmup", "flows", "window", "topics", "held"):
        if getattr(options, name) is None:
            setattr(options, name, getattr(form, name))
    options.version = options.version or list(form.versions)
    options.payload = options.payload or list(form.payloads)
    options.transport = options.transport or list(form.transports)
    names = options.workload or form.workloads
    options.workload = [name for name in WORKLOADS if name in names or "all" in names]
    return options, form


def chosen_peers(options: argparse.Namespace, form: Form) -> list[Peer]:
    """Those that can be started here; for the others it is said why not."""
    peers = []
    there = known(node_modules=options.node_modules, amqtt_program=options.amqtt)
    texts: list[str] = options.peer or (["trunkline"] if options.profile else list(form.peers))
    for text in [name for each in texts for name in (there if each == "all" else [each])]:
        name, given, command = text.partition("=")
        if given:
            peer = Peer(name, shlex.split(command))
        elif name in there:
            peer = there[name]
        else:
            sys.exit(f"unknown peer {name!r}: {', '.join(there)}, all, or NAME=COMMAND")
        if name == "trunkline" and options.config:
            peer = peer.with_config(options.config.resolve())
        if reason := peer.missing():
            print(f"without {name}: {reason}", file=sys.stderr)
            continue
        peers.append(peer)
    return peers
