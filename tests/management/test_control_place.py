"""Where control sockets are, and what is not trusted there."""

import os
import socket
import stat
from pathlib import Path

import pytest

from trunkline.management import control_place as place
from trunkline.management.control_place import PlaceError, Port

unix = pytest.mark.skipif(os.name == "nt", reason="files have no modes there")


@pytest.fixture(autouse=True)
def _temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)


def someone_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on this process belongs to another user."""
    monkeypatch.setattr(os, "getuid", lambda: 12_345)


def own_folder(tmp_path: Path) -> Path:
    return tmp_path / (f"trunkline-{os.getuid()}" if hasattr(os, "getuid") else "trunkline")


def test_the_usual_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert place.default_path("trunkline", place.SOCKET) == own_folder(tmp_path) / "trunkline.sock"
    runtime = tmp_path / "run"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    assert place.default_path("trunkline", place.SOCKET).parent == own_folder(tmp_path)  # there is no such folder
    runtime.mkdir()
    assert place.default_path("plant", place.PORT) == runtime / "trunkline" / "plant.port"
    assert place.folders() == [runtime / "trunkline", own_folder(tmp_path)]


def test_without_a_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(place.tempfile, "gettempdir", none)
    for look in (place.folders, place.sockets, lambda: place.find("trunkline")):
        with pytest.raises(PlaceError, match="No usable temporary directory"):
            look()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert place.folders() == [tmp_path / "trunkline"]
    assert place.sockets() == {}


def test_a_folder_that_this_user_cannot_read_has_no_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_folder(tmp_path).mkdir()

    def denied(folder: Path) -> None:
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(Path, "iterdir", denied)
    with pytest.raises(PlaceError, match="no broker 'trunkline' runs here"):
        place.find("trunkline")


@pytest.mark.parametrize("node", ["a/b", "../up", "..", "ü", "a b", "%41"])
def test_no_name_of_a_node_leads_out_of_the_folder(node: str, tmp_path: Path) -> None:
    path = place.default_path(node, place.SOCKET)
    assert path.parent == own_folder(tmp_path)
    path.parent.mkdir()
    path.touch()
    assert place.sockets() == {node: path}


def test_find_says_where_it_looked_and_who_is_there(tmp_path: Path) -> None:
    with pytest.raises(PlaceError, match=f"no broker 'plant' runs here: there is no {own_folder(tmp_path)}"):
        place.find("plant")
    own_folder(tmp_path).mkdir()
    (own_folder(tmp_path) / "mill.sock").touch()
    (own_folder(tmp_path) / "else.txt").touch()
    with pytest.raises(PlaceError, match=r"; there is mill: name it with --node$"):
        place.find("plant")
    (own_folder(tmp_path) / "plant.port").touch()
    assert place.find("plant").name == "plant.port"
    assert place.find("mill").name == "mill.sock"


@unix
def test_a_folder_that_only_its_owner_can_enter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "own"
    before = os.umask(0)
    try:
        place.make_private_folder(folder)
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    place.make_private_folder(folder)
    for mode in (0o710, 0o701, 0o777):
        folder.chmod(mode)
        with pytest.raises(PlaceError, match="accessible to other users"):
            place.make_private_folder(folder)
    folder.chmod(0o700)
    someone_else(monkeypatch)
    with pytest.raises(PlaceError, match=f"{folder} belongs to another user"):
        place.make_private_folder(folder)


@unix
def test_no_folder_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("real")
    with pytest.raises(PlaceError, match="is not a folder"):
        place.make_private_folder(tmp_path / "link")
    (tmp_path / "file").touch()
    with pytest.raises(PlaceError, match="is not a folder"):
        place.make_private_folder(tmp_path / "file")
    with pytest.raises(PlaceError, match="cannot be created"):
        place.make_private_folder(tmp_path / "no" / "such")


@unix
def test_a_folder_that_somebody_chose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o755)
    place.check_folder(tmp_path)
    for mode in (0o775, 0o757, 0o1777):
        tmp_path.chmod(mode)
        with pytest.raises(PlaceError, match="other users can write to"):
            place.check_folder(tmp_path)
    tmp_path.chmod(0o700)
    with pytest.raises(PlaceError, match="No such file"):
        place.check_folder(tmp_path / "none")
    os.chown(tmp_path, 4_321, -1) if os.getuid() == 0 else None
    someone_else(monkeypatch)
    with pytest.raises(PlaceError, match="belongs to another user"):
        place.check_folder(tmp_path)


@unix
def test_files_that_no_broker_of_this_user_has_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.sock"
    with pytest.raises(PlaceError, match=r"x\.sock: No such file"):
        place.check_file(path)
    target = tmp_path / "target"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(target))
        place.check_file(target)
        path.symlink_to(target)
        with pytest.raises(PlaceError, match="is a symbolic link"):
            place.check_file(path)
        with pytest.raises(PlaceError, match="is not a control socket"):
            place.check_file(tmp_path)
        if os.getuid() == 0:
            os.chown(target, 4_321, -1)
        someone_else(monkeypatch)
        with pytest.raises(PlaceError, match="belongs to another user"):
            place.check_file(target)


@unix
def test_a_token_that_others_can_read_is_none(tmp_path: Path) -> None:
    path = tmp_path / "x.port"
    before = os.umask(0)
    try:
        place.write_port(path, Port(1234, "secret"))
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    place.check_file(path)
    path.chmod(0o640)
    with pytest.raises(PlaceError, match="its token is not secret"):
        place.check_file(path)


def test_a_port_is_written_once_and_read(tmp_path: Path) -> None:
    path = tmp_path / "x.port"
    place.write_port(path, Port(1234, "secret"))
    assert place.read_port(path) == Port(1234, "secret")
    assert not place.is_socket(path)
    with pytest.raises(FileExistsError):
        place.write_port(path, Port(1, "other"))
    with pytest.raises(PlaceError, match="No such file"):
        place.read_port(tmp_path / "none")


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "1", '{"port": 0, "token": "a"}', '{"port": "1", "token": "a"}', '{"port": 1}', "\udcff"]
)
def test_a_file_with_something_else_in_it(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.port"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(PlaceError, match="it does not hold a port and token"):
        place.read_port(path)
