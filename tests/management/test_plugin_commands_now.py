"""A broker that runs is told to start, stop and reload a plugin."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.management.plugin_packages import BELL, installing
from trunkline.management.cli import cli
from trunkline.management.control_client import ControlClient

ROOT = Path(__file__).parents[2]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The configuration of a broker that may run."""
    (tmp_path / "site").mkdir()
    file = tmp_path / "broker.toml"
    file.write_text('listeners = ["tcp://127.0.0.1:0"]\n[control]\npath = "socket"\n')
    with installing(tmp_path / "site", monkeypatch) as install:
        install("bells", BELL, bell="Bell")
        yield file


@pytest.fixture
def broker(file: Path) -> Iterator[ControlClient]:
    """The broker, as a process of its own, and a connection to it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "trunkline", "serve", "--config", str(file)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(file.parent / "site"), str(ROOT / "src")])},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        started = next((line for line in process.stderr if line.rstrip().endswith("serving")), None)
        assert started, process.stderr.read()
        with ControlClient(file.parent / "socket") as client:
            yield client
    finally:
        process.terminate()
        process.communicate(timeout=120)


def run(*arguments: str, config: Path) -> Result:
    return CliRunner().invoke(cli, ["plugins", *arguments], env={"TRUNKLINE_CONFIG": str(config)})


def status(broker: ControlClient) -> str:
    return next(row["status"] for row in broker.rows("plugins.list") if row["name"] == "bell")


def test_enable_disable_and_reload_at_once(file: Path, broker: ControlClient) -> None:
    result = run("enable", "bell", "--now", config=file)
    assert result.stdout == f"{file} enables bell.\nbell: the broker trunkline has started it.\n"
    assert status(broker) == "running"
    result = run("enable", "bell", "times=2", "--now", config=file)
    assert result.stdout.endswith("bell: the broker trunkline has started it anew.\n")
    assert run("reload", "bell", config=file).stdout == "bell: the broker trunkline has started it anew.\n"
    result = run("disable", "bell", "--now", config=file)
    assert result.stdout == f"{file} no longer enables bell.\nbell: the broker trunkline has stopped it.\n"
    assert status(broker) == "stopped"
    result = run("disable", "bell", "--now", config=file)
    assert result.stdout.endswith("Nothing was changed.\nbell: it does not run in the broker trunkline.\n")


def test_what_the_broker_refuses(file: Path, broker: ControlClient) -> None:
    result = run("reload", "bel", config=file)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("trunkline: no plugin 'bel' was started")


def test_no_broker(file: Path) -> None:
    result = run("enable", "bell", "--now", config=file)
    assert (result.exit_code, result.stdout) == (3, f"{file} enables bell.\n")
    assert f"trunkline: no broker: {file.parent / 'socket'}" in result.stderr
    file.write_text(f'[node]\nname = "{file.parent.name}"\n')
    result = run("reload", "bell", config=file)
    assert result.exit_code == 3
    assert f"trunkline: no broker '{file.parent.name}' runs here" in result.stderr
