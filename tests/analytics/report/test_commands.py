import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.analytics.report.test_collecting import written
from trunkline.analytics.report.commands import report


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(report, arguments)
    return result.exit_code, result.output


def test_it_says_what_it_needs() -> None:
    code, said = run("--html", "x.html")
    assert code == 2
    assert "--input" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--since", "yesterday"), "'yesterday' is neither a time such as \"2026-03-01T12:00\""),
        (("--since", "2025-06-01T13:00", "--until", "2025-06-01T12:00"), "--since must be before --until"),
    ],
)
def test_wrong_times_are_told(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    code, said = run("--input", str(tmp_path), "--html", str(tmp_path / "x.html"), *arguments)
    assert code == 2
    assert words in said


def test_what_is_not_there_is_told_before_spark_starts(tmp_path: Path) -> None:
    log = written(tmp_path / "log", 1, 2)
    html = str(tmp_path / "x.html")
    code, said = run("--input", log, "--html", html, "--since", "2026-01-01")
    assert (code, said) == (
        1,
        (
            f"trunkline: {log}: no events were recorded then; there are some from 2025-06-01 12:00:01 to 2025-06-01 "
            "12:00:02 UTC\n"
        ),
    )
    code, said = run("--input", str(tmp_path / "nowhere"), "--html", html)
    assert code == 1
    assert "nowhere" in said
    assert "Traceback" not in said


def test_ctrl_c_ends_it_without_a_traceback(tmp_path: Path) -> None:
    log = written(tmp_path / "log", 1, 2)
    command = [sys.executable, "-m", "trunkline", "analytics", "report", "--input", log, "--html", f"{tmp_path}/x.html"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "audit" in line:  # it waits for Spark now
                process.send_signal(signal.SIGINT)
                break
        rest = process.stderr.read()
    assert process.returncode == 1
    assert rest.splitlines()[-1] == "trunkline: report: stopped before its end"
    assert "Traceback" not in rest
    assert not list(tmp_path.glob("*.html"))


def test_no_folder_is_made(tmp_path: Path) -> None:
    code, said = run("--input", str(tmp_path), "--html", str(tmp_path / "no" / "x.html"))
    assert code == 2
    assert f"there is no folder {tmp_path / 'no'}" in said
    assert not (tmp_path / "no").exists()
