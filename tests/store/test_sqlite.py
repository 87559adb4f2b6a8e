"""The engine over SQLite: what it keeps, and what it refuses."""

import os
import shutil
import sqlite3
from itertools import pairwise
from pathlib import Path

import pytest

from tests.store.puts import COLOURS, OTHERS, put
from trunkline.store import StoreCorrupt, StoreFull, StoreInUse, StoreUnavailable, WriteBatch
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
    with pytest.raises(StoreInUse, match=r"a\.store is in use by this process"):
        SqliteEngine(tmp_path / "a.store")
    first.close()
    SqliteEngine(tmp_path / "a.store").close()


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.store").write_bytes(b"something else" * 1000)
    with pytest.raises(StoreCorrupt, match="not a store of Trunkline"):
        SqliteEngine(tmp_path / "a.store")


def test_one_that_reads_sees_the_store_as_it_was_while_another_writes(tmp_path: Path) -> None:
    writer = SqliteEngine(tmp_path / "a.store")
    put(writer, COLOURS, red=b"1")
    reader = SqliteEngine(tmp_path / "a.store", read_only=True)
    put(writer, COLOURS, red=b"2", blue=b"2")
    put(writer, OTHERS, red=b"3")
    assert (reader.scan(COLOURS), reader.count(COLOURS), reader.spaces()) == ([(b"red", b"1")], 1, [COLOURS])
    with pytest.raises(StoreUnavailable):
        put(reader, COLOURS, red=b"3")
    assert list(reader.check()) == [], "the commits since then are no damage of the log"
    reader.close()
    assert writer.spaces() == [COLOURS, OTHERS]
    writer.close()


def test_a_backup_is_the_state_of_its_beginning(tmp_path: Path) -> None:
    writer = SqliteEngine(tmp_path / "a.store")
    put(writer, COLOURS, **{f"{number:05}": b"x" * 1000 for number in range(2000)})
    reader = SqliteEngine(tmp_path / "a.store", read_only=True)
    steps: list[tuple[int, int]] = []

    def progress(done: int, total: int) -> None:
        steps.append((done, total))
        put(writer, COLOURS, new=b"%d" % len(steps))

    reader.backup(tmp_path / "b.store", progress)
    reader.close()
    writer.close()
    assert len(steps) > 1
    assert steps == sorted(steps), "it does not begin again"
    assert steps[-1][0] == steps[-1][1]
    copy = SqliteEngine(tmp_path / "b.store")
    assert (copy.count(COLOURS), copy.get(COLOURS, b"new"), list(copy.check())) == (2000, None, [])
    copy.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.store", "a.store-lock", "b.store", "b.store-lock"]


def test_a_backup_replaces_nothing(tmp_path: Path) -> None:
    engine = SqliteEngine(tmp_path / "a.store")
    (tmp_path / "b.store").write_text("precious")
    with pytest.raises(StoreUnavailable, match=r"b\.store cannot be opened: File exists"):
        engine.backup(tmp_path / "b.store")
    assert (tmp_path / "b.store").read_text() == "precious"
    engine.close()


def test_a_size_that_is_not_exceeded(tmp_path: Path) -> None:
    engine = SqliteEngine(tmp_path / "a.store", max_size=100_000)
    put(engine, COLOURS, red=b"1")
    with pytest.raises(StoreFull, match=r"a\.store is full: store\.max_size \(100,000 bytes\) is reached"):
        put(engine, COLOURS, red=b"2", big=b"x" * 200_000)
    assert (engine.get(COLOURS, b"red"), engine.count(COLOURS)) == (b"1", 1)
    with pytest.raises(StoreFull):
        put(engine, COLOURS, **{f"{number:04}": b"x" * 50 for number in range(3000)})  # takes several statements
    assert (engine.get(COLOURS, b"red"), engine.count(COLOURS)) == (b"1", 1)
    put(engine, COLOURS, red=b"3")
    engine.limit(1_000_000)
    put(engine, COLOURS, big=b"x" * 200_000)
    engine.limit(50_000)  # less than it has
    with pytest.raises(StoreFull, match=r"store\.max_size \(50,000 bytes\) is reached"):
        put(engine, COLOURS, more=b"x" * 200_000)
    engine.limit(0)
    put(engine, COLOURS, more=b"x" * 200_000)
    engine.close()


