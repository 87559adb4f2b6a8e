"""The engine over SQLite: what it keeps, and what it refuses."""

from pathlib import Path

import pytest

from tests.store.test_engine import COLOURS, put
from trunkline.store import StoreCorrupt, StoreInUse
from trunkline.store.sqlite import SqliteEngine


def test_keeps_rows_across_opening(tmp_path: Path) -> None:
    first = SqliteEngine(tmp_path / "a.store")
    put(first, COLOURS, red=b"1", blue=b"2")
    first.close()
    second = SqliteEngine(tmp_path / "a.store")
    assert second.scan(COLOURS) == [(b"blue", b"2"), (b"red", b"1")]
    assert second.count(COLOURS) == 2
    second.close()


def test_a_second_opener_is_refused(tmp_path: Path) -> None:
    first = SqliteEngine(tmp_path / "a.store")
    with pytest.raises(StoreInUse, match="process"):
        SqliteEngine(tmp_path / "a.store")
    first.close()
    SqliteEngine(tmp_path / "a.store").close()


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.store").write_bytes(b"something else" * 1000)
    with pytest.raises(StoreCorrupt):
        SqliteEngine(tmp_path / "a.store")
