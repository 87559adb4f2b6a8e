from pathlib import Path

import pytest

from trunkline.store import StoreInUse, StoreUnavailable
from trunkline.store.lock import FileLock


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