def test_a_commit_that_breaks_off_is_undone(quick_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = SqliteEngine(quick_path / "a.store")
    put(engine, COLOURS, red=b"1")
    apply = engine._apply
    with monkeypatch.context() as patched:
        calls: list[object] = []

        def break_off(changes: list[object]) -> None:
            calls.append(apply(changes))
            if len(calls) == 2:
                raise RuntimeError("a fault of ours")

        patched.setattr(engine, "_apply", break_off)
        with pytest.raises(RuntimeError):
            put(engine, COLOURS, **{f"{number:04}": b"x" for number in range(3000)})
    assert engine.scan(COLOURS) == [(b"red", b"1")]
    put(engine, COLOURS, red=b"2")
    engine.close()


@pytest.mark.skipif(os.name == "nt", reason="it has no modes")
def test_nobody_else_reads_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        engine = SqliteEngine(tmp_path / "a.store")
        put(engine, COLOURS, red=b"1")
        engine.backup(tmp_path / "b.store")
    finally:
        os.umask(before)
    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {
        name: 0o600 for name in ("a.store", "a.store-lock", "a.store-wal", "a.store-shm", "b.store")
    }
    engine.close()


def test_to_read_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable):
        SqliteEngine(tmp_path / "a.store", read_only=True)
    assert list(tmp_path.iterdir()) == []
    sqlite3.connect(tmp_path / "b.store").execute("CREATE TABLE mine (a)").connection.close()
    with pytest.raises(StoreCorrupt, match="not a store of Trunkline"):
        SqliteEngine(tmp_path / "b.store", read_only=True)


def test_the_file_shrinks_in_bounded_steps(quick_path: Path) -> None:
    path = quick_path / "a.store"
    engine = SqliteEngine(path)
    put(engine, COLOURS, **{f"{number:04}": b"x" * 1000 for number in range(3000)})
    put(engine, OTHERS, last=b"1" * 10_000)
    engine.close()
    engine = SqliteEngine(path)
    before = path.stat().st_size
    batch = WriteBatch()
    batch.delete_range(COLOURS, b"", b"2900")
    engine.commit(batch)
    left = [engine.compact(100_000)]
    while left[-1]:
        log = quick_path / "a.store-wal"
        log_before = log.stat().st_size
        left.append(engine.compact(100_000))
        assert log.stat().st_size - log_before < 1_000_000
        engine.maintain()
    assert len(left) > 20
    assert all(0 <= earlier - later <= 100_000 for earlier, later in pairwise(left))
    engine.close()
    assert path.stat().st_size < before / 10
    engine = SqliteEngine(path)
    assert engine.count(COLOURS) == 100
    assert engine.get(OTHERS, b"last") == b"1" * 10_000
    assert list(engine.check()) == []
    engine.close()


@pytest.mark.skipif(os.name == "nt", reason="a file that is open is not deleted there")
@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_a_file_that_is_deleted_or_replaced_is_missed(suffix: str, quick_path: Path) -> None:
    engine = SqliteEngine(quick_path / "a.db")
    put(engine, COLOURS, a=b"1")
    engine.check_files()
    file = quick_path / f"a.db{suffix}"
    kept = file.rename(quick_path / "kept")
    with pytest.raises(StoreUnavailable, match=rf"{file} was deleted or replaced"):
        engine.check_files()
    shutil.copy(kept, file)
    with pytest.raises(StoreUnavailable, match=rf"{file} was deleted or replaced"):
        engine.check_files()
    kept.rename(file)
    engine.check_files()
    engine.close()


