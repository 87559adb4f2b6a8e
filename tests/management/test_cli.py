import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

import trunkline
from trunkline.config.config import Config
from trunkline.config.errors import ConfigError
from trunkline.hooks.passwords import parse_passwords, verify_password
from trunkline.hooks.scram import derive_keys, parse_scram
from trunkline.management import command_line
from trunkline.management.cli import cli
from trunkline.management.command_line import LazyGroup


class FakeRun:
    """Stands for the broker: reads the configuration once and ends."""

    def __init__(self, code: int = 0) -> None:
        self.code = code
        self.configs: list[Config] = []
        self.sources: list[str] = []
        self.worker: int | None = None

    def __call__(self, read: Callable[[], Config], source: str, worker: int | None) -> int:
        self.configs.append(read())
        self.sources.append(source)
        self.worker = worker
        return self.code


@pytest.fixture
def run() -> FakeRun:
    return FakeRun()


@pytest.fixture(autouse=True)
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the system keeps configuration files: not where that of this machine does. The current folder is
    another."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    system = tmp_path / "system.toml"
    monkeypatch.setattr(command_line, "usual_files", lambda: [Path("trunkline.toml"), system])
    return system


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "broker.toml"


def invoke(
    run: FakeRun, *arguments: str | Path, environ: dict[str, str] | None = None, text: str | None = None
) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments], obj=run, env=environ, input=text)


def test_no_arguments_serve(run: FakeRun) -> None:
    assert invoke(run).exit_code == 0
    assert run.configs == [Config()]


def test_a_supervisor_says_where_it_is(run: FakeRun) -> None:
    """By an option that is for nobody else."""
    assert invoke(run, "serve").exit_code == 0
    assert run.worker is None
    assert invoke(run, "--listen", "tcp://127.0.0.1:0", "--worker", "7").exit_code == 0
    assert run.worker == 7
    assert "--worker" not in invoke(run, "serve", "--help").output


@pytest.mark.parametrize("command", [["serve"], []])
def test_flags(run: FakeRun, command: list[str]) -> None:
    flags = [
        "--listen",
        "tcp://127.0.0.1:0",
        "--listen",
        "tcp://[::1]:0",
        "--log-level",
        "debug",
        "--log-format",
        "json",
    ]
    assert invoke(run, *command, *flags).exit_code == 0
    (config,) = run.configs
    assert [listener.url for listener in config.listeners] == ["tcp://127.0.0.1:0", "tcp://[::1]:0"]
    assert (config.log.level, config.log.format) == ("debug", "json")


def test_listen_replaces_what_the_file_has(run: FakeRun, file: Path) -> None:
    file.write_text('listeners = ["tcp://127.0.0.1:1"]\n[mqtt]\nmax_qos = 1\n')
    assert invoke(run, "serve", "--config", file, "--listen", "tcp://127.0.0.1:2").exit_code == 0
    assert [listener.port for listener in run.configs[0].listeners] == [2]
    assert run.configs[0].mqtt.max_qos == 1


def test_file_named_by_a_variable(run: FakeRun, file: Path) -> None:
    file.write_text("[mqtt]\nmax_qos = 1\n")
    assert invoke(run, environ={"TRUNKLINE_CONFIG": str(file)}).exit_code == 0
    assert run.configs[0].mqtt.max_qos == 1


def test_the_exit_code_is_the_brokers() -> None:
    assert invoke(FakeRun(1), "serve").exit_code == 1


def test_reading_again_sees_the_new_file(file: Path) -> None:
    levels: list[str] = []

    def run(read: Callable[[], Config], source: str, worker: int | None) -> int:
        file.write_text('[log]\nlevel = "error"\n')
        levels.append(read().log.level)
        file.write_text('[log]\nlevel = "loud"\n')
        with pytest.raises(ConfigError):
            read()
        return 0

    assert CliRunner().invoke(cli, ["serve", "--config", str(file)], obj=run).exit_code == 0
    assert levels == ["error"]


@pytest.mark.parametrize("command", [["serve"], ["config", "check"], ["config", "show"]])
def test_a_bad_configuration_ends_with_2_and_all_problems(run: FakeRun, file: Path, command: list[str]) -> None:
    file.write_text("[mqtt]\nmax_qos = 3\n[sys]\ninterval = -1\n")
    result = invoke(run, *command, "--config", file)
    assert result.exit_code == 2
    assert [line.split(": ")[:3] for line in result.stderr.splitlines()] == [
        ["trunkline", str(file), "mqtt.max_qos"],
        ["trunkline", str(file), "sys.interval"],
    ]
    assert not result.stdout


