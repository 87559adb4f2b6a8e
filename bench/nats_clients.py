"""Clients of NATS beside each other at the same server: `python -m bench.nats_clients --help`.

Each run is a new process with one client. The clients take turns, round by round. The figure is the client's processor
time a message: what the server does beside it says nothing about the client.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from bench import command
from bench.nats_client_runs import CLIENTS, NUMBERS
from bench.peers import ROOT, free_port

OWN: Final = "trunkline"
TIME_LIMIT: Final = 120.0
#: Around the table in a page.
START: Final = "<!-- nats clients -->"
END: Final = "<!-- end of nats clients -->"


@dataclass(frozen=True, slots=True)
class ClientRun:
    workload: str
    client: str
    number: int
    cpu_seconds: float
    failure: str = ""

    @property
    def cost(self) -> float:
        """Microseconds of processor time a message."""
        return self.cpu_seconds / self.number * 1e6


def measure(given: argparse.Namespace) -> list[ClientRun]:
    program = command.nats_server(given)
    runs: list[ClientRun] = []
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        arguments = [program, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", folder, "-P", f"{folder}/pid"]
        server = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            for workload in given.workload or NUMBERS:
                number = max(1, NUMBERS[workload] // given.scale)
                for _ in range(given.rounds):
                    for client in CLIENTS:
                        runs.append(_run(client, workload, port, number))
                        print(runs[-1], file=sys.stderr, flush=True)
        finally:
            server.kill()
            server.wait()
    command.write_results(given, [asdict(run) for run in runs])
    return runs


def _run(client: str, workload: str, port: int, number: int) -> ClientRun:
    arguments = [sys.executable, "-m", "bench.nats_client_runs", client, workload, str(port), str(number)]
    until = time.monotonic() + TIME_LIMIT
    while True:
        found = subprocess.run(arguments, capture_output=True, text=True, cwd=ROOT, timeout=TIME_LIMIT, check=False)
        if not found.returncode:
            return ClientRun(workload, client, number, float(json.loads(found.stdout.splitlines()[-1])))
        reason = (found.stderr.strip().splitlines() or ["it ended"])[-1]
        if "refused" not in reason or time.monotonic() > until:  # otherwise the server begins
            return ClientRun(workload, client, number, 0.0, reason)


def table(runs: list[ClientRun]) -> list[str]:
    """A row a workload, a column a client, and how many times less this client takes than the cheapest other one."""
    clients = list(dict.fromkeys(run.client for run in runs))
    costs: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        if not run.failure:
            costs[run.workload][run.client].append(run.cost)
    lines = [f"| workload | {' | '.join(clients)} | ratio |", "|---|" + "---:|" * (len(clients) + 1)]
    for workload in dict.fromkeys(run.workload for run in runs):
        medians = {client: statistics.median(found) for client, found in costs[workload].items()}
        cheapest = min((value for client, value in medians.items() if client != OWN), default=0.0)
        own = medians.get(OWN, 0.0)
        cells = [f"{medians[client]:,.1f}" if client in medians else "-" for client in clients]
        lines.append(f"| `{workload}` | {' | '.join(cells)} | {f'{cheapest / own:.1f}' if own and cheapest else '-'} |")
    return lines


def read(file: Path) -> list[ClientRun]:
    return [ClientRun(**each) for each in json.loads(file.read_text())["results"]]


def paged(text: str, runs: list[ClientRun]) -> str:
    """A page with the table of these runs in place of the one between its marks."""
    return command.between(text, START, END, table(runs))


def main() -> int:
    text = "Clients of NATS side by side."
    return command.side_by_side("nats_clients", text, NUMBERS, measure, read, table, paged, lambda run: run.client)


if __name__ == "__main__":
    sys.exit(main())
