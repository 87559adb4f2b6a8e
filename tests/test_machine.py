"""Tests see nothing of what the machine's user runs and has set."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from trunkline.management import control_place


def test_all_that_is_looked_at_is_the_tests_own(machine: Path) -> None:
    looked_at = [*control_place.folders(), Path(tempfile.gettempdir()), Path.home()]
    assert [path for path in looked_at if machine not in path.parents] == []


def test_processes_see_no_more(machine: Path) -> None:
    code = "from trunkline.management.control_place import folders, sockets; print(*folders(), sockets())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split()[:2] == [str(machine / "x" / "trunkline"), str(control_place.folders()[1])]


def test_variables_of_the_user_are_gone() -> None:
    assert [name for name in os.environ if name.startswith("TRUNKLINE_")] == []
