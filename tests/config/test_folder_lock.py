import os
from pathlib import Path

import pytest

from trunkline.config import folder_lock
from trunkline.config.folder_lock import alone


@pytest.mark.skipif(os.name == "nt", reason="Windows locks no folders")
def test_nobody_waits_for_ever_for_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_lock, "LOCK_TIMEOUT", 0.0)
    with alone(tmp_path), pytest.raises(TimeoutError, match="another process holds the folder"), alone(tmp_path):
        raise AssertionError("both are alone")
    with alone(tmp_path):
        pass
