"""What a publish costs beside other sessions and subscriptions: what is held, the verdicts, and a small run."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from bench.growth import COUNTS, FILTERS, Step, logarithmic, match_cost, verdicts
from bench.workloads import WORKLOADS

from trunkline.mqtt.topics import matches, validate_filter

ROOT: Final = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the load generator needs epoll")


@pytest.mark.parametrize("kind", FILTERS)
def test_the_filters_beside_it_are_all_different_and_do_not_match(kind: str) -> None:
    filters = {FILTERS[kind].format(number) for number in range(0, 1_000_000, 97)}  # type: ignore[index]
    assert len(filters) == len(range(0, 1_000_000, 97))
    for workload in ("pair-qos0", "sparse-qos0"):
        topic = WORKLOADS[workload].topic(0)
        for each in filters:
            validate_filter(each)
            assert not matches(each, topic)


def steps(kind: str, costs: dict[int, float], each: float = 100.0) -> list[list[Step]]:
    step = Step(kind, 0, 1.0, 1.0, 50.0, 1.0, None, 0.0)  # type: ignore[arg-type]
    return [
        [replace(step, count=count, stream=cost, bytes_each=each if count else None)] * 3
        for count, cost in costs.items()
    ]


def test_sessions_must_cost_a_publish_nothing() -> None:
    assert "MISSED" not in verdicts(steps("sessions", {0: 2.0, 10_000: 2.1}))
    assert "streaming x 2.00 (at most x 1.15: MISSED)" in verdicts(steps("sessions", {0: 2.0, 10_000: 4.0}))


def test_subscriptions_may_cost_a_logarithm() -> None:
    assert logarithmic(1_000_000, 1000, 2.0)
    assert not logarithmic(1_000_000, 1000, 3.0)
    said = verdicts(steps("exact", {0: 2.0, 1000: 2.0, 1_000_000: 3.9}))
    assert "MISSED" not in said
    assert "100 bytes each (at most 500: met)" in said
    assert "logarithmic from 1,000: MISSED" in verdicts(steps("exact", {0: 2.0, 1000: 2.0, 1_000_000: 6.0}))
    assert "streaming x inf (logarithmic from 1,000: MISSED)" in verdicts(steps("exact", {0: 0.0, 1000: 0.0}))
    assert "501 bytes each (at most 500: MISSED)" in verdicts(steps("exact", {0: 2.0, 1000: 2.0}, 501))


@pytest.mark.parametrize("kind", FILTERS)
def test_a_match_is_timed_among_as_many_as_were_asked_for(kind: str) -> None:
    seen = match_cost(kind, 1000)  # type: ignore[arg-type]
    assert seen.count == 1000
    assert 0 < seen.known < seen.first


def test_each_step_of_each_kind_is_measured(tmp_path: Path) -> None:
    output = tmp_path / "out.json"
    words = ["--unpinned", "--rounds", "1", "--seconds", "0.15", "--most", "1000", "--json", str(output)]
    done = subprocess.run(
        [sys.executable, "-m", "bench.growth", "-p", "trunkline", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads(output.read_text())["results"]
    assert results["failures"] == []
    seen = [step for row in results["steps"] for step in row["rounds"]]
    assert [(step["kind"], step["count"]) for step in seen] == [(kind, count) for kind in COUNTS for count in (0, 1000)]
    for step in seen:
        assert step["stream_rate"] > 0
        assert step["round_trip_rate"] > 0
        assert step["stream"] >= 0
        assert (step["bytes_each"] is None) == (step["count"] == 0)
    assert seen[1]["bytes_each"] > 1000  # a session with its connection takes more than that anywhere
    expected = [(kind, count) for kind in ("exact", "wildcard") for count in (0, 1000)]
    assert [(match["kind"], match["count"]) for match in results["matches"]] == expected
