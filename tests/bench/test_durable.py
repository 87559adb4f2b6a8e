"""The benchmark of durability runs, loses nothing, and judges its figures rightly."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bench.backlog import Backlog
from bench.durable import BACKLOGS, WORKLOADS
from bench.durable_peers import PEERS
from bench.durable_report import Series, bars, report
from bench.load import Outcome
from bench.wire import V5, V311, connect

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the load generator needs epoll")


def test_nothing_is_lost() -> None:
    words = ["-p", "trunkline-fsync", "--rounds", "1", "--seconds", "0.1", "--warmup", "0", "--scale", "2000"]
    names = [name for name in WORKLOADS if name.endswith("-8")] + [*BACKLOGS]
    words += ["--unpinned", *(word for name in names for word in ("-w", name))]
    command = [sys.executable, "-m", "bench.durable", *words]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("| `")]
    assert len(rows) == len(names) == 6, done.stdout
    assert "lost" not in "".join(rows)
    assert all(f"{name}, trunkline-fsync: " not in done.stderr for name in names), done.stderr


def series(workload: str, peer: str, rate: float, **settings: Any) -> Series:
    outcome = Outcome(rate, settings.get("lost", 0), 0, settings.get("cpu", 1.0), 0.5, 0)
    return Series(workload, peer, [outcome], syncs=[0.004], in_flight=800)


def verdicts(*found: Series) -> dict[str, str]:
    lines = bars({(each.workload, each.peer): each for each in found}, 1).splitlines()
    return {cells[1].strip(): cells[4].strip() for cells in (line.split("|") for line in lines)}


def test_bars() -> None:
    judged = verdicts(
        series("online-qos1-8", "trunkline-memory", 100_000),
        series("online-qos1-8", "trunkline-fsync", 60_000),
        series("offline-qos1-8", "trunkline-fsync", 140_000, cpu=0.5),
        series("offline-qos1-8", "mosquitto", 140_001),
        series("offline-qos1-64", "trunkline-fsync", 139_999, lost=1),
        Series("sessions", "trunkline-fsync", backlogs=[Backlog(1, 1, 1.0, 1.0, 0.0, start=3.1)]),
    )
    assert judged["online, 8 publishers, QoS 1: of the rate in memory"] == "reached"
    assert judged["offline, 8 publishers: share of the limit"] == "reached"
    assert judged["offline, 8 publishers: times mosquitto"] == "not reached"
    assert judged["offline, 8 publishers: µs of processor time a message"] == "not reached"
    assert judged["offline, 64 publishers: times mosquitto"] == "not measured"
    assert judged["start with 100,000 sessions and 1,000,000 messages, s"] == "not reached"
    assert judged["memory for each message of a backlog, B"] == "not measured"


def test_a_loss_has_no_rate() -> None:
    lossy = series("offline-qos1-8", "mosquitto", 1.0, lost=3)
    assert "lost 3" in report({(lossy.workload, lossy.peer): lossy})


def test_peers_say_what_they_keep() -> None:
    assert 'durability = "fsync"' in PEERS["trunkline-fsync"].config
    assert "persistence true" in PEERS["mosquitto-each"].config.format(port=1, listener="", folder="f").splitlines()
    assert connect("a", V311, stays=True)[9] == 0
    assert connect("a", V5, stays=True)[-8:-3] == b"\x11\xff\xff\xff\xff"
