import os
import sys
import time
from io import FileIO
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from trunkline.store import StoreInUse, StoreUnavailable, lock
from trunkline.store.lock import FileLock, is_locked


def test_the_second_is_refused_and_learns_the_first_ones_process(tmp_path: Path) -> None:
    first = FileLock(tmp_path / "a.db")
    with pytest.raises(StoreInUse, match=r"a\.db is in use by this process"):
        FileLock(tmp_path / "a.db")
    first.release()
    FileLock(tmp_path / "a.db").release()


def test_a_holder_that_has_not_written_its_number_yet(tmp_path: Path) -> None:
    first = FileLock(tmp_path / "a.db")
    (tmp_path / "a.db-lock").write_bytes(b"")
    with pytest.raises(StoreInUse, match="another process"):
        FileLock(tmp_path / "a.db")
    first.release()


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="lock cannot be opened"):
        FileLock(tmp_path / "none" / "a.db")


def test_whether_it_is_locked(tmp_path: Path) -> None:
    assert is_locked(tmp_path / "a.db") is False
    first = FileLock(tmp_path / "a.db")
    assert is_locked(tmp_path / "a.db") is True
    first.release()
    assert is_locked(tmp_path / "a.db") is False


@pytest.mark.skipif(sys.platform == "win32", reason="who looks locks there, too")
def test_who_only_looks_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FileLock(tmp_path / "a.db").release()
    looking = FileIO(tmp_path / "a.db-lock")
    lock._look(looking)  # pyright: ignore[reportPrivateUsage]

    def sleep(seconds: float) -> None:
        looking.close()

    monkeypatch.setattr(time, "sleep", sleep)
    FileLock(tmp_path / "a.db").release()
    assert looking.closed


@pytest.mark.skipif(sys.platform == "win32", reason="Windows deletes no file that is open")
def test_an_error_leaves_no_file_that_was_not_there() -> None:
    for was_there in (False, True):
        with TemporaryDirectory() as folder:
            store = Path(folder) / "a.db"
            if was_there:
                FileLock(store).release()
            before = list(Path(folder).iterdir())
            with pytest.raises(LookupError), FileLock(store):
                raise LookupError
            assert list(Path(folder).iterdir()) == before
            with FileLock(store):
                pass
            assert [path.name for path in Path(folder).iterdir()] == ["a.db-lock"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows deletes no file that is open")
def test_a_file_that_its_holder_discards_is_no_lock_for_who_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = FileLock(tmp_path / "a.db")

    def sleep(seconds: float) -> None:
        first.discard()

    monkeypatch.setattr(time, "sleep", sleep)
    second = FileLock(tmp_path / "a.db")
    assert is_locked(tmp_path / "a.db")
    second.release()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has such locks")
def test_the_store_stays_locked_when_the_file_of_the_lock_is_deleted(tmp_path: Path) -> None:
    (tmp_path / "a.db").touch()
    first = FileLock(tmp_path / "a.db")
    first.lock_store()
    (tmp_path / "a.db-lock").unlink()
    second = FileLock(tmp_path / "a.db")
    with pytest.raises(StoreInUse, match=r"a\.db is in use by another process"):
        second.lock_store()
    with pytest.raises(StoreInUse, match="in use by this process"):
        first.renew()
    second.release()
    first.renew()
    with pytest.raises(StoreInUse, match="in use by this process"):
        FileLock(tmp_path / "a.db")
    first.release()
    third = FileLock(tmp_path / "a.db")
    third.lock_store()
    third.release()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
def test_the_file_of_the_lock_belongs_to_the_stores_owner(tmp_path: Path) -> None:
    (tmp_path / "a.db").touch()
    os.chown(tmp_path / "a.db", 12345, 54321)
    FileLock(tmp_path / "a.db").release()
    found = (tmp_path / "a.db-lock").stat()
    assert (found.st_uid, found.st_gid) == (12345, 54321)
