"""Tests see nothing of what the machine's user runs and has set."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from trunkline.config.node_settings import NodeSettings, StoreSettings
from trunkline.config.store_place import store_path
from trunkline.management import control_place


def test_all_that_is_looked_at_is_the_tests_own(machine: Path) -> None:
    looked_at = [*control_place.folders(), Path(tempfile.gettempdir()), Path.home()]
    assert [path for path in looked_at if machine not in path.parents] == []


def test_processes_see_no_more(machine: Path) -> None:
    code = "from trunkline.management.control_place import folders, sockets; print(*folders(), sockets())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split()[:2] == [str(machine / "x" / "trunkline"), str(control_place.folders()[1])]


_STORE = (
    "from trunkline.config.config import Config; from trunkline.config.store_place import store_path; "
    "config = Config(); print(store_path(config.store, config.node))"
)


def default_store() -> Path:
    """Of a broker in a process of its own."""
    return Path(subprocess.run([sys.executable, "-c", _STORE], capture_output=True, text=True, check=True).stdout[:-1])


@pytest.fixture(scope="module")
def stores_of_the_module() -> list[Path]:
    return [store_path(StoreSettings(), NodeSettings()), default_store()]


@pytest.fixture(scope="session")
def stores_of_the_session() -> list[Path]:
    return [store_path(StoreSettings(), NodeSettings()), default_store()]


_seen = set[Path]()


@pytest.mark.parametrize("number", range(2))
def test_each_test_and_each_fixture_has_a_default_store_of_its_own(
    machine: Path, stores_of_the_module: list[Path], stores_of_the_session: list[Path], number: int
) -> None:
    """A process that is killed leaves a store, and two brokers cannot have the same one."""
    own = [store_path(StoreSettings(), NodeSettings()), default_store()]
    found = [own, stores_of_the_module, stores_of_the_session]
    assert [first == second for first, second in found] == [True] * 3
    assert len({first for first, _ in found}) == 3
    assert all(machine in first.parents and first.parents[1].is_dir() for first, _ in found)
    assert own[0] not in _seen
    _seen.add(own[0])


def test_variables_of_the_user_are_gone() -> None:
    assert [name for name in os.environ if name.startswith("TRUNKLINE_")] == []
