import io
import json
import logging
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from trunkline.config.node_settings import LogSettings
from trunkline.management import logs

MOMENT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"

logger = logging.getLogger("trunkline.test")


def test_text(written: Callable[[], str]) -> None:
    logs.configure(LogSettings())
    logger.info("%s connected", "somebody", extra={"client": "c1"})
    logger.warning("full")
    first, second = written().splitlines()
    assert re.fullmatch(MOMENT + r' INFO trunkline\.test: somebody connected client="c1"', first)
    assert re.fullmatch(MOMENT + r" WARNING trunkline\.test: full", second)


def test_json(written: Callable[[], str]) -> None:
    logs.configure(LogSettings(format="json"))
    logger.error("it is\nlate", extra={"client": "c\u20281"})
    (line,) = written().splitlines()
    entry = json.loads(line)
    assert re.fullmatch(MOMENT, entry.pop("time"))
    assert entry == {"level": "error", "logger": "trunkline.test", "message": "it is\nlate", "client": "c\u20281"}


def test_json_has_the_fields_of_a_record(written: Callable[[], str]) -> None:
    logs.configure(LogSettings(format="json"))
    fields = {"client": "c1", "peer": "10.0.0.1:5", "username": None, "count": 3, "path": Path("a")}
    logger.info("done", extra=fields)
    entry = json.loads(written())
    del entry["time"]
    assert entry == {
        "level": "info",
        "logger": "trunkline.test",
        "message": "done",
        "client": "c1",
        "peer": "10.0.0.1:5",
        "count": 3,
        "path": "a",
    }


def test_a_field_takes_no_place_of_the_records_own(written: Callable[[], str]) -> None:
    logs.configure(LogSettings(format="json"))
    logger.info("done", extra={"level": "none", "time": "never"})
    entry = json.loads(written())
    assert entry["level"] == "info"
    assert re.fullmatch(MOMENT, entry["time"])


def test_text_shows_who_it_is(written: Callable[[], str]) -> None:
    logs.configure(LogSettings())
    logger.info("refused", extra={"client": "c1", "peer": "10.0.0.1:5", "username": "a\nb"})
    assert written().endswith('refused client="c1" username="a\\nb"\n')


def test_level(written: Callable[[], str]) -> None:
    logs.configure(LogSettings(level="error"))
    logger.warning("not this")
    assert not written()


@pytest.mark.parametrize("form", ["text", "json"])
def test_nothing_that_a_client_chose_starts_a_record(written: Callable[[], str], form: str) -> None:
    logs.configure(LogSettings.model_validate({"format": form}))
    evil = "x\r\n2000-01-01T00:00:00.000Z INFO fake: all is well\x1b[2J\u202e\u2028\x85\ud800"
    try:
        raise ValueError(evil)
    except ValueError:
        logger.exception("refused %s", evil, extra={"client": evil})
    text = written()
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u202e\ud800]", text)
    starts = [line for line in text.split("\n") if line and not line.startswith("    ")]
    assert len(starts) == 1
    assert "fake: all is well" in starts[0]


def test_traceback(written: Callable[[], str]) -> None:
    logs.configure(LogSettings(format="json"))
    try:
        raise LookupError("gone")
    except LookupError:
        logger.exception("failed")
    assert json.loads(written())["exception"].endswith("LookupError: gone")


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_long_traceback_loses_its_middle(written: Callable[[], str], form: str) -> None:
    logs.configure(LogSettings.model_validate({"format": form}))
    error = ValueError("the first")
    for number in range(100):
        later = ValueError(str(number))
        later.__cause__ = error
        error = later
    logger.error("failed", exc_info=error)
    text = written()
    lines = text.splitlines() if form == "text" else json.loads(text)["exception"].split("\n")
    assert 60 <= len(lines) < 70
    assert any("the first" in line for line in lines)
    assert any("lines left out" in line for line in lines)
    assert lines[-1].endswith("ValueError: 99")


@pytest.mark.parametrize("form", ["text", "json"])
def test_what_a_client_may_make_long_is_cut(written: Callable[[], str], form: str) -> None:
    logs.configure(LogSettings.model_validate({"format": form}))
    logger.info("no right to publish to %r", "a" * 65_535, extra={"client": "b" * 65_535, "topic": "c" * 65_535})
    text = written()
    assert len(text) < 7000
    assert "no right to publish to 'aaa" in text
    assert "bbb" in text


def test_configuring_again_replaces(written: Callable[[], str], tmp_path: Path) -> None:
    logs.configure(LogSettings(file=tmp_path / "broker.log"))
    logs.configure(LogSettings())
    logger.info("once")
    assert written().count("once") == 1
    assert (tmp_path / "broker.log").read_text() == ""


def test_without_standard_error(written: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    logs.configure(LogSettings())
    logger.info("nowhere")
    logs.configure(LogSettings(file=Path("/dev/full")))
    logger.info("nowhere")


def test_warnings_are_logged(written: Callable[[], str]) -> None:
    logs.configure(LogSettings())
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(False)
        logging.captureWarnings(True)
        warnings.warn("old way", DeprecationWarning, stacklevel=1)
    text = written()
    assert " WARNING py.warnings: " in text
    assert "old way" in text


def test_the_level_until_the_next_configuration(written: Callable[[], str]) -> None:
    logs.configure(LogSettings(level="warning"))
    assert logs.level() == "warning"
    logs.set_level("debug")
    assert logs.level() == "debug"
    logger.debug("small")
    logging.getLogger("elsewhere").info("not ours")
    logs.set_level("error")
    logger.warning("large")
    logs.configure(LogSettings(level="warning"))
    assert logs.level() == "warning"
    assert [line.rpartition(" ")[2] for line in written().splitlines()] == ["small"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("variables", "terminal", "coloured"),
    [
        ({"TERM": "xterm"}, True, True),
        ({"TERM": "xterm", "NO_COLOR": ""}, True, True),  # empty is as if it were not set
        ({"TERM": "xterm", "NO_COLOR": "1"}, True, False),
        ({"TERM": "dumb"}, True, False),
        ({"TERM": "xterm"}, False, False),  # a file, or the journal
    ],
)
def test_colours_are_for_terminals(
    variables: dict[str, str], terminal: bool, coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    root, before = logging.getLogger(), logging.getLogger().handlers[:]
    level = root.level
    try:
        logs.configure(LogSettings())
        logging.getLogger("trunkline.test").warning("a\x1b[0m")
        logging.getLogger("trunkline.test").info("b")
    finally:
        root.handlers[:] = before
        root.setLevel(level)
        logging.captureWarnings(False)
    lines = stream.getvalue().splitlines()
    if coloured:
        assert [line.partition(" ")[2] for line in lines] == [
            "\x1b[33mWARNING \x1b[0m trunkline.test: a\\x1b[0m",
            "\x1b[32mINFO    \x1b[0m trunkline.test: b",
        ]
    else:
        assert [line.partition(" ")[2] for line in lines] == [
            "WARNING trunkline.test: a\\x1b[0m",
            "INFO trunkline.test: b",
        ]


@pytest.mark.parametrize("form", ["text", "json"])
def test_each_record_of_a_worker_says_which(
    written: Callable[[], str], monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setattr(logs, "_worker", None)
    logs.configure(LogSettings.model_validate({"format": form}))
    logger.info("one")
    logs.set_worker(0)
    logger.info("two")
    before, after = written().splitlines()
    if form == "json":
        assert "worker" not in json.loads(before)
        assert json.loads(after)["worker"] == 0
    else:
        assert before.endswith(" INFO trunkline.test: one")
        assert after.endswith(" INFO trunkline.test[0]: two")