@pytest.mark.parametrize("arguments", [["serv"], ["serve", "--lisen", "x"], ["config", "show", "--format", "xml"]])
def test_bad_usage_ends_with_2(run: FakeRun, arguments: list[str]) -> None:
    assert invoke(run, *arguments).exit_code == 2
    assert not run.configs


COMMANDS = [["serve"], [], ["config", "check"], ["config", "show"]]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_in_the_current_folder_is_read(run: FakeRun, command: list[str], system: Path) -> None:
    system.write_text("[mqtt]\nmax_qos = 1\n")
    Path("trunkline.toml").write_text("[mqtt]\nmax_qos = 3\n")
    result = invoke(run, *command)
    assert result.exit_code == 2
    assert result.stderr.startswith("trunkline: trunkline.toml: mqtt.max_qos: 3")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_systems_file_is_read_where_there_is_none_here(run: FakeRun, command: list[str], system: Path) -> None:
    system.write_text("[mqtt]\nmax_qos = 3\n")
    result = invoke(run, *command)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"trunkline: {system}: mqtt.max_qos: 3")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_usual_file_is_not_read_when_another_is_named_or_none_wanted(
    run: FakeRun, file: Path, command: list[str]
) -> None:
    Path("trunkline.toml").write_text("[mqtt]\nmax_qos = 3\n")
    file.touch()
    assert invoke(run, *command, "--config", file).exit_code == 0
    assert invoke(run, *command, environ={"TRUNKLINE_CONFIG": str(file)}).exit_code == 0
    assert invoke(run, *command, "--no-config").exit_code == 0
    assert invoke(run, *command, "--no-config", environ={"TRUNKLINE_CONFIG": "trunkline.toml"}).exit_code == 0
    result = invoke(run, *command, "--no-config", "--config", file)
    assert result.exit_code == 2
    assert "--config and --no-config exclude each other" in result.stderr


def test_everybody_says_what_was_read(run: FakeRun, file: Path, system: Path) -> None:
    neither = f"no configuration file (neither trunkline.toml nor {system}), defaults"
    invoke(run)
    invoke(run, "--no-config")
    assert invoke(run, "config", "check").output == f"Good: {neither}.\n"
    assert invoke(run, "config", "show").output.startswith(f"# {neither}\n")
    Path("trunkline.toml").touch()
    invoke(run)
    assert invoke(run, "config", "check").output == "Good: configuration trunkline.toml.\n"
    assert invoke(run, "config", "show").output.startswith("# configuration trunkline.toml\n")
    assert run.sources == [neither, "no configuration file, defaults", "configuration trunkline.toml"]


def test_a_broker_that_nobody_could_reach_is_refused(run: FakeRun, file: Path) -> None:
    file.write_text("listeners = []\n")
    for command in COMMANDS:
        result = invoke(run, *command, "--config", file)
        assert result.exit_code == 2
        assert result.stderr == f"trunkline: {file}: listeners: is empty: nobody could connect\n"


def test_check_looks_into_the_files_it_names(run: FakeRun, file: Path) -> None:
    users = file.with_name("users")
    users.write_text("ann\n")
    file.write_text('[auth]\npassword_file = "users"\n')
    result = invoke(run, "config", "check", "--config", file)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"trunkline: {users}:1: ")


def test_show(run: FakeRun, file: Path) -> None:
    file.write_text("[mqtt]\nmax_qos = 1\n")
    assert f"max_qos = 1  # {file}" in invoke(run, "config", "show", "--config", file).output
    shown = json.loads(invoke(run, "config", "show", "--config", file, "--format", "json").output)
    assert shown["config"]["mqtt"]["max_qos"] == 1


def test_version_and_help(run: FakeRun) -> None:
    assert invoke(run, "--version").output == f"trunkline, version {trunkline.__version__}\n"
    assert "Without a command it serves." in invoke(run, "--help").output


