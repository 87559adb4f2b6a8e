"""What lies on the disk: every format that was ever released is read for ever, and one that is not known is left."""

import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from trunkline.store import Space, StoreCorrupt, StoreTooNew, StoreUnavailable, WriteBatch, format
from trunkline.store.sqlite import SqliteEngine

#: One of each format; `fill` made the first. None is ever made anew.
STORES = Path(__file__).parent / "formats"


def fill(path: Path) -> None:
    engine = SqliteEngine(path)
    batch = WriteBatch()
    for number in range(30):
        batch.put(Space("numbers"), number.to_bytes(4, "big"), b"%d" % number * number)
        batch.put(Space("names"), "ä€".encode() + b"\0\xff%d" % number, b"")
    batch.put(Space("big"), b"", bytes(range(256)) * 40)
    engine.commit(batch)
    batch = WriteBatch()
    batch.delete_range(Space("numbers"), (10).to_bytes(4, "big"), (20).to_bytes(4, "big"))
    batch.put(Space("names"), b"one", b"more")
    engine.commit(batch)
    engine.close()


@pytest.mark.parametrize("version", [1])
@pytest.mark.parametrize("read_only", [False, True])
def test_each_format_is_read_for_ever(version: int, read_only: bool, tmp_path: Path) -> None:
    """Who only reads need not bring it up to date."""
    path = tmp_path / "a.db"
    shutil.copy(STORES / f"{version}.db", path)
    engine = SqliteEngine(path, read_only=read_only)
    assert engine.format == (version if read_only else format.VERSION)
    assert list(engine.check()) == []
    assert engine.spaces() == [Space("big"), Space("names"), Space("numbers")]
    numbers = [number for number in range(30) if not 10 <= number < 20]
    assert engine.scan(Space("numbers")) == [(each.to_bytes(4, "big"), b"%d" % each * each) for each in numbers]
    names = sorted("ä€".encode() + b"\0\xff%d" % number for number in range(30))
    assert engine.scan(Space("names")) == [(b"one", b"more"), *((name, b"") for name in names)]
    assert engine.get(Space("big"), b"") == bytes(range(256)) * 40
    engine.close()


def with_version(path: Path, version: int) -> None:
    shutil.copy(STORES / "1.db", path)
    database = sqlite3.connect(path)
    database.execute(f"PRAGMA user_version = {version}")
    database.close()


def test_a_format_of_the_future_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with_version(path, format.VERSION + 1)
    before = path.read_bytes()
    for read_only in (False, True):
        with pytest.raises(StoreTooNew, match=rf"a\.db has format {format.VERSION + 1}, and this Trunkline knows"):
            SqliteEngine(path, read_only=read_only)
    assert path.read_bytes() == before


def test_a_format_that_never_was_is_refused(tmp_path: Path) -> None:
    with_version(tmp_path / "a.db", 0)
    with pytest.raises(StoreCorrupt, match="there is no format 0"):
        SqliteEngine(tmp_path / "a.db")


def test_an_older_format_is_brought_up_to_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A made-up one: in it the space was called otherwise."""
    path = tmp_path / "a.db"
    with_version(path, 0)
    rename = "UPDATE spaces SET name = 'digits' WHERE name = 'numbers'"
    monkeypatch.setitem(format.MIGRATIONS, 0, lambda database: database.execute(rename) and None)
    with pytest.raises(StoreUnavailable, match=f"start the broker once, which makes it format {format.VERSION}"):
        SqliteEngine(path, read_only=True)
    engine = SqliteEngine(path)
    assert engine.count(Space("digits")) == 20
    engine.close()
    monkeypatch.undo()
    engine = SqliteEngine(path)
    assert engine.spaces() == [Space("big"), Space("digits"), Space("names")]
    engine.close()


def test_a_migration_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.db"
    with_version(path, 0)

    def fail(database: sqlite3.Connection) -> None:
        database.execute("DELETE FROM records")
        raise OSError("out of luck")

    monkeypatch.setitem(format.MIGRATIONS, 0, fail)
    with pytest.raises(StoreUnavailable, match="out of luck"):
        SqliteEngine(path)
    monkeypatch.setitem(format.MIGRATIONS, 0, lambda _: None)
    engine = SqliteEngine(path)
    assert engine.count(Space("numbers")) == 20
    engine.close()


def test_a_store_that_was_not_finished_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "a.db-new").write_bytes(b"SQLite format 3\0 and no more")
    SqliteEngine(tmp_path / "a.db").close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.db", "a.db-lock"]


COMMITS = """
import os, sys; from pathlib import Path; from trunkline.store import *; from trunkline.store.sqlite import SqliteEngine
engine = SqliteEngine(Path(sys.argv[1]), durability=sys.argv[2])
for number in range(20):
    batch = WriteBatch()
    batch.put(Space("numbers"), b"%d" % number, b"")
    engine.commit(batch)
os._exit(0)
"""


@pytest.mark.parametrize(("durability", "syncs"), [("fsync", range(20, 30)), ("os", range(8))])
def test_each_commit_is_synced(durability: str, syncs: range, tmp_path: Path) -> None:
    """And the folder, when the store is made in it."""
    strace = ["strace", "-f", "-y", "-e", "trace=fsync,fdatasync", "-o", str(tmp_path / "calls")]
    if not shutil.which("strace") or subprocess.run([*strace, "true"], check=False).returncode:
        pytest.skip("strace does not work here")
    (tmp_path / "here").mkdir()
    command = [sys.executable, "-c", COMMITS, str(tmp_path / "here" / "a.db"), durability]
    subprocess.run([*strace, *command], check=True)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert sum("a.db-wal>" in call for call in calls) in syncs
    made = max(number for number, call in enumerate(calls) if "a.db-new>" in call)
    assert any("here>" in call for call in calls[made:])
