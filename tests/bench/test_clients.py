"""The table of the clients, from its results."""

import argparse
import json
import sys
from pathlib import Path

import pytest
from bench import command
from bench.clients import END, START, Run, paged, read, table

ROOT = Path(__file__).parents[2]


def run(workload: str, client: str, cpu_seconds: float, failure: str = "") -> Run:
    return Run("mosquitto", workload, 1, client, 100, 0 if failure else 100, 1.0, cpu_seconds, failure)


def test_the_ratio_is_that_to_the_fastest_other_client() -> None:
    runs = [
        run("publish", "trunkline", 0.1),
        run("publish", "paho-mqtt", 0.4),
        run("publish", "gmqtt", 0.2),
        run("publish-many", "trunkline", 0.01),
        run("publish-each", "trunkline", 0.1),
        run("publish-each", "paho-mqtt", 0.0, "it ended"),
    ]
    assert table(runs, "work")[2:] == [
        "| mosquitto | `publish` | 1 | 1,000 | 250 | 500 | 2.0 |",
        "| mosquitto | `publish-many` | 1 | 10,000 | - | - | 20.0 |",
        "| mosquitto | `publish-each` | 1 | 1,000 | - | - | - |",
    ]


def test_a_page_gets_the_table_between_its_marks() -> None:
    runs = [run("publish", "trunkline", 0.1)]
    once = paged(f"before\n{START}\nold\n{END}\nafter\n", runs)
    assert once.startswith(f"before\n{START}\n\n| broker |")
    assert once.endswith(f" |\n\n{END}\nafter\n")
    assert paged(once, runs) == once
    with pytest.raises(ValueError, match="no <!-- clients -->"):
        paged("a page", runs)


def test_the_page_shows_the_results_that_are_kept() -> None:
    page = (ROOT / "docs/benchmarks.md").read_text()
    assert paged(page, read(ROOT / "bench/results/2026-11-23-clients.json")) == page


def test_results_do_not_hold_folders_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "results.json"
    monkeypatch.setattr(sys, "argv", ["/opt/x/bench/clients.py", "--json", str(file), "--rounds", "3"])
    command.write_results(argparse.Namespace(json=file), [])
    assert json.loads(file.read_text())["command"] == ["clients.py", "--json", "results.json", "--rounds", "3"]
