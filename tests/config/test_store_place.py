import os
import sys
from pathlib import Path

import pytest

from trunkline.config.node_settings import NodeSettings, StoreSettings
from trunkline.config.store_place import NoStateFolder, make_store_folder, state_folder, store_path

linux = pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="these have folders of their own")


def test_the_configured_path_is_taken_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "here.db"
    assert store_path(StoreSettings(path=path), NodeSettings(), {}) == path


def test_nodes_of_one_user_have_stores_of_their_own(tmp_path: Path) -> None:
    environ = {"STATE_DIRECTORY": str(tmp_path)}
    assert store_path(StoreSettings(), NodeSettings(), environ) == tmp_path / "trunkline.db"
    assert store_path(StoreSettings(), NodeSettings(name="a/b"), environ) == tmp_path / "a%2Fb.db"


def test_a_service_has_the_folder_that_systemd_made_for_it() -> None:
    environ = {"STATE_DIRECTORY": "/var/lib/broker:/var/lib/other", "XDG_STATE_HOME": "/elsewhere"}
    assert state_folder(environ) == Path("/var/lib/broker")


@linux
def test_a_user_has_a_folder_for_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", "/there")
    assert state_folder({"XDG_STATE_HOME": "/own/state"}) == Path("/own/state/trunkline")
    assert state_folder({"XDG_STATE_HOME": "relative"}) == Path("/there/.local/state/trunkline")
    assert state_folder({}) == Path("/there/.local/state/trunkline")


@linux
def test_root_has_the_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert state_folder({}) == Path("/var/lib/trunkline")


def test_a_user_without_a_home_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(os, "geteuid", lambda: 1000, raising=False)
    monkeypatch.setattr(Path, "home", home)
    with pytest.raises(NoStateFolder, match="no folder for the store"):
        state_folder({})


def test_the_default_folder_is_made_and_is_its_users_alone(state: Path) -> None:
    path = store_path(StoreSettings(), NodeSettings())
    assert state in path.parents or sys.platform in ("win32", "darwin")
    make_store_folder(StoreSettings(), path)
    assert path.parent.is_dir()
    if os.name != "nt":
        assert path.parent.stat().st_mode & 0o777 == 0o700
    make_store_folder(StoreSettings(), path)


def test_a_folder_that_somebody_named_is_not_made(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "a.db"
    make_store_folder(StoreSettings(path=path), path)
    assert not path.parent.exists()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NoStateFolder, match=r"file.deep cannot be made"):
        make_store_folder(StoreSettings(), tmp_path / "file" / "deep" / "a.db")
