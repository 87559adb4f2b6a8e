"""The two commands of the README, short of what pip and npm do."""

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def dev(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """dev.py, working on an empty folder."""
    spec = importlib.util.spec_from_file_location("dev", ROOT / "dev.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "NODE", tmp_path / "node")
    (tmp_path / "pyproject.toml").write_text("1")
    (tmp_path / "src" / "trunkline" / "mqtt").mkdir(parents=True)
    return module


@pytest.fixture
def steps(dev: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What set-up would do, in words."""
    done: list[str] = []

    def step(command: list[str]) -> None:
        done.append(" ".join(command))
        if "venv" in command:
            python = Path(command[-1]) / "bin" / "python"
            python.parent.mkdir(parents=True, exist_ok=True)
            python.touch()

    monkeypatch.setattr(dev, "step", step)
    monkeypatch.setattr(dev.os, "name", "posix")
    return done


def test_set_up_happens_once(dev: Any, steps: list[str], tmp_path: Path) -> None:
    python = dev.prepare(tmp_path / "venv", "run")
    assert python == str(tmp_path / "venv" / "bin" / "python")
    make, install = steps
    assert make == f"{sys.executable} -m venv --clear {tmp_path / 'venv'}"
    assert install.endswith("install --editable .")
    steps.clear()
    dev.prepare(tmp_path / "venv", "run")
    assert not steps


def test_what_the_tests_need_is_enough_for_a_run(dev: Any, steps: list[str], tmp_path: Path) -> None:
    dev.prepare(tmp_path / "venv", "test")
    assert steps[-2].endswith("install --upgrade pip>=25.1")
    assert steps[-1].endswith("install --no-compile --editable . --group test")
    steps.clear()
    dev.prepare(tmp_path / "venv", "run")
    assert not steps


def test_the_quick_tests_need_no_spark(dev: Any, steps: list[str], tmp_path: Path) -> None:
    dev.prepare(tmp_path / "venv", "quick")
    assert steps[-1].endswith("install --no-compile --editable . --group test-quick")
    steps.clear()
    dev.prepare(tmp_path / "venv", "run")
    assert not steps
    dev.prepare(tmp_path / "venv", "test")
    assert steps[-1].endswith("install --no-compile --editable . --group test")
    steps.clear()
    dev.prepare(tmp_path / "venv", "quick")
    assert not steps
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    assert {"include-group": "test-quick"} in groups["test"]
    large = re.compile("spark|lake|moto|pyarrow|events")
    assert [name for name in groups["test-quick"] if large.search(name)] == []


def test_set_up_says_how_long_it_takes(dev: Any, steps: list[str], tmp_path: Path, capsys: Any) -> None:
    for command in ("run", "quick", "test"):
        dev.prepare(tmp_path / "venv", command)
        assert re.search(r"^Setting up .*, which takes .*minute", capsys.readouterr().err)


def test_a_changed_project_is_installed_again_in_the_same_environment(
    dev: Any, steps: list[str], tmp_path: Path
) -> None:
    dev.prepare(tmp_path / "venv", "run")
    steps.clear()
    (tmp_path / "pyproject.toml").write_text("2")
    dev.prepare(tmp_path / "venv", "run")
    (install,) = steps
    assert install.endswith("install --editable .")


def test_another_interpreter_gets_a_new_environment(dev: Any, steps: list[str], tmp_path: Path, capsys: Any) -> None:
    dev.prepare(tmp_path / "venv", "run")
    assert "another Python" not in capsys.readouterr().err
    steps.clear()
    (tmp_path / "venv" / "installed-for-run").write_text("3.10.0 something")
    dev.prepare(tmp_path / "venv", "run")
    assert "-m venv --clear" in steps[0]
    assert "another Python" in capsys.readouterr().err


def test_a_step_that_fails_is_named(dev: Any) -> None:
    with pytest.raises(SystemExit, match="This failed: .* -c raise SystemExit"):
        dev.step([sys.executable, "-c", "raise SystemExit(3)"])


def test_commands(dev: Any, steps: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started: list[list[str]] = []
    environs: list[dict[str, str]] = []

    def execute(command: list[str], environ: dict[str, str]) -> None:
        started.append(command)
        environs.append(environ)

    monkeypatch.setattr(dev, "execute", execute)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.chdir(tmp_path)
    venv = str(tmp_path / "other")
    python = str(tmp_path / "other" / "bin" / "python")
    monkeypatch.setattr(dev, "prepare_node", lambda: steps.append("node"))
    dev.main(["--venv", venv, "test", "-k", "x"])
    assert started == [[python, "-m", "pytest", "-n", "auto", "-k", "x"]]
    assert steps[-1] == "node"
    assert environs[0]["PYTHONPYCACHEPREFIX"].startswith(venv)
    assert "PYTHONDONTWRITEBYTECODE" not in environs[0]
    dev.main(["--venv", venv, "test", "-n", "0"])
    assert started[1:] == [[python, "-m", "pytest", "-n", "0"]]
    steps.clear()
    dev.main(["--venv", venv, "test", "--quick", "-x"])
    assert started[2:] == [
        [python, "-m", "pytest", "-n", "auto", *[f"--ignore=tests/{each}" for each in dev.SLOW], "-x"]
    ]
    assert "node" not in steps
    assert all((ROOT / "tests" / each).exists() for each in dev.SLOW)
    # the real one does not come back

    def leave(command: list[str]) -> None:
        raise SystemExit(" ".join(command))

    monkeypatch.setattr(dev, "execute", leave)
    with pytest.raises(SystemExit, match=re.escape("-m trunkline serve --listen tcp://127.0.0.1:0")):
        dev.main(["--venv", venv, "run", "--listen", "tcp://127.0.0.1:0"])


@pytest.mark.parametrize("argument", ["-h", "--help"])
def test_help(dev: Any, argument: str, capsys: Any) -> None:
    dev.main([argument])
    assert "python3 dev.py test --quick" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["walk"], ["--venv"], ["quick"]])
def test_usage(dev: Any, arguments: list[str]) -> None:
    with pytest.raises(SystemExit, match=r"python3 dev\.py run"):
        dev.main(arguments)


def test_a_clone_without_links_is_told_what_to_do(dev: Any, tmp_path: Path) -> None:
    (tmp_path / "src" / "trunkline" / "mqtt").rmdir()
    (tmp_path / "src" / "trunkline" / "mqtt").write_text("../../mqtt")
    with pytest.raises(SystemExit, match=r"core\.symlinks=true"):
        dev.main(["run"])


def test_mqttjs_is_installed_once(dev: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls: list[list[str]] = []

    def call(command: list[str], cwd: str) -> int:
        calls.append(command)
        (Path(cwd) / "node_modules").mkdir(exist_ok=True)
        return 0

    found = {"npm": "bin/npm"}
    monkeypatch.setattr(dev.shutil, "which", found.get)
    monkeypatch.setattr(dev.subprocess, "call", call)
    dev.prepare_node()
    assert not calls  # no package.json
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / "package.json").write_text("{}")
    dev.prepare_node()
    dev.prepare_node()
    assert [command[:2] for command in calls] == [["bin/npm", "install"]]
    found.clear()
    (tmp_path / "node" / "package.json").write_text("{ }")
    dev.prepare_node()
    assert len(calls) == 1


def test_an_old_python_is_told_so() -> None:
    code = "import sys; sys.version_info = (3, 10, 2); exec(compile(open('dev.py').read(), 'dev.py', 'exec'))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("Trunkline needs Python 3.11 or newer; this is 3.10 (")
