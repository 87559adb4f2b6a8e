import os
from pathlib import Path

import pytest

from trunkline.store import StoreInUse, StoreUnavailable
from trunkline.store.lock import FileLock


def test_the_second_is_refused_and_learns_the_first_ones_process(tmp_path: Path) -> None:
    first = FileLock(tmp_path / "lock")
    with pytest.raises(StoreInUse, match=str(os.getpid())):
        FileLock(tmp_path / "lock")
    first.release()
    FileLock(tmp_path / "lock").release()


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="lock cannot be opened"):
        FileLock(tmp_path / "none" / "lock")