@pytest.mark.skipif(os.name == "nt", reason="a file that is open is not cut off there")
@pytest.mark.parametrize("left", [0.0, 0.5, 0.99])
@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_a_file_that_is_cut_off_is_missed(suffix: str, left: float, quick_path: Path) -> None:
    engine = SqliteEngine(quick_path / "a.db")
    for number in range(200):  # some are in the file, and some in its log
        put(engine, COLOURS, **{f"{number}": bytes(100_000)})
        engine.maintain()
        engine.check_files()
    engine.compact()
    engine.check_files()
    file = quick_path / f"a.db{suffix}"
    whole = file.read_bytes()
    assert len(whole) > 200_000
    os.truncate(file, int(left * len(whole)) if suffix == "" else int(left * 100_000))
    with pytest.raises(StoreUnavailable, match=rf"{file} was cut off"):
        engine.check_files()
    file.write_bytes(whole)
    engine.check_files()
    engine.close()


def test_a_store_that_another_program_has_locked(quick_path: Path) -> None:
    engine = SqliteEngine(quick_path / "a.db")
    other = sqlite3.connect(quick_path / "a.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreInUse, match="does not work: database is locked"):
        put(engine, COLOURS, a=b"1")
    other.execute("ROLLBACK")
    other.close()
    put(engine, COLOURS, a=b"2")
    assert engine.scan(COLOURS) == [(b"a", b"2")]
    engine.close()


@pytest.mark.skipif(os.name == "nt", reason="a file that is open is not deleted there")
def test_the_file_of_the_lock_is_made_anew(quick_path: Path) -> None:
    engine = SqliteEngine(quick_path / "a.db")
    (quick_path / "a.db-lock").unlink()
    engine.check_files()
    with pytest.raises(StoreInUse, match="in use by this process"):
        SqliteEngine(quick_path / "a.db")
    engine.close()
    SqliteEngine(quick_path / "a.db").close()


def test_the_log_is_brought_home_while_others_read(quick_path: Path) -> None:
    """And begins anew when nobody does, so that it does not grow for ever."""
    path = quick_path / "a.store"
    engine = SqliteEngine(path)
    put(engine, COLOURS, red=b"0")
    reader = SqliteEngine(path, read_only=True)
    for number in range(300):
        put(engine, COLOURS, red=b"%d" % number * 10_000)
        engine.maintain()
    grown = (quick_path / "a.store-wal").stat().st_size
    assert reader.get(COLOURS, b"red") == b"0"
    reader.close()
    for number in range(1000):
        put(engine, COLOURS, red=b"%d" % number * 10_000)
        engine.maintain()
    assert grown > 2 * 1100 * 4120
    assert (quick_path / "a.store-wal").stat().st_size <= grown + 1000 * 4120, "without the checkpoints, 7000"
    engine.close()


def test_a_log_that_is_lost_is_missed(quick_path: Path) -> None:
    engine = SqliteEngine(quick_path / "a.store")
    put(engine, COLOURS, red=b"1")
    shutil.copy(quick_path / "a.store", quick_path / "b.store")  # as after a crash, without the log
    for read_only in (False, True):
        with pytest.raises(StoreCorrupt, match=r"its log b\.store-wal is gone"):
            SqliteEngine(quick_path / "b.store", read_only=read_only)
    engine.close()
    shutil.copy(quick_path / "a.store", quick_path / "c.store")
    copy = SqliteEngine(quick_path / "c.store")
    assert copy.get(COLOURS, b"red") == b"1"
    copy.close()


def test_the_log_of_many_small_rows_is_brought_home_too(quick_path: Path) -> None:
    engine = SqliteEngine(quick_path / "a.store")
    for number in range(40):
        put(engine, COLOURS, **{f"{hash((number, each)):x}": b"" for each in range(500)})
        engine.maintain()
    assert (quick_path / "a.store-wal").stat().st_size < 3000 * 4120
    engine.close()
