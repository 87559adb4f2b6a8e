"""Files that take the place of others together."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from trunkline.store import StoreInUse, StoreUnavailable
from trunkline.store.lock import FileLock
from trunkline.store.replacing import begin, beside, discard, finish, finish_what_was_begun, is_ready, replace


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of a store in two files, which a third has been made for, and one of its own."""
    (tmp_path / "a.0.db").write_text("old 0")
    (tmp_path / "a.1.db").write_text("old 1")
    (tmp_path / "a.0.db-wal").write_text("old log")
    (tmp_path / "a.1.db-lock").write_text("")
    (tmp_path / "other").write_text("other")
    folder = begin(tmp_path / "a.db")
    (folder / "a.0.db").write_text("new 0")
    (folder / "a.2.db").write_text("new 2")
    (folder / "a.2.db-wal").write_text("")
    (folder / "a.2.db-lock").write_text("")
    return tmp_path / "a.db"


FORMER = ("a.0.db", "a.1.db")
OLD = {"a.0.db": "old 0", "a.1.db": "old 1", "a.0.db-wal": "old log", "a.1.db-lock": "", "other": "other"}
NEW = {"a.0.db": "new 0", "a.2.db": "new 2", "other": "other"}


def files(path: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in path.parent.iterdir() if file.is_file()}


def test_all_take_their_places(path: Path) -> None:
    assert files(path) == OLD
    replace(path, FORMER)
    assert files(path) == NEW
    assert not is_ready(path)
    assert not beside(path, "-next").exists()


def test_what_is_discarded_leaves_no_trace(path: Path) -> None:
    discard(path)
    assert files(path) == OLD
    assert [each.name for each in path.parent.iterdir() if each.is_dir()] == []
    discard(path)
    assert list(begin(path).iterdir()) == []


def test_what_was_begun_before_is_not_in_a_new_folder(path: Path) -> None:
    assert list(begin(path).iterdir()) == []


class Killed(BaseException):
    pass


def test_each_step_can_be_the_last_of_a_process(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for last in range(100):
        left = last

        def step(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
            nonlocal left
            if not left:
                raise Killed
            left -= 1
            return function(*arguments, **keywords)

        with monkeypatch.context() as patch:
            for name in ("replace", "unlink", "rmdir", "fsync"):
                patch.setattr(os, name, partial(step, getattr(os, name)))
            try:
                if is_ready(path):
                    finish(path)
                else:
                    replace(path, FORMER)
            except Killed:
                pass
            else:
                break
        (beside(path, "-next") / "files.json").unlink(missing_ok=True)  # who begins anew has a new folder
    assert last > 5
    assert files(path) == NEW
    assert not is_ready(path)


@pytest.mark.parametrize("former", [("a.db",), ("a.0.db", "a.1.db", "a.db-workers")])
def test_the_lock_of_the_store_stays_and_those_of_former_parts_go(tmp_path: Path, former: tuple[str, ...]) -> None:
    for name in former:
        (tmp_path / name).touch()
        (tmp_path / f"{name}-lock").touch()
    (tmp_path / "a.db-lock").touch()
    (begin(tmp_path / "a.db") / "a.7.db").touch()
    replace(tmp_path / "a.db", former)
    assert {*files(tmp_path / "a.db")} == {"a.7.db", "a.db-lock"}


def test_a_store_that_was_not_closed_takes_no_place(path: Path) -> None:
    (beside(path, "-next") / "a.2.db-wal").write_text("commits")
    with pytest.raises(StoreUnavailable, match=r"a\.2\.db-wal is there still"):
        replace(path, FORMER)
    assert files(path) == OLD


def test_who_comes_later_goes_on(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("trunkline.store.replacing.finish", lambda path: None)
        replace(path, FORMER)
    assert is_ready(path)
    assert files(path) == OLD
    with FileLock(path), pytest.raises(StoreInUse):
        finish_what_was_begun(path)
    finish_what_was_begun(path)
    assert {name: text for name, text in files(path).items() if name != "a.db-lock"} == NEW
    finish_what_was_begun(path)


def test_a_disk_that_refuses_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refuse)
        with pytest.raises(StoreUnavailable, match="cannot be made ready: Permission denied"):
            replace(path, FORMER)
    (beside(path, "-next") / "files.json").unlink()
    with monkeypatch.context() as patch:
        patch.setattr("trunkline.store.replacing.finish", lambda path: None)
        replace(path, FORMER)
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(StoreUnavailable, match="cannot take their places: Permission denied"):
        finish(path)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
def test_files_that_root_makes_are_the_owners(path: Path) -> None:
    os.chown(path.with_name("a.1.db"), 12345, 54321)
    os.chown(path.with_name("a.0.db"), 12345, 54321)
    replace(path, FORMER)
    owners = {(file.stat().st_uid, file.stat().st_gid) for file in path.parent.glob("a.?.db")}
    assert owners == {(12345, 54321)}
