"""Files of stores that are locked, and made under other names."""

import os
from contextlib import closing
from pathlib import Path

import pytest

from tests.store.puts import COLOURS, put
from trunkline.management.store_files import expect_unused, locked, made_aside
from trunkline.store import StoreInUse
from trunkline.store.sqlite import SqliteEngine


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with closing(SqliteEngine(tmp_path / "a.db")) as engine:
        put(engine, COLOURS, red=b"old")
    return tmp_path / "a.db"


def colour(path: Path) -> bytes | None:
    with closing(SqliteEngine(path, read_only=True)) as engine:
        return engine.get(COLOURS, b"red")


def test_a_locked_store_is_in_use(path: Path, tmp_path: Path) -> None:
    with locked(path), pytest.raises(StoreInUse):
        SqliteEngine(path)
    expect_unused(path)
    with closing(SqliteEngine(path)), pytest.raises(StoreInUse):
        expect_unused(path)
    with locked(tmp_path / "none.db"):
        pass
    assert not list(tmp_path.glob("none*"))


def test_a_store_takes_its_place_when_it_is_whole(path: Path) -> None:
    with made_aside(path, path.with_name("damaged")) as engine:
        put(engine, COLOURS, red=b"new")
        assert colour(path) == b"old"
    assert (colour(path), colour(path.with_name("damaged"))) == (b"new", b"old")


def test_one_that_fails_leaves_no_trace(path: Path) -> None:
    def failing() -> None:
        with made_aside(path, path.with_name("damaged")) as engine:
            put(engine, COLOURS, red=b"new")
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        failing()
    assert colour(path) == b"old"
    assert not [file for file in path.parent.iterdir() if "made" in file.name or "damaged" in file.name]


def test_where_there_are_no_links_the_damaged_file_is_copied(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(os, "link", link)
    path.with_name("a.db-wal").write_bytes(b"log")
    with made_aside(path, path.with_name("damaged")) as engine:
        put(engine, COLOURS, red=b"new")
    assert path.with_name("damaged-wal").read_bytes() == b"log"
    path.with_name("damaged-wal").unlink()
    assert colour(path.with_name("damaged")) == b"old"
