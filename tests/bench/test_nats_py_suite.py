import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUITE = """
import unittest

from tests.utils import *

import nats
from tests.utils import ClusteringTestCase


class Case(unittest.TestCase):
    @async_test
    async def test_that_passes(self):
        assert nats.connect
        await asyncio.sleep(0)

    @async_long_test
    async def test_that_fails(self):
        raise ValueError("so it is")


class WithServer(SingleJetStreamServerTestCase):
    def test_of_others(self):
        raise AssertionError


class OfCluster(ClusteringTestCase):
    def test_that_wants_several(self):
        raise AssertionError
"""


def test_it_tells_of_each_case(tmp_path: Path) -> None:
    if not any(importlib.metadata.distributions(name="nats-py")):
        pytest.skip("needs nats-py")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_some.py").write_text(SUITE)
    command = [sys.executable, "-m", "bench.nats_py_suite", str(tmp_path), "--file", "test_some.py", "-k", "that"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "PASSED tests/test_some.py::Case::test_that_passes" in done.stdout
    assert "FAILED tests/test_some.py::Case::test_that_fails - ValueError: so it is" in done.stdout
    assert "1 failed, 1 passed, 1 skipped, 1 deselected" in done.stdout
