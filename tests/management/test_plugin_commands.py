"""The commands, as they are typed. What they do is tested where it is done."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.management.plugin_packages import BELL, Install, installing
from trunkline.management import command_line
from trunkline.management.cli import cli


@pytest.fixture(autouse=True)
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    (tmp_path / "site").mkdir()
    monkeypatch.chdir(tmp_path)
    with installing(tmp_path / "site", monkeypatch) as install:
        install("bells", BELL, bell="Bell")
        yield install


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "broker.toml"


def run(*arguments: str | Path, config: Path | None = None) -> Result:
    environ = {"COLUMNS": "80"} if config is None else {"TRUNKLINE_CONFIG": str(config)}
    return CliRunner().invoke(cli, ["plugins", *map(str, arguments)], env=environ)


def test_list(file: Path) -> None:
    file.write_text("[plugins.bell]\n")
    result = run("list", "--config", file)
    assert result.exit_code == 0
    assert "bell             bells      1.2      yes      worker  Rings when a client connects.\n" in result.stdout
    assert "bells: here" not in result.stdout


def test_list_as_data_has_nothing_else_in_it(file: Path) -> None:
    file.write_text("[plugins.bell]\n")
    result = run("list", "--json", config=file)
    (row,) = [row for row in map(json.loads, result.stdout.splitlines()) if row["enabled"]]
    assert row == {
        "name": "bell",
        "package": "bells",
        "version": "1.2",
        "enabled": True,
        "scope": "worker",
        "does": "Rings when a client connects.",
        "problem": None,
    }
    assert "bells: here" in result.stderr


def test_what_plugins_print_is_not_the_configuration(file: Path) -> None:
    file.write_text("[plugins.bell]\n")
    result = CliRunner().invoke(cli, ["config", "show", "--format", "json", "--config", str(file)])
    assert json.loads(result.stdout)["config"]["plugins"]["bell"]["word"] == "ding"
    assert "bells: here" in result.stderr


def test_show() -> None:
    assert "  times = 1 times\n" in run("show", "bell").stdout
    page = json.loads(run("show", "bell", "--json").stdout)
    assert page["where"] == "bells:Bell"
    assert page["settings"][-1]["default"] == []
    assert page["hooks"][0] == {"point": "client.connected", "method": "ring", "priority": 5}
    result = run("show", "bel")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "trunkline: no plugin 'bel' is installed; did you mean bell?\n"


def test_a_hook_point_that_is_none(install: Install, file: Path) -> None:
    install("doors", BELL.replace('"client.connected"', '"client.conected"'), door="Bell")
    file.write_text("[plugins.door]\n")
    words = "doors.Bell.ring: no hook point is named 'client.conected'; did you mean client.connected"
    for command in ["plugins", "show", "door"], ["config", "check", "--config", str(file)]:
        result = CliRunner().invoke(cli, command)
        assert (result.exit_code, result.stdout) == (2, "")
        assert words in result.stderr


def test_enable_and_disable(file: Path) -> None:
    result = run("enable", "bell", "word=dong", "--config", file)
    assert (result.exit_code, result.stderr) == (1, f"trunkline: {file}: no such file; --create makes it\n")
    result = run("enable", "bell", "word=dong=dong", "--config", file, "--create")
    assert result.exit_code == 0
    assert result.stdout == f"{file} is new, and enables bell: `trunkline --config {file}` starts a broker with it.\n"
    assert file.read_text() == '[plugins.bell]\nenabled = true\nword = "dong=dong"\n'
    assert run("enable", "bell", config=file).stdout == f"{file} enables bell. Nothing was changed.\n"
    result = run("disable", "bell", config=file)
    assert (
        result.stdout == f"{file} no longer enables bell. A running broker applies this at its next reload or start, "
        "or at once with --now.\n"
    )
    assert "enabled = false" in file.read_text()
    assert run("disable", "bell", config=file).stdout == f"{file} does not enable bell. Nothing was changed.\n"
    result = run("disable", "bel", config=file)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "trunkline: no plugin 'bel' is installed; did you mean bell?\n"


def test_it_makes_the_file_that_a_broker_here_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command_line, "usual_files", lambda: [Path(command_line.FILE_NAME)])
    assert "name one with --config" in run("enable", "bell").stderr
    assert run("enable", "bell", "--create").stdout.startswith("trunkline.toml is new, and enables bell: ")
    assert Path("trunkline.toml").read_text() == "[plugins.bell]\nenabled = true\n"
    assert (
        run("enable", "bell", "times=2", "--create").stdout
        == "trunkline.toml enables bell. A running broker applies this at its next reload or start, or at once with "
        "--now.\n"
    )


def test_wrong_settings(file: Path) -> None:
    result = run("enable", "bell", "times=0", "--config", file, "--create")
    assert result.exit_code == 2
    assert "trunkline: argument times: plugins.bell.times: 0: accepted is a whole number, 1 to 9\n" in result.stderr
    assert not file.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["enable", "bell"], "name one with --config"),
        (["disable", "bell"], "name one with --config"),
        (["enable", "bell", "word", "--config", "x"], "'word' is not KEY=VALUE"),
    ],
)
def test_wrong_usage(arguments: list[str], words: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert words in result.stderr


def test_a_file_that_is_not_toml(file: Path) -> None:
    file.write_text("[plugins")
    for command in ["list"], ["enable", "bell"], ["disable", "bell"]:
        result = run(*command, config=file)
        assert result.exit_code == 2
        assert result.stderr.splitlines()[-1].startswith(f"trunkline: {file}: is not TOML: ")


def test_a_file_that_is_not_there(file: Path) -> None:
    """The words and the exit code of `config check`."""
    listed = run("list", config=file.with_name("none.toml"))
    assert listed.exit_code == 2
    assert listed.stderr == f"trunkline: {file.with_name('none.toml')}: cannot be read: No such file or directory\n"


def test_new(tmp_path: Path) -> None:
    result = run("new", "door")
    assert result.exit_code == 0
    assert "    python -m pip install --editable 'trunkline-door[test]'\n" in result.stdout
    assert (tmp_path / "trunkline-door" / "pyproject.toml").exists()
    assert run("new", "door", "--directory", "elsewhere").exit_code == 0
    assert (tmp_path / "elsewhere" / "README.md").exists()


@pytest.mark.parametrize(
    ("name", "directory", "code", "problem"),
    [
        (
            "Door",
            "a",
            2,
            "'Door': a plugin's name has lower-case letters, digits and single hyphens, and begins with a letter",
        ),
        ("bell", "a", 2, "a plugin 'bell' is installed already: bells:Bell of bells"),
        ("door", "site", 1, "site: exists already; nothing was written"),
        ("door", "no/a", 1, "no: is not a folder"),
    ],
)
def test_what_cannot_be_made(name: str, directory: str, code: int, problem: str) -> None:
    result = run("new", name, "--directory", directory)
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr == f"trunkline: {problem}\n"
