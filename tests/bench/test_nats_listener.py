"""The table of the NATS listener, from its results; and one short run of each workload."""

import shutil
import sys
import sysconfig
from pathlib import Path

import pytest
from bench import nats_listener
from bench.nats_listener import END, OWN, SERVER, START, WORKLOADS, ServerRun, main, paged, read, table

ROOT = Path(__file__).parents[2]


def run(workload: str, server: str, cpu_seconds: float, failure: str = "") -> ServerRun:
    return ServerRun(workload, server, 1000, cpu_seconds, 0.5, failure)


def test_the_table_has_medians() -> None:
    runs = [
        run("request", OWN, 0.001),
        run("request", OWN, 0.005),
        run("request", OWN, 0.002),
        run("request", SERVER, 0.004),
        run("publish-subscribe", OWN, 0.003),
        run("publish-subscribe", SERVER, 0.0, "it ended"),
    ]
    assert table(runs) == [
        "| workload | trunkline, µs | nats-server, µs | trunkline, a second | nats-server, a second |",
        "|---|---:|---:|---:|---:|",
        "| `request` | 2.0 | 4.0 | 2,000 | 2,000 |",
        "| `publish-subscribe` | 3.0 | - | 2,000 | - |",
    ]


def test_a_page_gets_the_table_between_its_marks() -> None:
    once = paged(f"before\n{START}\nold\n{END}\nafter\n", [run("request", OWN, 0.001)])
    assert once.startswith(f"before\n{START}\n\n| workload |")
    assert once.endswith(f" |\n\n{END}\nafter\n")


def test_the_page_shows_the_results_that_are_kept() -> None:
    page = (ROOT / "docs/benchmarks.md").read_text()
    assert paged(page, read(ROOT / "bench/results/2026-11-28-nats-listener.json")) == page


def test_every_workload_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if shutil.which("nats-server", path=sysconfig.get_path("scripts")) is None:
        pytest.skip("there is no nats-server")
    file = tmp_path / "results.json"
    monkeypatch.setattr(sys, "argv", ["nats_listener", "--rounds", "1", "--scale", "1000", "--json", str(file)])
    assert main() == 0, capsys.readouterr().out
    assert {(each.workload, each.server) for each in read(file)} == {
        (workload, server) for workload in WORKLOADS for server in (OWN, SERVER)
    }


def test_a_server_that_does_not_begin_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats_listener, "PATIENCE", 5.0)
    found = nats_listener.one_run("request", SERVER, "false", 1)
    assert found.failure == "nats-server does not begin: "
