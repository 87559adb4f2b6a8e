"""The soak of both protocols in its short form."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it reads /proc")
def test_some_seconds(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    command = ["-m", "bench.nats_soak", "--connections", "20", "--minutes", "0.1", "--interval", "0.5"]
    done = subprocess.run(
        [sys.executable, *command, "--json", str(results)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    outcome = json.loads(results.read_text())["results"]
    assert outcome["sent"] > 40
    assert outcome["lost"] == 0


def test_what_is_lost_of_a_pair() -> None:
    from bench.nats_soak import Pair

    pair = Pair(1)
    pair.acknowledged = {"mqtt": 3, "nats": 2}
    pair.got = {"mqtt": {1, 3, 4}, "nats": {1, 2, 3}}
    assert pair.lost == 1, "the second of MQTT's; what came and was not acknowledged is no loss"
