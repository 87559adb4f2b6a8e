"""`trunkline spark`, as it is typed. What the commands do is tested where it is done."""

import json
from pathlib import Path
from typing import Never

import pytest
from click.testing import CliRunner, Result

from trunkline.analytics.spark import doctor, programs
from trunkline.analytics.spark.doctor import Finding, State
from trunkline.management.cli import cli


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["spark", *arguments])


@pytest.fixture
def findings(monkeypatch: pytest.MonkeyPatch) -> list[Finding]:
    """What the doctor finds."""
    found = [Finding("Python", State.GOOD, "3.11"), Finding("Address", State.NOTE, "is odd", "call the network people")]
    monkeypatch.setattr(doctor, "examine", lambda java: list(found))
    return found


def test_doctor(findings: list[Finding]) -> None:
    result = run("doctor")
    assert result.exit_code == 0
    expected = "good  Python: 3.11\nnote  Address: is odd\n      -> call the network people\nSpark can be used.\n"
    assert result.stdout == expected


def test_doctor_finds_something_wrong(findings: list[Finding], monkeypatch: pytest.MonkeyPatch) -> None:
    findings.append(Finding("Java", State.WRONG, "none", "get one"))
    monkeypatch.setattr(doctor, "attempt", lambda java: pytest.fail("it cannot work"))
    result = run("doctor", "--try")
    assert result.exit_code == 1
    assert result.stdout.endswith("WRONG Java: none\n      -> get one\nWrong: 1. Spark cannot be used like this.\n")


def test_doctor_for_programs(findings: list[Finding], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "attempt", lambda java: Finding("Trial", State.WRONG, f"no {java}"))
    result = run("doctor", "--try", "--json", "--java", "luck")
    assert result.exit_code == 1
    said = json.loads(result.stdout)
    assert said["good"] is False
    assert said["findings"][1] == {
        "topic": "Address",
        "state": "note",
        "found": "is odd",
        "mend": "call the network people",
    }
    assert said["findings"][-1]["found"] == "no luck"


@pytest.mark.parametrize("command", ["master", "worker spark://x:1", "connect"])
def test_programs_need_a_java(command: str, tmp_path: Path) -> None:
    result = run(*command.split(), "--java", str(tmp_path))
    assert result.exit_code == 1
    assert result.stderr == f"trunkline: {tmp_path}/bin/java (named) does not exist\n"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("master --port 1234 --host 10.1.2.3", ["--host", "10.1.2.3", "--port", "1234", "--webui-port", "8080"]),
        (
            "worker spark://x:1 --cores 2 --memory 1g --folder work",
            ["--cores", "2", "--memory", "1g", "--work-dir", "work", "spark://x:1"],
        ),
        ("connect --port 1235", ["spark.connect.grpc.binding.port=1235", "--conf", "spark.master=local[*]"]),
    ],
)
def test_programs(command: str, words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    became: list[list[str]] = []

    def become(arguments: list[str], environment: dict[str, str]) -> Never:
        became.append(arguments)
        raise SystemExit(0)

    monkeypatch.setattr(programs, "become", become)
    assert run(*command.split()).exit_code == 0
    [arguments] = became
    assert " ".join(words) in " ".join(arguments)


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("worker foo", "'foo' is not of the form spark://HOST:PORT"),
        ("worker spark://x", "'spark://x' is not of the form spark://HOST:PORT"),
        ("worker spark://a:1,b:2 --memory 8q", "'8q' is not a size such as 500m or 2g"),
        ("master --host a..b", "'a..b' is no address, nor a name that leads to one"),
    ],
)
def test_what_spark_would_answer_with_a_stack(command: str, problem: str) -> None:
    result = run(*command.split())
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].endswith(problem)


def test_a_worker_keeps_its_files_out_of_the_installed_packages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started: list[list[str]] = []

    def standalone(program: str, options: list[str], **_: object) -> None:
        started.append(options)

    monkeypatch.setattr(programs, "standalone", standalone)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("SPARK_WORKER_DIR", raising=False)
    run("worker", "spark://x:1")
    monkeypatch.setenv("SPARK_WORKER_DIR", "elsewhere")
    run("worker", "spark://x:1")
    first, second = (Path(options[options.index("--work-dir") + 1]) for options in started)
    assert first.is_dir()
    assert first.parent == tmp_path
    assert second == Path("elsewhere")


def test_a_server_of_no_master() -> None:
    for master in ("lcoal", "local-cluster[2,1,1024]"):
        result = run("connect", "--master", master)
        assert result.exit_code == 1
        assert f"trunkline: '{master}' " in result.stderr