def test_help_says_of_a_command_what_it_says_of_itself() -> None:
    assert isinstance(cli, LazyGroup)
    context = click.Context(cli)
    for name in ("ctl", "journal", "plugins", "pub", "rr", "sub"):
        command = cli.get_command(context, name)
        assert command is not None
        assert cli.elsewhere[name][1] == command.get_short_help_str(120)


def test_passwd_asks_twice(run: FakeRun, tmp_path: Path) -> None:
    file = tmp_path / "users"
    result = invoke(run, "passwd", file, "ann", text="secret\nsecret\n")
    assert result.exit_code == 0
    assert "secret" not in result.output
    assert verify_password(parse_passwords(file.read_text())["ann"], b"secret")


def test_passwd_asks_again_when_the_two_differ(run: FakeRun, tmp_path: Path) -> None:
    file = tmp_path / "users"
    assert invoke(run, "passwd", file, "ann", text="one\ntwo\nthree\nthree\n").exit_code == 0
    assert verify_password(parse_passwords(file.read_text())["ann"], b"three")


@pytest.mark.parametrize(
    ("file", "name", "said"),
    [
        ("users", " ann", "' ann': a name must be"),
        ("no/users", "ann", "No such file"),
        ("keys", "ann", "it takes --scram"),
    ],
)
def test_passwd_asks_for_no_password_that_it_cannot_set(
    run: FakeRun, tmp_path: Path, file: str, name: str, said: str
) -> None:
    invoke(run, "passwd", tmp_path / "keys", "ann", "--scram", "--stdin", text="secret\n")
    result = invoke(run, "passwd", tmp_path / file, name, text="secret\nsecret\n")
    assert said in result.stderr
    assert "Password" not in result.output


@pytest.mark.skipif(sys.platform == "win32", reason="Windows asks at its console")
def test_passwd_without_a_terminal_asks_for_stdin(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "trunkline", "passwd", str(tmp_path / "users"), "ann"]
    done = subprocess.run(
        command,
        input="secret\nsecret\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        start_new_session=True,
    )
    said = "trunkline: there is no terminal to ask for the password: --stdin reads it\n"
    assert (done.returncode, done.stderr) == (2, said)
    assert not (tmp_path / "users").exists()


def test_passwd_from_a_pipe(run: FakeRun, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    result = invoke(run, "passwd", file, "ann", "--scram", "--stdin", text="secret word\r\nrest\n")
    assert (result.exit_code, result.output) == (0, "")
    keys = parse_scram(file.read_text())["ann"]
    assert keys == derive_keys("secret word", salt=keys.salt)


def test_passwd_deletes(run: FakeRun, tmp_path: Path) -> None:
    file = tmp_path / "users"
    invoke(run, "passwd", file, "ann", "--stdin", text="secret\n")
    assert invoke(run, "passwd", file, "ann", "--delete").exit_code == 0
    result = invoke(run, "passwd", file, "ann", "--delete")
    assert (result.exit_code, result.stderr) == (1, f"trunkline: {file}: 'ann' is not in the file\n")


def test_passwd_deletes_in_no_file(run: FakeRun, tmp_path: Path) -> None:
    result = invoke(run, "passwd", tmp_path / "users", "ann", "--delete")
    assert (result.exit_code, result.stderr) == (1, f"trunkline: {tmp_path / 'users'}: there is no such file\n")
    assert not (tmp_path / "users").exists()


def test_passwd_that_cannot_be(run: FakeRun, tmp_path: Path) -> None:
    assert invoke(run, "passwd", tmp_path / "users", "#", "--stdin", text="x\n").exit_code == 2
    assert invoke(run, "passwd", tmp_path / "users", "ann", "--stdin", text="\n").exit_code == 2
    result = invoke(run, "passwd", tmp_path / "no" / "users", "ann", "--stdin", text="x\n")
    assert (result.exit_code, result.stderr) == (
        1,
        f"trunkline: {tmp_path / 'no' / 'users'}: No such file or directory\n",
    )


def test_passwd_says_what_is_wrong_with_the_file_and_leaves_it(run: FakeRun, tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text("ann\n")
    result = invoke(run, "passwd", file, "bob", "--stdin", text="x\n")
    assert result.exit_code == 2
    assert [line.split(": ")[1] for line in result.stderr.splitlines()] == [f"{file}:1", f"{file} is unchanged"]
    assert file.read_text() == "ann\n"
