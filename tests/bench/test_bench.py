"""The load generator runs, and loses nothing, in each of its workloads. No figure is judged."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from bench.workloads import WORKLOADS

ROOT: Final = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the load generator needs epoll")


def run(folder: Path, peer: str, workload: str, *versions: str) -> list[dict[str, Any]]:
    """In a process of its own: it forks its generators."""
    output = folder / "out.json"
    options = {
        "--peer": peer,
        "--workload": workload,
        "--rounds": "1",
        "--seconds": "0.15",
        "--warmup": "0.05",
        "--generators": "2",
        "--flows": "12",
        "--window": "50",
        "--topics": "20",
        "--json": str(output),
    }
    words = [word for option in options.items() for word in option]
    for version in versions:
        words += ["--version", version]
    done = subprocess.run(
        [sys.executable, "-m", "bench", "--unpinned", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads(output.read_text())["results"]
    assert [result["version"] for result in results] == list(versions)
    return list(results)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_nothing_is_lost(tmp_path: Path, workload: str) -> None:
    for result in run(tmp_path, "trunkline", workload, "3.1.1", "5"):
        assert result["ranked"]
        assert result["lost"] == 0
        [outcome] = result["rounds"]
        assert outcome["duplicates"] == 0
        assert outcome["rate"] > 0 or workload == "idle"  # twelve connections may fit what was resident before


@pytest.mark.parametrize("workload", ["pairs-qos0", "pairs-qos2", "fanout-qos0", "sparse-qos1", "connect"])
def test_the_splice_that_shows_the_generators_limit(tmp_path: Path, workload: str) -> None:
    [result] = run(tmp_path, "sink", workload, "3.1.1")
    assert result["ranked"]
    assert result["rounds"][0]["rate"] > 0


def test_a_broker_that_loses_messages_has_no_rank(tmp_path: Path) -> None:
    """A splice with a hole: it swallows one message a connection."""
    leaky = tmp_path / "leaky.py"
    leaky.write_text(
        "import sys\n"
        "from bench import sink\n"
        "write, swallowed = sink.Splice.write, set()\n"
        "def swallow(splice, data):\n"
        "    frame = data[1] + 2\n"
        "    if len(data) >= frame and splice.fd not in swallowed:\n"
        "        swallowed.add(splice.fd)\n"
        "        data = data[frame:]\n"
        "    write(splice, data)\n"
        "sink.Splice.write = swallow\n"
        "sink.Sink(int(sys.argv[1])).run()\n"
    )
    output = tmp_path / "out.json"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "bench", "--peer", f"leaky={sys.executable} {leaky} {{port}}"),
            *("--unpinned", "--workload", "pair-qos0", "--rounds", "1", "--seconds", "0.1", "--json", str(output)),
        ],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "lost 1 messages" in done.stdout
    [result] = json.loads(output.read_text())["results"]
    assert not result["ranked"]
    assert result["lost"] == 1
