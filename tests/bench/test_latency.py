"""Latency at a given rate: when messages are due, what is counted, and small runs. No time is judged."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from bench import wire
from bench.loop import BrokenRun, Loop
from bench.paced import PAYLOAD, TIME, Account, Latencies, PacedPublisher, Spread, StampedSubscriber

ROOT: Final = Path(__file__).parents[2]
TOPIC: Final = "bench/000/t"
MS: Final = 1_000_000

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the load generator needs epoll")


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def account(*edges: int) -> Account:
    made = Account(list(edges))
    made.begin()
    return made


def frames(dues: list[int], qos: int = 0) -> bytes:
    """What a publisher of these slices of one message would have sent."""
    return b"".join(
        wire.publish(TOPIC, TIME.pack(due) + bytes(PAYLOAD - 8), qos, wire.V311, number)
        for number, due in enumerate(dues, 1)
    )


def read_all(sock: socket.socket) -> bytes:
    data = b""
    while True:
        try:
            data += sock.recv(1 << 20)
        except BlockingIOError:
            return data


def test_quantiles_are_those_of_the_sorted_list() -> None:
    seen = Latencies()
    for milliseconds in range(1, 101):
        seen.add(milliseconds * MS)
    seen.add(1000 * MS, 100)
    assert len(seen) == 200
    assert Spread.of(seen) == Spread(200, 100.0, 1000.0, 1000.0)
    assert seen.quantile(0.25) == 50.0
    assert Spread.of(Latencies()) == Spread(0, None, None, None)


def test_a_message_belongs_to_the_phase_in_which_it_was_due_and_its_arrival_to_a_later_one() -> None:
    seen = account(0, 10 * MS, 20 * MS)
    seen.sent[0] += 3
    seen.record(12 * MS, 9 * MS, 2)
    seen.record(12 * MS, 11 * MS)
    assert seen.arrived == [0, 3, 0]
    assert [len(latencies) for latencies in seen.latencies] == [2, 1]
    assert seen.latencies[0].quantile(1) == 3.0
    other = account(0, 10 * MS, 20 * MS)
    other.record(25 * MS, 11 * MS)
    seen.merge(other)
    assert seen.arrived == [0, 3, 1]
    assert seen.latencies[1].quantile(1) == 14.0
    assert seen.lost == -1


@pytest.mark.parametrize("qos", [0, 1])
def test_slices_leave_when_they_are_due(ends: tuple[socket.socket, socket.socket], qos: int) -> None:
    ours, theirs = ends
    seen = account(0, 4 * MS)
    publisher = PacedPublisher(Loop(), ours, TOPIC, qos, 2000, seen)
    publisher.begin(0, 4 * MS)
    assert publisher.send_due(0) == MS
    assert publisher.send_due(MS) == 2 * MS
    one, size = frames([0], qos), 2
    data = read_all(theirs)
    assert len(data) == 4 * len(one)
    assert data[: len(one)] == one
    stamps = [data[at + len(one) - PAYLOAD :][:8] for at in range(0, len(data), len(one))]
    assert [TIME.unpack(stamp)[0] for stamp in stamps] == [0, 0, MS, MS]
    if qos:
        at = len(one) - PAYLOAD - 2
        assert [data[at + number * len(one) :][:2] for number in range(4)] == [b"\0\1", b"\0\2", b"\0\3", b"\0\4"]
    publisher.send_due(100 * MS)  # late for the rest, and nothing after the end
    assert seen.sent == [4 * size, 0]
    assert seen.late.quantile(1) == 98.0


def test_who_is_held_up_sends_later_what_was_due_then(ends: tuple[socket.socket, socket.socket]) -> None:
    """Or the generator would hide what it should show."""
    ours, theirs = ends
    seen = account(0, 1000 * MS)
    publisher = PacedPublisher(Loop(), ours, TOPIC, 0, 100_000, seen)
    publisher.begin(0, 1000 * MS)
    for millisecond in range(1000):
        publisher.send_due(millisecond * MS)
    assert publisher.pending
    assert seen.sent[0] < 100_000
    data = b""
    while publisher.pending:
        data += read_all(theirs)
        publisher.ready(4)  # EPOLLOUT
    while more := read_all(theirs):
        data += more
    length = len(frames([0]))
    assert len(data) == seen.sent[0] * length
    slices = [TIME.unpack_from(data, at - PAYLOAD)[0] for at in range(length, len(data), 100 * length)]
    assert slices == [number * MS for number in range(len(slices))]


def test_a_window_holds_the_publisher_back_until_it_is_acknowledged(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    seen = account(0, 1000 * MS)
    publisher = PacedPublisher(Loop(), ours, TOPIC, 1, 1000, seen, window=3)
    publisher.begin(0, 1000 * MS)
    for millisecond in range(10):
        publisher.send_due(millisecond * MS)
    assert publisher.sent == 3
    theirs.send(b"\x40\2\0\1\x40\2\0\2\x40\2")
    publisher.ready(1)
    assert publisher.acknowledged == 2
    assert publisher.sent == 5
    theirs.send(b"\0\3")
    publisher.ready(1)
    assert publisher.sent == 6
    theirs.send(b"\xd0\0\0\0")
    with pytest.raises(BrokenRun):
        publisher.ready(1)


@pytest.mark.parametrize("qos", [0, 1])
def test_times_are_read_wherever_chunks_end(ends: tuple[socket.socket, socket.socket], qos: int) -> None:
    ours, theirs = ends
    seen = account(0, 1 << 62)
    subscriber = StampedSubscriber(Loop(), ours, TOPIC, qos, seen)
    data = frames([MS, 2 * MS, 2 * MS, 3 * MS], qos)
    for at in range(0, len(data), 61):
        theirs.send(data[at : at + 61])
        subscriber.ready(1)
    assert subscriber.messages == len(seen.latencies[0]) == seen.arrived[0] == 4
    assert subscriber.last == 3 * MS
    acknowledged = read_all(theirs)
    assert acknowledged == (b"\x40\2\0\1\x40\2\0\2\x40\2\0\3\x40\2\0\4" if qos else b"")


@pytest.mark.parametrize("later", [[MS], [3 * MS, 2 * MS], [3 * MS, 4 * MS, 3 * MS], [3 * MS, 2 * MS, 3 * MS]])
def test_a_change_of_order_is_found_out(ends: tuple[socket.socket, socket.socket], later: list[int]) -> None:
    ours, theirs = ends
    subscriber = StampedSubscriber(Loop(), ours, TOPIC, 0, account(0, 1 << 62))
    theirs.send(frames([2 * MS]))
    subscriber.ready(1)
    theirs.send(frames(later))
    with pytest.raises(BrokenRun, match="order"):
        subscriber.ready(1)


def run(folder: Path, *words: str, patience: float = 15.0) -> tuple[int, dict[str, Any], str]:
    """In a process of its own: it forks its generators."""
    command = f"import sys; from bench import latency, paced; paced.PATIENCE = {patience}; sys.exit(latency.main())"
    output = folder / "out.json"
    done = subprocess.run(
        [sys.executable, "-c", command, "--unpinned", "--rounds", "1", "--json", str(output), *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert output.exists(), done.stdout + done.stderr
    return done.returncode, json.loads(output.read_text())["results"], done.stdout + done.stderr


def test_nothing_is_lost_and_percentiles_are_in_order(tmp_path: Path) -> None:
    code, results, said = run(tmp_path, "-p", "trunkline", "--seconds", "0.4", "--maximum", "4000")
    assert code == 0, said
    assert results["failures"] == []
    loads = [f"QoS {qos}, {share} of its own" for qos in (0, 1) for share in ("10%", "50%", "90%")]
    assert [row["load"] for row in results["rows"]] == loads
    assert [row["judged"] for row in results["rows"]] == [False, True, False] * 2
    for row in results["rows"]:
        [seen] = row["rounds"]
        assert seen["lost"] == 0
        assert 0 < seen["spread"]["count"] < seen["sent"]
        assert seen["spread"]["count"] == pytest.approx(seen["wanted"] * 0.4, rel=0.1)
        assert 0 < seen["spread"]["p50"] <= seen["spread"]["p99"] <= seen["spread"]["max"]
    assert "p99 < 5 ms" in said


def test_the_maximum_is_looked_for(tmp_path: Path) -> None:
    words = ("-p", "trunkline", "-p", "sink", "--seconds", "0.2", "--qos", "1", "--fraction", "0.01")
    code, results, said = run(tmp_path, *words)
    assert code == 0, said
    assert [row["peer"] for row in results["rows"]] == ["trunkline", "sink", "sink", "sink"]
    assert all(row["rounds"][0]["wanted"] > 0 for row in results["rows"])
    loads = ["1% of its own", "1% of its own", "10% of trunkline's", "50% of trunkline's"]
    assert [row["load"] for row in results["rows"]] == [f"QoS 1, {load}" for load in loads]


def test_a_loss_is_no_success(tmp_path: Path) -> None:
    """A splice with a hole: it swallows one message of each connection."""
    leaky = tmp_path / "leaky.py"
    leaky.write_text(
        "import sys\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "from bench import sink\n"
        "write, swallowed = sink.Splice.write, set()\n"
        "def swallow(splice, data):\n"
        "    frame = data[1] + 2\n"
        "    if len(data) >= frame and splice not in swallowed:\n"
        "        swallowed.add(splice)\n"
        "        data = data[frame:]\n"
        "    write(splice, data)\n"
        "sink.Splice.write = swallow\n"
        "sink.Sink(int(sys.argv[1])).run()\n"
    )
    peer = f"leaky={sys.executable} {leaky} {{port}}"
    words = ("--seconds", "0.2", "--maximum", "2000", "--qos", "0", "--fraction", "0.5")
    code, results, said = run(tmp_path, "-p", peer, *words, patience=1.0)
    assert code == 1, said
    assert results["rows"][0]["rounds"][0]["lost"] == 8
    assert "lost 8" in said
