"""A lock holds as long as its process, and no longer."""

import subprocess
import sys
from pathlib import Path

import pytest

from trunkline.events.file_lock import is_deleted, locked

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="nothing is locked there")

HOLD = """
import sys
from pathlib import Path
from trunkline.events.file_lock import locked

with locked(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "made" / "lock"
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(BlockingIOError):
            locked(path)
        other.kill()
    with locked(path), pytest.raises(BlockingIOError):
        locked(path)
    locked(path).close()


def test_a_lock_whose_file_is_another_by_now(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with locked(path) as lock:
        assert not is_deleted(lock)
        path.unlink()
        assert is_deleted(lock)
        with locked(path) as other:
            assert (is_deleted(lock), is_deleted(other)) == (True, False)
