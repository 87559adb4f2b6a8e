"""A test that takes too long leaves nothing to the tests after it."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="a thread watches the time there")

TESTS = """
import signal, trio
from pytest import mark
from tests import timeouts

@mark.timeout(0.1)
async def test_waiting(capsys):
    try:
        await trio.sleep_forever()
    finally:
        with capsys.disabled():
            print("ends in order")

@mark.timeout(0.1)
async def test_blocking(monkeypatch):
    monkeypatch.setattr(timeouts, "TO_END", 0.1)
    while True:
        signal.pause()

@mark.timeout(0.1)
def test_outside_of_trio():
    signal.pause()

async def test_after():
    await trio.sleep(0)
"""


def test_each_fails_alone(tmp_path: Path) -> None:
    file = tmp_path / "test_late.py"
    file.write_text(TESTS)
    options = ["-q", "-rA", "-p", "tests.timeouts", "-p", "no:cacheprovider", "-o", "trio_mode=true"]
    command = [sys.executable, "-m", "pytest", *options, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert set(re.findall(r"^(PASSED|FAILED) .*::test_(\w+)", done.stdout, re.MULTILINE)) == {
        ("FAILED", "waiting"),
        ("FAILED", "blocking"),
        ("FAILED", "outside_of_trio"),
        ("PASSED", "after"),
    }
    assert "ends in order" in done.stdout
    assert done.stdout.count("Failed: Timeout (>0.1s) from pytest-timeout.") >= 3
