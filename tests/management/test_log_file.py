import logging
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from trunkline.config.node_settings import LogSettings
from trunkline.management import logs

MOMENT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"

logger = logging.getLogger("trunkline.test")


def test_a_new_file_is_not_for_everybody(written: Callable[[], str], tmp_path: Path) -> None:
    if os.name == "nt":
        pytest.skip("files have other rights there")
    file = tmp_path / "broker.log"
    before = os.umask(0)
    try:
        logs.configure(LogSettings(file=file))
        logger.info("here")
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    file.rename(tmp_path / "rotated")
    logger.info("there")
    assert file.read_text().endswith("there\n")
    assert not written()


def test_file_is_appended_to(written: Callable[[], str], tmp_path: Path) -> None:
    file = tmp_path / "broker.log"
    file.write_text("before\n")
    logs.configure(LogSettings(file=file))
    logger.info("after")
    assert re.fullmatch(rf"before\n{MOMENT} INFO trunkline\.test: after\n", file.read_text())
    assert not written()


def test_a_file_on_a_full_disk_can_be_moved_away(written: Callable[[], str], tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.symlink_to("/dev/full")
    logs.configure(LogSettings(file=file))
    logger.info("first")
    file.unlink()
    logger.info("second")
    assert "INFO trunkline.test: second" in file.read_text()
    (told,) = written().splitlines()
    assert "the log cannot be written: [Errno 28]" in told


def test_a_file_on_a_full_disk_can_be_left(written: Callable[[], str]) -> None:
    logs.configure(LogSettings(file=Path("/dev/full")))
    logger.info("first")
    logs.configure(LogSettings())
    logger.info("second")
    assert "INFO trunkline.test: second" in written()


def test_a_full_disk_is_reported_now_and_then_however_often_the_log_is_opened_anew(written: Callable[[], str]) -> None:
    for _ in range(100):
        logs.configure(LogSettings(file=Path("/dev/full")))
        logger.info("reloaded")
    assert re.findall(r"\((\d+) so far\)", written()) == ["1", "2", "4", "8", "16", "32", "64"]
    logs.configure(LogSettings())
    logs.configure(LogSettings(file=Path("/dev/full")))
    logger.info("there again")
    assert "(1 so far)" in written()


def test_a_file_that_cannot_be_opened_anew_ends_nothing(written: Callable[[], str], tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    logs.configure(LogSettings(file=folder / "log"))
    folder.rename(tmp_path / "other")
    logger.info("first")
    assert "the log cannot be written: [Errno 2]" in written()
    folder.mkdir()
    logger.info("second")
    assert "INFO trunkline.test: second" in (folder / "log").read_text()


def test_a_pipe_that_nobody_reads_holds_nobody_up(written: Callable[[], str], tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    logs.configure(LogSettings())
    with pytest.raises(OSError, match="No such device"):
        logs.configure(LogSettings(file=pipe))
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    logs.configure(LogSettings(file=pipe))
    for _ in range(100):
        logger.info("x" * 1000)  # more than a pipe takes
    assert b"INFO trunkline.test: xxx" in os.read(reader, 10_000)
    os.close(reader)
    logger.info("gone")
    assert "the log cannot be written: [Errno 32]" in written()
