"""The soak in its short form, and what it counts as a fault."""

import json
import subprocess
import sys
from dataclasses import replace
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

    clean = Outcome(9, 0, 0, [100_000_000] * 100, (20, 20), (9, 9), (0, 0), {})
    assert clean.problems == []
    assert replace(clean, lost=1).problems == ["1 messages lost"]
    assert replace(clean, twice=2).problems == ["2 messages of QoS 2 came twice"]
    assert replace(clean, files=(20, 22)).problems == ["2 files stay open"]
    assert replace(clean, tasks=(9, 10)).problems == ["1 tasks go on"]
    assert replace(clean, actors=(3, 0)).problems == ["3 actors of connections are left"]
    assert replace(clean, actors=(0, 4)).problems == ["4 actors of sessions are left"]


def test_memory_may_grow_in_the_first_quarter_only() -> None:
    from bench.soak import Outcome

    grows_at_first = [50_000_000 + min(each, 20) * 2_500_000 for each in range(100)]
    assert Outcome(9, 0, 0, grows_at_first, (20, 20), (9, 9), (0, 0), {}).problems == []
    grows_on = [100_000_000 + each * 1_000_000 for each in range(100)]
    outcome = Outcome(9, 0, 0, grows_on, (20, 20), (9, 9), (0, 0), {})
    assert outcome.slope == pytest.approx(1_000_000)
    assert outcome.problems == ["memory grew from 125 by 75 MB"]
