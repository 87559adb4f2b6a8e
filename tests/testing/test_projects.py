"""Two small projects in the style of real ones, with tests against the fixtures: each is run as it would be at home."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROJECTS = sorted(path.parent for path in Path(__file__).parent.glob("projects/*/pytest.ini"))


@pytest.mark.parametrize("project", PROJECTS, ids=lambda path: path.name)
def test_the_tests_of_a_project_pass(project: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--strict-markers", "--strict-config"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        command, cwd=project, capture_output=True, text=True, timeout=120, check=False, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"^(\d+) passed in", done.stdout, re.MULTILINE)
    assert found is not None, done.stdout
    assert int(found[1]) >= 10


def test_there_are_two_projects() -> None:
    assert [project.name for project in PROJECTS] == ["aiomqtt_worker", "paho_lights"]
