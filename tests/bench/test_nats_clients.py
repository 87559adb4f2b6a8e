"""The table of the clients of NATS, from its results; and one short run of each workload."""

import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from bench.nats_client_runs import NUMBERS
from bench.nats_clients import END, START, ClientRun, main, paged, read, table

ROOT = Path(__file__).parents[2]


def run(workload: str, client: str, cpu_seconds: float, failure: str = "") -> ClientRun:
    return ClientRun(workload, client, 1000, cpu_seconds, failure)


def test_the_ratio_is_that_to_the_cheapest_other_client() -> None:
    runs = [
        run("publish", "trunkline", 0.001),
        run("publish", "nats-py", 0.004),
        run("publish", "nats-py", 0.006),
        run("publish", "nats-py", 0.002),
        run("stream-pull", "trunkline", 0.005),
        run("stream-pull", "nats-py", 0.0, "it ended"),
    ]
    assert table(runs)[2:] == ["| `publish` | 1.0 | 4.0 | 4.0 |", "| `stream-pull` | 5.0 | - | - |"]


def test_a_page_gets_the_table_between_its_marks() -> None:
    runs = [run("publish", "trunkline", 0.001)]
    once = paged(f"before\n{START}\nold\n{END}\nafter\n", runs)
    assert once.startswith(f"before\n{START}\n\n| workload |")
    assert once.endswith(f" |\n\n{END}\nafter\n")
    assert paged(once, runs) == once
    with pytest.raises(ValueError, match="no <!-- nats clients -->"):
        paged("a page", runs)


def test_the_page_shows_the_results_that_are_kept() -> None:
    page = (ROOT / "docs/benchmarks.md").read_text()
    assert paged(page, read(ROOT / "bench/results/2026-11-28-nats-clients.json")) == page


def test_every_workload_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        version("nats-py")
    except PackageNotFoundError:
        pytest.skip("there is no nats-py")
    file = tmp_path / "results.json"
    monkeypatch.setattr(sys, "argv", ["nats_clients", "--rounds", "1", "--scale", "1000", "--json", str(file)])
    assert main() == 0, capsys.readouterr().out
    assert {(each.workload, each.client) for each in read(file)} == {
        (workload, client) for workload in NUMBERS for client in ("trunkline", "nats-py")
    }
