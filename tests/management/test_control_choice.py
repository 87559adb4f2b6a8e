"""Which broker a command means: the one that is named, the configuration's, or the only one."""

import socket
from pathlib import Path

import pytest

from tests.management.test_control_client import HELLO, answer, server
from trunkline.config.errors import ConfigError
from trunkline.management import control_choice
from trunkline.management.control_choice import SeveralBrokers, choose
from trunkline.management.control_place import PlaceError

pytestmark = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="no Unix sockets")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this user's brokers have their sockets."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "trunkline").mkdir()
    return tmp_path / "trunkline"


def left(path: Path) -> None:
    """What a broker that was killed leaves."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))


def test_what_is_named_wins(place: Path, tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('[control]\npath = "own"\n[node]\nname = "mill"\n')
    (place / "plant.sock").touch()
    (place / "mill.sock").touch()
    assert choose(file, tmp_path / "given", "plant") == tmp_path / "given"
    assert choose(file, node="plant") == place / "plant.sock"
    assert choose(file) == tmp_path / "own"
    file.write_text('[node]\nname = "mill"\n')
    assert choose(file) == place / "mill.sock"


def test_variables_win_over_the_file(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('[control]\npath = "own"\n')
    monkeypatch.setenv("TRUNKLINE_CONTROL__PATH", str(tmp_path / "other"))
    assert choose(file) == tmp_path / "other"


def test_a_configuration_that_cannot_be_used(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text("[node]\nname = 3\n")
    with pytest.raises(ConfigError, match=r"node\.name: 3"):
        choose(file)


def test_nobody_is_there(place: Path) -> None:
    with pytest.raises(PlaceError, match="no broker 'trunkline' runs here"):
        choose(None)


def test_the_only_one(place: Path) -> None:
    left(place / "plant.sock")
    assert choose(None) == place / "plant.sock"  # whether it lives shows when it is asked


def test_the_only_one_that_lives(place: Path) -> None:
    left(place / "a.sock")
    left(place / "z.sock")
    with pytest.raises(PlaceError, match="there is a, z: name it with --node"):
        choose(None)
    with server(place / "plant.sock", HELLO, answer({"listeners": []})):
        assert choose(None) == place / "plant.sock"


def test_several_are_told(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_choice, "_described", lambda path: {"a": "process 1", "bb": "process 2"}.get(path.stem))
    for name in ("a", "bb", "dead"):
        (place / f"{name}.sock").touch()
    words = r"several brokers run here: a \(process 1\), bb \(process 2\); name one with --node NAME before the command"
    with pytest.raises(SeveralBrokers, match=words):
        choose(None)
