"""What commands that start Spark share."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import click
import pytest
from click.testing import CliRunner

from trunkline.analytics import command_line
from trunkline.analytics.command_line import need_spark, period_options, spark_options, spark_session


@click.command()
@period_options
@spark_options
def command(**given: Any) -> None:
    command.given = given


def given(*arguments: str) -> Any:
    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return command.given


def test_times_and_durations_before_now() -> None:
    assert given() == {"since": None, "until": None, "master": None, "java": None, "conf": {}}
    noon = datetime(2025, 6, 1, 12, tzinfo=UTC)
    times = given("--since", "2025-06-01T12:00", "--until", "2025-06-01T14:00:00+02:00")
    assert (times["since"], times["until"]) == (noon, noon)
    before = given("--since", "2h")["since"]
    assert timedelta(hours=2) <= datetime.now(UTC) - before < timedelta(hours=3)


@pytest.mark.parametrize("wrong", ["yesterday", "99999999999d"])
def test_what_is_no_time_is_told(wrong: str) -> None:
    result = CliRunner().invoke(command, ["--until", wrong])
    assert result.exit_code == 2
    assert f"'{wrong}' is neither a time such as \"2026-03-01T12:00\", in UTC, nor a duration" in result.output


def test_what_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(command_line, "LIBRARIES", ("click", "not_there_at_all"))
    with pytest.raises(SystemExit, match="1"):
        need_spark()
    assert capsys.readouterr().err == "trunkline: not_there_at_all: not installed; pip install 'trunkline[spark]'\n"


def test_a_connect_server_is_told_from_a_master(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyspark")
    from trunkline.analytics.spark import SparkError

    asked: list[dict[str, Any]] = []

    def refuse(name: str, **given: Any) -> None:
        asked.append({"name": name, **given})
        raise SparkError("nobody answers")

    monkeypatch.setattr("trunkline.analytics.spark.session", refuse)
    for master in ("sc://host", "spark://host"):
        with pytest.raises(SystemExit, match="1"), spark_session("latency", master, None, {"a": "b"}):
            raise AssertionError("it started")
    same = {"name": "trunkline-latency", "java": None, "config": {"a": "b"}, "fast_start": False}
    assert asked == [
        {**same, "master": None, "remote": "sc://host"},
        {**same, "master": "spark://host", "remote": None},
    ]
    assert capsys.readouterr().err == "trunkline: nobody answers\n" * 2


KILLING = """
import os
from trunkline.analytics.command_line import spark_session
with spark_session("report", "local[1]", None, {}) as spark:
    os.kill(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid(), 9)
    spark.range(3).collect()
"""


def test_the_end_of_java_is_told() -> None:
    pytest.importorskip("pyspark")
    done = subprocess.run([sys.executable, "-c", KILLING], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("trunkline: report: Spark's Java ended in the middle")
    assert "Traceback" not in done.stderr
