import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import trunkline
from trunkline.broker.config import Config, ConfigError
from trunkline.hooks.passwords import parse_passwords, verify_password
from trunkline.hooks.scram import derive_keys, parse_scram
from trunkline.management.cli import cli


class FakeRun:
    """Stands for the broker: reads the configuration once and ends."""

    def __init__(self, code: int = 0) -> None:
        self.code = code
        self.configs: list[Config] = []

    def __call__(self, read: Callable[[], Config]) -> int:
        self.configs.append(read())
        return self.code


@pytest.fixture
def run() -> FakeRun:
    return FakeRun()


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

    def run(read: Callable[[], Config]) -> int:
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


def test_check(run: FakeRun, file: Path) -> None:
    file.touch()
    result = invoke(run, "config", "check", "--config", file)
    assert (result.exit_code, result.output) == (0, "The configuration is good.\n")


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
    assert (result.exit_code, result.stderr) == (1, f"trunkline: {file}: 'ann' is not there\n")


def test_passwd_that_cannot_be(run: FakeRun, tmp_path: Path) -> None:
    assert invoke(run, "passwd", tmp_path / "users", "#", "--stdin", text="x\n").exit_code == 2
    assert invoke(run, "passwd", tmp_path / "users", "ann", "--stdin", text="\n").exit_code == 2
    result = invoke(run, "passwd", tmp_path / "no" / "users", "ann", "--stdin", text="x\n")
    assert (result.exit_code, result.stderr) == (
        1,
        f"trunkline: {tmp_path / 'no' / 'users'}: No such file or directory\n",
    )
