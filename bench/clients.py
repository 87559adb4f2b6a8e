"""Clients beside each other at the same broker: `python -m bench.clients --help`.

Each run is a new process with one client. The clients take turns, round by round. The client has a core of its own; the
broker, and the generator of what it receives, have the other. Where the broker is the slower side, the rate says little
about the client: messages by second of the client's processor time say what the client costs.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from bench import command
from bench.client_runs import CLIENTS, PAYLOAD, READY, TOPIC
from bench.peers import ROOT, NotStarted, running

OWN: Final = "trunkline"
WORKLOADS: Final = ("publish", "publish-many", "publish-each", "receive")
#: Messages of a run: by workload for QoS 0, 1, 2.
NUMBERS: Final = {
    "publish": (50_000, 20_000, 10_000),
    "publish-many": (200_000, 50_000, 50_000),
    "publish-each": (10_000, 2_000, 1_000),
    "receive": (50_000, 20_000, 20_000),
}
#: gmqtt has no publish that waits for the server; the others have none for many messages.
CANNOT: Final = {"publish-many": ("paho-mqtt", "gmqtt", "aiomqtt"), "publish-each": ("gmqtt",)}
TIME_LIMIT: Final = 60.0
#: Around the table in a page.
START: Final = "<!-- clients -->"
END: Final = "<!-- end of clients -->"
#: Messages that the generator publishes at once.
GENERATED: Final = 500


@dataclass(frozen=True, slots=True)
class Run:
    broker: str
    workload: str
    qos: int
    client: str
    number: int
    count: int
    seconds: float
    cpu_seconds: float
    failure: str = ""

    @property
    def rate(self) -> float:
        return self.count / self.seconds

    @property
    def work(self) -> float:
        """Messages by second of processor time."""
        return self.count / self.cpu_seconds


class ClientFailed(Exception):
    """A client that did not do its work."""


def run_client(name: str, workload: str, qos: int, port: int, number: int, core: int | None) -> dict[str, float]:
    """
    Raises:
        ClientFailed: it did not get, or publish, all.
    """
    arguments = [sys.executable, "-m", "bench.client_runs", name, workload, str(qos), str(port), str(number)]
    if core is not None:
        arguments = ["taskset", "-c", str(core), *arguments]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        if workload == "receive":
            assert process.stdout is not None
            if process.stdout.readline().strip() == READY:
                generate(port, qos, number)
        output, errors = process.communicate(timeout=TIME_LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise ClientFailed(f"not done after {TIME_LIMIT:g} s") from None
    except BaseException:
        process.kill()
        process.communicate()
        raise
    if process.returncode:
        raise ClientFailed((errors.strip().splitlines() or ["it ended"])[-1])
    found: dict[str, float] = json.loads(output.strip().splitlines()[-1])
    if found["count"] != number:
        raise ClientFailed(f"{found['count']:,} of {number:,} messages")
    return found


def generate(port: int, qos: int, number: int) -> None:
    """Publish what the client receives."""
    import trio

    from trunkline.client import Client, ConnectionSettings

    async def main() -> None:
        async with Client(ConnectionSettings(host="127.0.0.1", port=port)) as client:
            for start in range(0, number, GENERATED):
                await client.publish_many(TOPIC, [PAYLOAD] * min(GENERATED, number - start), qos=qos)

    trio.run(main)


def measure(given: argparse.Namespace) -> list[Run]:
    core, cores = command.pinned(given)
    client_core = cores[0] if cores else None
    if core is not None:
        os.sched_setaffinity(0, {core})
    runs: list[Run] = []
    for peer in command.chosen(given):
        for workload in given.workload or WORKLOADS:
            for qos in given.qos or (0, 1, 2):
                number = max(1, NUMBERS[workload][qos] // given.scale)
                clients = [each for each in given.client or CLIENTS if each not in CANNOT.get(workload, ())]
                for _ in range(given.rounds):
                    for client in clients:
                        case = (peer.name, workload, qos, client, number)
                        print(*case, file=sys.stderr, flush=True)
                        try:
                            with running(peer, core) as broker:
                                found = run_client(client, workload, qos, broker.address[1], number, client_core)
                            runs.append(Run(*case, number, found["seconds"], found["cpu_seconds"]))
                        except (ClientFailed, NotStarted) as error:
                            print(f"failed: {error}", file=sys.stderr, flush=True)
                            runs.append(Run(*case, 0, 0.0, 0.0, str(error)))
                command.write_results(given, [asdict(run) for run in runs])
    return runs


def read(file: Path) -> list[Run]:
    return [Run(**each) for each in json.loads(file.read_text())["results"]]


def report(runs: list[Run]) -> str:
    parts: list[str] = []
    for title, measured in (("Messages a second", "rate"), ("Messages by second of the client's processor", "work")):
        parts += [f"{title}:", "", *table(runs, measured), ""]
    failed = dict.fromkeys(
        f"- {run.client}, `{run.workload}`, QoS {run.qos}, {run.broker}: {run.failure}" for run in runs if run.failure
    )
    return "\n".join([*parts, *failed]).rstrip() + "\n"


def table(runs: list[Run], measured: str) -> list[str]:
    """A row a workload, a column a client, and the ratio of this client to the fastest other one. For `publish-many`
    the figure of the others is that of `publish`."""
    clients = list(dict.fromkeys(run.client for run in runs))
    cases: dict[tuple[str, str, int], dict[str, list[Run]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        cases[run.broker, run.workload, run.qos][run.client].append(run)
    head = f"| broker | workload | QoS | {' | '.join(clients)} | ratio |"
    lines = [head, "|---|---|---|" + "---:|" * (len(clients) + 1)]
    for (broker, workload, qos), by_client in list(cases.items()):
        others = {**cases[broker, "publish", qos], **by_client} if workload == "publish-many" else by_client
        medians = {client: median(found, measured) for client, found in others.items()}
        fastest = max((value for client, value in medians.items() if client != OWN), default=0.0)
        own = medians.get(OWN, 0.0)
        ratio = f"{own / fastest:.1f}" if own and fastest else "-"
        cells = [f"{medians[each]:,.0f}" if by_client.get(each) and medians[each] else "-" for each in clients]
        lines.append(f"| {broker} | `{workload}` | {qos} | {' | '.join(cells)} | {ratio} |")
    return lines


def paged(text: str, runs: list[Run]) -> str:
    """A page with the table of these runs, by processor time, in place of the one between its marks."""
    return command.between(text, START, END, table(runs, "work"))


def median(runs: list[Run], measured: str) -> float:
    values = [getattr(run, measured) for run in runs if not run.failure]
    return statistics.median(values) if values else 0.0


def main() -> int:
    parser = command.options("clients", "Clients beside each other at the same broker.", seconds=0.0, rounds=3)
    parser.add_argument("--workload", "-w", action="append", choices=WORKLOADS, help="default: all")
    parser.add_argument("--qos", "-q", action="append", type=int, choices=(0, 1, 2), help="default: all")
    parser.add_argument("--client", "-c", action="append", choices=list(CLIENTS), help="default: all")
    parser.add_argument("--scale", type=int, default=1, help="one in so many messages")
    parser.add_argument("--read", type=Path, metavar="FILE", help="show these results, and measure nothing")
    parser.add_argument("--page", type=Path, help="put the table by processor time into this page, between its marks")
    given = parser.parse_args()
    runs = read(given.read) if given.read else measure(given)
    if given.page:
        given.page.write_text(paged(given.page.read_text(), runs))
    print(report(runs), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
