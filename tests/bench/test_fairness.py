"""A flood beside quiet pairs: how it is made, and small runs. No time is judged."""

import contextlib
import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from bench import wire
from bench.fairness import Counter, Flood
from bench.loop import BrokenRun, Loop
from bench.paced import PAYLOAD, Account

ROOT: Final = Path(__file__).parents[2]
TOPIC: Final = "bench/flood/t"
FRAME: Final = wire.publish(TOPIC, bytes(PAYLOAD), 0, wire.V311)

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the load generator needs epoll")


def account() -> Account:
    made = Account([0, 1 << 62])
    made.begin()
    return made


def test_a_flood_fills_the_socket_and_ends_with_a_whole_message() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        loop, seen = Loop(), account()
        flood = Flood(loop, ours, TOPIC, seen, copies=3)
        loop.turn(0)
        assert flood.bytes == 0
        flood.start()
        data = bytearray()
        for turn in range(40):  # more than the buffer that it repeats
            loop.turn(0)
            if turn % 2:
                data += theirs.recv(100_001)
        flood.stop()
        while len(data) < flood.bytes or flood.bytes % len(FRAME):
            with contextlib.suppress(BlockingIOError):
                data += theirs.recv(100_001)
            loop.turn(0)
        assert flood.bytes > 1 << 20
        assert data == FRAME * (flood.bytes // len(FRAME))
        assert seen.sent == [3 * flood.bytes // len(FRAME), 0]
        theirs.sendall(b"\xe0\0")
        with pytest.raises(BrokenRun):
            loop.turn(1)


def test_a_subscriber_counts_whole_messages() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        loop, seen = Loop(), account()
        Counter(loop, ours, TOPIC, seen)
        for part in (FRAME[:-1], FRAME[-1:] + FRAME[:1], FRAME[1:] + FRAME * 3):
            theirs.sendall(part)
            loop.turn(1)
        assert seen.arrived == [5, 0]
        theirs.close()
        with pytest.raises(BrokenRun):
            loop.turn(1)


def test_quiet_pairs_lose_nothing_beside_a_flood(tmp_path: Path) -> None:
    output = tmp_path / "out.json"
    words = ["--unpinned", "--rounds", "1", "--seconds", "1", "--pairs", "20", "--json", str(output)]
    done = subprocess.run(
        [sys.executable, "-m", "bench.fairness", "-p", "trunkline", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    results = json.loads(output.read_text())["results"]
    assert results["failures"] == []
    seen = [outcome for row in results["rows"] for outcome in row["rounds"]]
    assert [outcome["noise"] for outcome in seen] == ["nothing", "one subscriber", "fifty subscribers"]
    for outcome in seen:
        assert outcome["lost"] == 0
        assert outcome["spread"]["count"] == pytest.approx(200, abs=20)
        assert 0 < outcome["spread"]["p50"] <= outcome["spread"]["p99"] <= outcome["spread"]["max"]
        assert (outcome["flood_sent"] > 0) == (outcome["flood_delivered"] > 0) == (outcome["noise"] != "nothing")
    assert seen[0]["flood_lost"] == seen[1]["flood_lost"] == 0
    assert all(name in said for name in ("one subscriber", "fifty subscribers", "p99 < 20 ms"))
