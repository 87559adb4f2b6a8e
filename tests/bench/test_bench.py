"""The load generator runs, and loses nothing, in each of its workloads. No figure is judged."""

import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest
from bench.peers import PEERS
from bench.plan import FORMS, SIZES
from bench.workloads import PAYLOAD, WORKLOADS

import trunkline

ROOT: Final = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the load generator needs epoll")


def bench(folder: Path, *words: str, within: float = 60) -> subprocess.CompletedProcess[str]:
    """In a process of its own: it forks its generators."""
    return subprocess.run(
        [sys.executable, "-m", "bench", "--unpinned", *words],
        cwd=ROOT,
        env={**os.environ, "MPLCONFIGDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=within,
        check=False,
    )


def run(folder: Path, peer: str, workloads: list[str], *words: str) -> list[dict[str, Any]]:
    """The short form: both versions, and the sizes that a workload has."""
    words = ("--form", "short", "--peer", peer, "--json", str(folder / "out.json"), *words)
    for workload in workloads:
        words += ("--workload", workload)
    done = bench(folder, *words, within=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return list(json.loads((folder / "out.json").read_text())["results"])


#: Those that are measured over plain TCP.
OVER_TCP: Final = [name for name, each in WORKLOADS.items() if each.over("tcp")]


#: The last of each kind.
KINDS: Final = list({WORKLOADS[name].kind: name for name in OVER_TCP}.values())
LARGEST: Final = max(SIZES)


@pytest.mark.parametrize(("peer", "version"), [("trunkline", "5"), ("sink", "3.1.1")])
def test_nothing_is_lost(tmp_path: Path, peer: str, version: str) -> None:
    """By the broker in any kind of workload, nor by the splice that shows the generator's limit: of that, no memory is
    measured."""
    workloads = KINDS if peer == "trunkline" else [name for name in KINDS if WORKLOADS[name].kind != "idle"]
    results = run(tmp_path, peer, workloads, "-V", version, "--payload", str(PAYLOAD), "--payload", str(LARGEST))
    small = {(result["workload"], result["version"]) for result in results if result["payload"] <= PAYLOAD}
    assert small == set(product(workloads, [version]))
    large = {(result["workload"], result["payload"]) for result in results if result["payload"] > PAYLOAD}
    sized = [name for name in workloads if WORKLOADS[name].sizes]
    assert large == set(product(sized, [LARGEST]))
    for result in results:
        [outcome] = result["rounds"]
        assert (result["ranked"], result["lost"], outcome["duplicates"]) == (True, 0, 0), result
        # twelve connections may fit what was resident before
        assert outcome["rate"] > 0 or result["workload"] == "idle", result


#: Each kind over some transport.
OVER: Final = {
    "tls": ["pairs-qos2", "connect-resumed"],
    "ws": ["sparse-qos1", "connect"],
    "wss": ["fanin-qos0", "pairs-qos2", "connect-resumed"],
}


@pytest.mark.parametrize(("transport", "workloads"), OVER.items())
def test_nothing_is_lost_over_other_transports(tmp_path: Path, transport: str, workloads: list[str]) -> None:
    pytest.importorskip("trustme")
    results = run(tmp_path, "trunkline", workloads, "-V", "5", "-t", transport, "--payload", "1000")
    assert {(result["workload"], result["transport"]) for result in results} == set(product(workloads, [transport]))
    for result in results:
        assert (result["ranked"], result["lost"]) == (True, 0), result


OTHERS: Final = [name for name in PEERS if name not in ("trunkline", "sink")]


@pytest.mark.parametrize("peer", OTHERS)
def test_other_brokers_lose_nothing(tmp_path: Path, peer: str) -> None:
    if reason := PEERS[peer].missing():
        pytest.skip(reason)
    results = run(tmp_path, peer, ["pairs-qos2"], "--payload", str(PAYLOAD))
    assert {result["version"] for result in results} == {"3.1.1", "5"}
    for result in results:
        cannot = PEERS[peer].cannot(WORKLOADS["pairs-qos2"], result["version"])
        assert result["unsupported"] == cannot
        assert result["ranked"] == (cannot is None)


LEAKY: Final = """\
import sys
from bench import sink

write, swallowed = sink.Splice.write, set()


def swallow(splice, data):
    bounds = sink.packet_at(data, 0)
    if splice.name[0] in "sg" and bounds and splice.fd not in swallowed:
        swallowed.add(splice.fd)
        data = data[bounds[1]:]
    write(splice, data)


sink.Splice.write = swallow
sink.Sink(int(sys.argv[1])).run()
"""


@pytest.mark.parametrize(("workload", "lost"), [("pair-qos0", 1), ("shared-qos0", 8)])
def test_a_broker_that_loses_messages_has_no_rank(tmp_path: Path, workload: str, lost: int) -> None:
    """A splice with a hole: it swallows one message a connection."""
    leaky = tmp_path / "leaky.py"
    leaky.write_text(LEAKY)
    output = tmp_path / "out.json"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "bench", "--peer", f"leaky={sys.executable} {leaky} {{port}}"),
            *("--unpinned", "--workload", workload, "--rounds", "1", "--seconds", "0.1", "--json", str(output)),
        ],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"lost {lost} messages" in done.stdout
    [result] = json.loads(output.read_text())["results"]
    assert not result["ranked"]
    assert result["lost"] == lost


def test_a_short_run_and_what_is_made_of_it(tmp_path: Path) -> None:
    """The table has no figures, but what is kept has: that is how a chart and a comparison are tried."""
    first, second, table = (str(tmp_path / name) for name in ("first.json", "second.json", "table.md"))
    options = ["--form", "short", "-w", "pairs-qos1", "-V", "5", "--payload", "64", "-p", "trunkline", "-p", "sink"]
    done = bench(tmp_path, *options, "--json", first)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        "pairs-qos1          5      64 B     trunkline           nothing lost",
        "pairs-qos1          5      64 B     sink                nothing lost",
    ]
    assert "[1/2] pairs-qos1, MQTT 5, 64 B, trunkline, round 1" in done.stderr
    assert "[2/2] pairs-qos1, MQTT 5, 64 B, sink, round 1; " in done.stderr
    done = bench(tmp_path, *options, "--json", second, "--compare", first, "--markdown", table)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "changes since " in done.stdout
    assert "pairs-qos1, MQTT 5, 64 B, sink " in done.stdout
    assert "| `pairs-qos1` | 5 | 64 B | deliveries/s | " in Path(table).read_text()
    kept = json.loads(Path(second).read_text())
    assert kept["peers"]["trunkline"] == trunkline.__version__
    assert kept["date"]
    assert kept["machine"]["cores"]


def test_what_cannot_be_read_is_said_before_anything_runs(tmp_path: Path) -> None:
    done = bench(tmp_path, "--compare", str(tmp_path / "nothing.json"))
    assert done.returncode == 1
    assert done.stderr.startswith("bench: ")
    assert "nothing.json" in done.stderr
    assert "[1/" not in done.stderr


def test_everything_is_listed(tmp_path: Path) -> None:
    done = bench(tmp_path, "--list")
    assert done.returncode == 0, done.stderr
    names = [text.split()[0] for text in done.stdout.splitlines() if text]
    assert names == [*WORKLOADS, *PEERS, *FORMS]
