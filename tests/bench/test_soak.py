"""The soak in its short form, and what it counts as a fault."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it reads /proc")


def test_some_seconds_of_trouble(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    command = ["-m", "bench.soak", "--connections", "200", "--minutes", "0.1", "--json", str(results)]
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    outcome = json.loads(results.read_text())["results"]
    assert outcome["sent"] > 80
    assert (outcome["lost"], outcome["twice"]) == (0, 0)
    assert outcome["counted"]["connections"] > 200, "nobody came back"


def test_what_is_a_fault() -> None:
    from bench.soak import Outcome

    memory = (100_000_000, 100_000_000)
    assert Outcome(9, 0, 0, memory, (20, 20), {}).problems == []
    assert Outcome(9, 1, 0, memory, (20, 20), {}).problems == ["1 messages lost"]
    assert Outcome(9, 0, 2, memory, (20, 20), {}).problems == ["2 messages of QoS 2 came twice"]
    assert Outcome(9, 0, 0, (100_000_000, 200_000_000), (20, 20), {}).problems == ["memory grew from 100 to 200 MB"]
    assert Outcome(9, 0, 0, memory, (20, 22), {}).problems == ["2 files stay open"]
