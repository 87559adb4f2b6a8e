"""A plugin as it is generated works, and passes its own tests."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.management.plugin_packages import describe
from trunkline.management.cli import cli
from trunkline.management.plugin_template import write_plugin
from trunkline.plugins import PluginError

ROOT = Path(__file__).parents[2]


def names(folder: Path) -> set[str]:
    return {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}


def test_its_files_are_called_after_it(tmp_path: Path) -> None:
    write_plugin("door-bell", tmp_path / "made")
    assert names(tmp_path / "made") == {
        ".gitignore",
        "README.md",
        "pyproject.toml",
        "src/trunkline_door_bell/__init__.py",
        "src/trunkline_door_bell/py.typed",
        "tests/test_door_bell.py",
    }
    assert [entry.name for entry in tmp_path.iterdir()] == ["made"]
    for file in (tmp_path / "made").rglob("*.*"):
        assert file.is_dir() or "$" not in file.read_text().replace("$ python", "").replace("$ trunkline", ""), file


@pytest.mark.parametrize("name", ["Door", "door bell", "", "-", "bans", "d" * 41])
def test_names_that_will_not_do(tmp_path: Path, name: str) -> None:
    with pytest.raises(PluginError):
        write_plugin(name, tmp_path / "made")
    assert not list(tmp_path.iterdir())


def test_what_is_there_stays(tmp_path: Path) -> None:
    with pytest.raises(FileExistsError):
        write_plugin("door-bell", tmp_path)
    with pytest.raises(FileNotFoundError):
        write_plugin("door-bell", tmp_path / "no" / "made")
    assert not list(tmp_path.iterdir())


def test_it_passes_its_own_tests_and_can_be_enabled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installed by what pip would write for it: the entry points in a folder of the path."""
    name = "a-name-that-is-as-long-as-it-may-be-made"
    write_plugin(name, tmp_path / "made")
    project = tomllib.loads((tmp_path / "made" / "pyproject.toml").read_text())["project"]
    (tmp_path / "site").mkdir()
    points = project["entry-points"]["trunkline.plugins"]
    describe(tmp_path / "site" / "made-0.1.0.dist-info", project["name"], project["version"], points)
    path = [str(tmp_path / "made" / "src"), str(tmp_path / "site")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path / "made",
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*path, str(ROOT / "src")])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    for folder in path:
        monkeypatch.syspath_prepend(folder)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(cli, [*arguments, "--config", "broker.toml"])
        assert result.exit_code == 0, result.output
        return result.stdout

    run("plugins", "enable", name, "greeting=good morning", "--create")
    assert run("config", "check") == "Good: configuration broker.toml.\n"
    (line,) = [line for line in run("plugins", "list").splitlines() if line.startswith(f"{name} ")]
    does = "Greets clients, and reports how many there were."
    assert line.split(maxsplit=5)[1:] == [project["name"], "0.1.0", "yes", "worker", does]
