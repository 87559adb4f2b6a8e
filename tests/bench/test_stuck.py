"""A subscriber that stops reading, or reads slowly: its parts, and small runs. No time is judged."""

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from bench import wire
from bench.loop import Loop
from bench.paced import PAYLOAD, TIME, Account, Station
from bench.stuck import TOPIC, Sleeper, SlowReader

ROOT: Final = Path(__file__).parents[2]
MS: Final = 1_000_000

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the load generator needs epoll")


def frame(due: int) -> bytes:
    return wire.publish(TOPIC, TIME.pack(due) + bytes(PAYLOAD - 8), 0, wire.V311)


def station(*edges: int) -> Station:
    made = Station(("127.0.0.1", 0))
    made.edges += edges
    return made


def test_a_sleeper_reads_nothing_and_then_all() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        where = station(0, 1, 2, 1 << 61, 1 << 62)
        sleeper = Sleeper(where.loop, ours, TOPIC, 0, where)
        for account in where.accounts.values():
            account.begin()
        sleeper.sleep(2)
        theirs.sendall(frame(3) + frame(4))
        where.loop.turn(0.05)
        assert sleeper.messages == 0
        sleeper.wake(5)
        where.loop.turn(1)
        assert sleeper.messages == 2
        assert len(where.accounts["recovery"].late) == 0  # those were sent while it slept
        theirs.sendall(frame(6) + frame(7))
        where.loop.turn(1)
        assert sleeper.messages == 4
        assert len(where.accounts["recovery"].late) == 1
        assert not sleeper.gone


def test_a_sleeper_may_lose_its_connection() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        where = station(0, 1, 2, 3)
        sleeper = Sleeper(where.loop, ours, TOPIC, 0, where)
        for account in where.accounts.values():
            account.begin()
        sleeper.sleep(2)
        theirs.close()
        where.loop.turn(1)
        assert sleeper.gone
        assert len(where.accounts["closed"].late) == 1
        sleeper.sleep(2)
        sleeper.wake(3)
        where.loop.turn(0.05)


def test_a_slow_reader_keeps_its_pace_and_saves_up_nothing() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        loop, account = Loop(), Account([0, 1 << 62])
        account.begin()
        reader = SlowReader(loop, ours, 2000, account)
        reader.begin(0)
        theirs.sendall(frame(0) * 10)
        assert reader.step(1 * MS) == 2 * MS
        assert account.arrived == [2, 0]
        reader.step(4 * MS)
        assert account.arrived == [8, 0]
        reader.step(5 * MS)
        reader.step(50 * MS)  # there was nothing to read meanwhile
        theirs.sendall(frame(0) * 10)
        reader.step(51 * MS)
        assert account.arrived == [12, 0]
        reader.hurry()
        loop.turn(1)
        assert account.arrived == [20, 0]


def run(folder: Path, *words: str) -> dict[str, Any]:
    output = folder / "out.json"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "bench.stuck", "-p", "trunkline", "--unpinned"),
            *("--rounds", "1", "--seconds", "1.5", "--json", str(output), *words),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    results: dict[str, Any] = json.loads(output.read_text())["results"]
    assert results["failures"] == []
    return results


def test_whatever_is_missing_was_counted_as_dropped(tmp_path: Path) -> None:
    results = run(tmp_path, "--qos", "1", "--reader", "50000")
    [seen] = results["stuck"]
    assert seen["qos"] == 1
    assert seen["pairs_lost"] == seen["healthy_lost"] == 0
    assert seen["stuck_lost"] == seen["figures"]["dropped"]
    assert seen["closed"] is None
    assert seen["recovered"] is None or seen["recovered"] > 0  # a slow machine may not get to it in so short a time
    before, during, _ = seen["phases"]
    for kind in ("pairs", "healthy"):
        assert sum(phase[kind] for phase in seen["phases"]) > 0
        for phase in seen["phases"]:  # in one of them a slow machine may get nothing through
            spread = phase[f"{kind}_spread"]
            assert not spread["count"] or 0 < spread["p50"] <= spread["p99"] <= spread["max"]
    assert seen["ratio"] == pytest.approx(during["pairs"] / before["pairs"] if before["pairs"] else 0.0)
    assert seen["series"]
    assert seen["growth"] >= 0
    [outran] = results["outran"]
    assert outran["sent"] > 0
    assert outran["lost"] == outran["figures"]["dropped"]
    assert outran["read_rate"] <= 50_000 * 1.1
