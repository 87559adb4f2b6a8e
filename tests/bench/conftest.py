"""Brokers under load are not measured by coverage: it takes half of their speed, and finds no line that no other test
runs."""

import os

import pytest


@pytest.fixture(autouse=True)
def uncovered_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("COVERAGE_PROCESS")]:
        monkeypatch.delenv(name)
