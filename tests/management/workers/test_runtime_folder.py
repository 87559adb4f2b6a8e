"""The folder of a node's sockets, and who has it."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE, Popen
from tempfile import TemporaryDirectory

import pytest

from trunkline.config.config import Config
from trunkline.config.node_settings import ControlSettings, NodeSettings
from trunkline.management.control_place import PlaceError, sockets, worker_sockets

pytestmark = pytest.mark.skipif(os.name == "nt", reason="there are no workers there")
if sys.platform != "win32":
    from trunkline.management.workers.runtime_folder import RuntimeFolder

#: Of a supervisor that has ended: it hands the lock on to its worker, which waits until it is told to end.
_HEIR = """
import sys
sys.stdout.write("has it"); sys.stdout.flush()
sys.stdin.read()
"""


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with TemporaryDirectory() as name:
        monkeypatch.setenv("XDG_RUNTIME_DIR", name)
        monkeypatch.setenv("TMPDIR", name)
        yield Path(name)


def claim(config: Config | None = None, patience: float = 0) -> "RuntimeFolder":
    return RuntimeFolder.claim(config or Config(), patience, lambda folder: None)


def test_it_is_private_and_goes_at_the_end(runtime: Path) -> None:
    folder = claim()
    assert folder.path == runtime / "trunkline" / "trunkline.workers"
    assert folder.path.stat().st_mode & 0o077 == 0
    (folder.path / "0.sock").touch()
    folder.release()
    assert not folder.path.exists()


def test_nodes_of_one_name_have_one_each(runtime: Path) -> None:
    first, second = claim(), claim()
    assert second.path.name == "trunkline-2.workers"
    first.release()
    third = claim()
    assert third.path == first.path
    second.release()
    third.release()


def test_it_is_beside_the_control_socket_that_is_configured(runtime: Path) -> None:
    runtime.chmod(0o700)
    config = Config(control=ControlSettings(path=runtime / "here.sock"))
    folder = claim(config)
    assert folder.path == runtime / "here.workers"
    with pytest.raises(PlaceError, match="belongs to a running broker"):
        claim(config)
    folder.release()


def test_one_that_others_can_enter_is_refused(runtime: Path) -> None:
    (runtime / "trunkline" / "trunkline.workers").mkdir(parents=True)
    (runtime / "trunkline").chmod(0o700)
    (runtime / "trunkline" / "trunkline.workers").chmod(0o755)
    with pytest.raises(PlaceError, match="accessible to other users"):
        claim()


def test_a_path_that_no_socket_can_have_is_refused(runtime: Path) -> None:
    with pytest.raises(PlaceError, match="too long for Unix sockets"):
        claim(Config(node=NodeSettings(name="x" * 64), control=ControlSettings(path=runtime / ("y" * 100))))


def test_what_killed_workers_left_is_removed(runtime: Path) -> None:
    left = runtime / "trunkline" / "trunkline.workers"
    left.mkdir(parents=True, mode=0o700)
    left.parent.chmod(0o700)
    (left / "7.link").touch()
    folder = claim()
    assert not (left / "7.link").exists()
    folder.release()


def test_it_waits_for_the_workers_of_a_supervisor_that_has_ended(runtime: Path) -> None:
    """They have the lock that it handed on, and not its own."""
    folder = claim()
    heir = Popen([sys.executable, "-c", _HEIR], pass_fds=[folder.descriptor], stdin=PIPE, stdout=PIPE)
    assert heir.stdin is not None
    assert heir.stdout is not None
    assert heir.stdout.read(6) == b"has it"
    os.close(folder.descriptor)
    os.close(folder._own)  # pyright: ignore[reportPrivateUsage] - as its end would
    told: list[Path] = []

    def end_heir(waiting: Path) -> None:
        told.append(waiting)
        assert heir.stdin is not None
        heir.stdin.close()

    try:
        again = RuntimeFolder.claim(Config(), 100, end_heir)
        assert heir.wait() == 0
    finally:
        heir.kill()
        heir.stdout.close()
    assert told == [folder.path]
    assert again.path == folder.path
    again.release()


def test_its_control_sockets_are_found_in_the_order_of_workers(runtime: Path) -> None:
    folder = claim()
    for name in ("10.sock", "2.sock", "0.sock", "0.link", "x.sock"):
        (folder.path / name).touch()
    assert [path.name for path in worker_sockets(folder.path)] == ["0.sock", "2.sock", "10.sock"]
    assert sockets() == {"trunkline": folder.path}
    folder.release()
    assert sockets() == {}
    assert worker_sockets(folder.path) == []
