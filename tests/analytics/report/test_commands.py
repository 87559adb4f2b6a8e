import json
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import pytest
from click.testing import CliRunner

from tests.analytics.report.made import bad_day
from tests.analytics.report.test_collecting import written
from trunkline.analytics.report.commands import report
from trunkline.analytics.report.findings import findings
from trunkline.analytics.report.summary import summary

#: All errors of a bad day.
_ALLOWED = [
    part
    for found in findings(bad_day())
    if found.severity == "error"
    for part in ("--allow", f"{found.name}={found.number}")
]


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


@pytest.fixture
def bad(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Spark would find."""
    for place in ("collecting", "page"):
        monkeypatch.setattr(f"trunkline.analytics.report.{place}.collect", lambda *_, **__: bad_day())
    monkeypatch.setattr("trunkline.analytics.report.commands.spark_session", lambda *_, **__: nullcontext(Mock()))


@pytest.mark.usefixtures("bad")
@pytest.mark.parametrize(
    ("arguments", "code", "failures"),
    [
        ((), 0, []),
        (("--fail-on", "error", "--allow", "missing=4"), 4, ["missing", "unwritten", "alarms", "dropped", "losers"]),
        (("--fail-on", "error", *_ALLOWED), 0, []),
        (
            ("--fail-on", "warning", *_ALLOWED),
            4,
            ["clocks", "flapping", "silent", "guesses", "filling", "near", "late", "moving"],
        ),
    ],
)
def test_a_program_gets_json_and_an_exit_code(
    tmp_path: Path, arguments: tuple[str, ...], code: int, failures: list[str]
) -> None:
    log = written(tmp_path / "log", 1, 2)
    result = CliRunner().invoke(report, ["--input", log, "--json", "-", *arguments])
    assert json.loads(result.stdout) == json.loads(summary(bad_day()))
    told = [line.split(": ")[1] for line in result.stderr.splitlines() if line.startswith(("error: ", "warning: "))]
    assert (result.exit_code, told) == (code, failures)


@pytest.mark.usefixtures("bad")
def test_page_and_json_of_one_run(tmp_path: Path) -> None:
    log = written(tmp_path / "log", 1, 2)
    html, document = tmp_path / "x.html", tmp_path / "x.json"
    code, _ = run("--input", log, "--html", str(html), "--json", str(document))
    assert code == 0
    assert document.read_text(encoding="utf-8") == summary(bad_day())
    assert html.read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "nothing to write: name a file with --html or --json"),
        (("--json", "-", "--allow", "dropped=1"), "--allow says what is no failure: it goes with --fail-on"),
        (("--json", "-", "--fail-on", "error", "--allow", "drops=1"), "there is no finding 'drops'; there are missing"),
        (("--json", "-", "--fail-on", "error", "--allow", "dropped=-1"), "dropped=-1: expected a whole number"),
        (("--json", "-", "--fail-on", "fatal"), "'fatal' is not one of 'error', 'warning', 'note'"),
        (("--json", "/no/such/folder/x"), "there is no folder /no/such/folder"),
    ],
)
def test_thresholds_that_mean_nothing_are_refused(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    code, said = run("--input", str(tmp_path), *arguments)
    assert code == 2
    assert words in said


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
