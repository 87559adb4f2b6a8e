"""Where stores of these tests lie: in memory if the system has a folder there, for most of them test no disk.

The environment variable THOROUGH says how many times as much the tests at random do.
"""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")
THOROUGH = int(os.environ.get("THOROUGH", "1"))


@pytest.fixture
def quick_path() -> Iterator[Path]:
    """A folder whose files are synced at once."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def quick_module_path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        yield Path(folder)
