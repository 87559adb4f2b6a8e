"""Whatever happens to the files of a store is found when the store is opened or the row is read, and never served."""

import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.store.conftest import THOROUGH
from trunkline.store import Engine, Space, StoreCorrupt, StoreError, StoreUnavailable, WriteBatch
from trunkline.store.sqlite import SqliteEngine

SPACES = [Space("colours"), Space("numbers")]
PAGE = 4096
#: A byte of the file's header that SQLite reads only to write.
WRITE_VERSION = 18
#: One byte in so many is damaged.
STRIDE = max(1, 199 // THOROUGH)
Rows = dict[Space, list[tuple[bytes, bytes]]]


def fill(engine: Engine) -> None:
    for start in (0, 20, 40):
        batch = WriteBatch()
        for number in range(start, start + 20):
            batch.put(SPACES[0], b"colour-%03d" % number, b"value" * (number % 7 + 1))
            batch.put(SPACES[1], number.to_bytes(16, "big"), b"%d" % number)
        batch.put(SPACES[1], b"big", bytes(range(256)) * 60)
        batch.delete(SPACES[0], b"colour-%03d" % (start + 3))
        engine.commit(batch)


def contents(engine: Engine) -> Rows:
    return {space: engine.scan(space, weight=1 << 30) for space in SPACES}


@pytest.fixture(scope="module")
def stores(quick_module_path: Path) -> dict[str, Path]:
    """One that was closed, and one whose process was killed: its log holds everything but the beginning."""
    folder = quick_module_path
    engine = SqliteEngine(folder / "closed.db")
    fill(engine)
    engine.close()
    engine = SqliteEngine(folder / "killed.db")
    fill(engine)
    for name in ("killed.db", "killed.db-wal"):
        shutil.copy(folder / name, folder / f"copy-{name}")
    engine.close()
    for name in ("killed.db", "killed.db-wal"):
        os.replace(folder / f"copy-{name}", folder / name)
    return {"closed": folder / "closed.db", "killed": folder / "killed.db"}


@pytest.fixture(scope="module")
def expected(quick_module_path: Path) -> Rows:
    engine = SqliteEngine(quick_module_path / "expected.db")
    fill(engine)
    found = contents(engine)
    engine.close()
    return found


def copy(store: Path, folder: Path) -> Path:
    for old in folder.iterdir():
        old.unlink()
    for name in (store.name, f"{store.name}-wal"):
        if (store.parent / name).exists():
            shutil.copy(store.parent / name, folder / name)
    return folder / store.name


def read(path: Path) -> Rows | None:
    """What a broker reads, or None if the store is refused."""
    try:
        engine = SqliteEngine(path, durability="os")
    except StoreError:
        return None
    try:
        found = contents(engine)
        for space, rows in found.items():
            assert [engine.get(space, key) for key, _ in rows] == [value for _, value in rows]
            assert engine.count(space) == len(rows)
    except StoreCorrupt:
        return None
    finally:
        engine.close()
    return found


def checked(path: Path) -> list[str]:
    """What `check` says, as a command that looks at a store that may be damaged."""
    try:
        engine = SqliteEngine(path, read_only=True, verify=False)
    except StoreError as error:
        return [str(error)]
    try:
        return [defect.text for defect in engine.check()]
    except StoreCorrupt as error:
        return [str(error)]
    finally:
        engine.close()


def flips(size: int, whole: range, stride: int = STRIDE) -> Iterator[tuple[int, int]]:
    """Byte and bit: all bytes of `whole`, and some of each page."""
    chosen = random.Random(stride)
    yield from ((byte, chosen.randrange(8)) for byte in whole)
    yield from ((byte, chosen.randrange(8)) for byte in range(chosen.randrange(stride), size, stride))


def flip(file: Path, byte: int, bit: int) -> None:
    with open(file, "rb+") as opened:
        opened.seek(byte)
        old = opened.read(1)[0]
        opened.seek(byte)
        opened.write(bytes([old ^ 1 << bit]))


def test_a_flipped_bit_in_the_file(stores: dict[str, Path], expected: Rows, quick_path: Path) -> None:
    found = 0
    for byte, bit in flips(stores["closed"].stat().st_size, range(100)):
        path = copy(stores["closed"], quick_path)
        flip(path, byte, bit)
        defects = checked(path)
        rows = read(path)
        assert rows in (None, expected), f"bit {bit} of byte {byte}"
        if rows is None:
            assert defects or byte == WRITE_VERSION, f"bit {bit} of byte {byte}"
            found += 1
    assert found > 50


def test_a_flipped_bit_in_the_header_of_a_file_with_a_log(
    stores: dict[str, Path], expected: Rows, quick_path: Path
) -> None:
    for byte, bit in flips(0, range(100)):
        path = copy(stores["killed"], quick_path)
        flip(path, byte, bit)
        assert read(path) in (None, expected), f"bit {bit} of byte {byte}"


def test_a_flipped_bit_in_the_log(stores: dict[str, Path], expected: Rows, quick_path: Path) -> None:
    """In the last commit, damage looks as if the power had failed while it was written: that commit is missing then."""
    log = stores["killed"].with_name("killed.db-wal")
    earlier = None
    for byte, bit in flips(log.stat().st_size, range(32 + 24), 10 * STRIDE):
        path = copy(stores["killed"], quick_path)
        flip(path.with_name(log.name), byte, bit)
        rows = read(path)
        if rows is not None and rows != expected:
            earlier = earlier or rows
            assert rows == earlier, f"bit {bit} of byte {byte}"
    assert earlier is not None
    assert len(earlier[SPACES[0]]) == 38, "two of three commits"


@pytest.mark.parametrize("size", [0, 1, 99, 100, 4095, PAGE, PAGE * 3, PAGE * 5 + 17])
def test_a_file_that_was_cut_off(stores: dict[str, Path], size: int, quick_path: Path) -> None:
    path = copy(stores["closed"], quick_path)
    os.truncate(path, size)
    assert checked(path)
    words = {0: "an empty file", 1: "not a store of Trunkline.*trunkline store repair"}
    with pytest.raises(StoreCorrupt, match=rf"closed\.db is {words.get(size, 'damaged: .*trunkline store repair')}"):
        SqliteEngine(path)


def test_pages_of_nothing(stores: dict[str, Path], expected: Rows, quick_path: Path) -> None:
    for page in range(stores["closed"].stat().st_size // PAGE):
        path = copy(stores["closed"], quick_path)
        with open(path, "rb+") as file:
            file.seek(page * PAGE)
            file.write(bytes(PAGE))
        assert checked(path), page
        assert read(path) is None, page


def test_pages_of_an_earlier_time(stores: dict[str, Path], quick_path: Path) -> None:
    """As a disk leaves them that loses a write."""
    path = copy(stores["closed"], quick_path)
    engine = SqliteEngine(path)
    batch = WriteBatch()
    for number in range(0, 60, 5):
        batch.put(SPACES[0], b"colour-%03d" % number, b"other" * (number % 7 + 1))
    engine.commit(batch)
    expected = contents(engine)
    engine.close()
    (quick_path / "new").write_bytes(path.read_bytes())
    old, new = stores["closed"].read_bytes(), path.read_bytes()
    differ = [page for page in range(len(old) // PAGE) if old[page * PAGE :][:PAGE] != new[page * PAGE :][:PAGE]]
    assert len(differ) > 2
    for page in differ[1:]:  # the first has but counters in it
        path.write_bytes(new[: page * PAGE] + old[page * PAGE :][:PAGE] + new[(page + 1) * PAGE :])
        assert read(path) in (None, expected), page


def missing_log(path: Path) -> None:
    path.with_name(f"{path.name}-wal").unlink()


def missing_file(path: Path) -> None:
    path.unlink()


def cut_header(path: Path) -> None:
    flip(path.with_name(f"{path.name}-wal"), 17, 3)


def no_header(path: Path) -> None:
    """Its checksum, of nothing but zeros, is right."""
    log = path.with_name(f"{path.name}-wal")
    log.write_bytes(bytes(32) + log.read_bytes()[32:])


@pytest.mark.parametrize(
    ("damage", "finding"),
    [
        (missing_log, r"its log killed\.db-wal is gone"),
        (missing_file, r"the file is gone, and its log killed\.db-wal is still there"),
        (cut_header, r"commits in its log killed\.db-wal are damaged"),
        (no_header, r"commits in its log killed\.db-wal are damaged"),
    ],
)
def test_a_log_without_its_file_and_a_file_without_its_log(
    stores: dict[str, Path], quick_path: Path, damage: Callable[[Path], None], finding: str
) -> None:
    path = copy(stores["killed"], quick_path)
    damage(path)
    with pytest.raises(StoreCorrupt, match=finding):
        SqliteEngine(path)
    if path.exists():
        assert re.search(finding, " ".join(checked(path)))
        with pytest.raises(StoreCorrupt, match=finding):  # again: what was refused is left as it is
            SqliteEngine(path)


def files_beside(path: Path) -> list[Path]:
    return sorted(path.parent.iterdir()) if path.parent.exists() else []


def folder(path: Path) -> None:
    path.mkdir()


def circle(path: Path) -> None:
    path.symlink_to(path)


def no_parent(path: Path) -> None:
    path.parent.rmdir()


def text(path: Path) -> None:
    path.write_text("[listeners]\n" * 1000)


def empty(path: Path) -> None:
    path.touch()


def other_database(path: Path) -> None:
    import sqlite3

    database = sqlite3.connect(path)
    database.execute("CREATE TABLE mine (number)")
    database.close()


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (folder, StoreUnavailable, "is no file"),
        (circle, StoreUnavailable, "is a circle of links"),
        (no_parent, StoreUnavailable, "No such file or directory"),
        (text, StoreCorrupt, "not a store of Trunkline: give another path"),
        (empty, StoreCorrupt, "is an empty file, and no store"),
        (other_database, StoreCorrupt, "not a store of Trunkline"),
    ],
)
def test_what_is_no_store(make: Callable[[Path], None], kind: type[StoreError], message: str, quick_path: Path) -> None:
    (quick_path / "here").mkdir()
    path = quick_path / "here" / "a.db"
    make(path)
    before = path.read_bytes() if path.is_file() else b""
    beside = files_beside(path)
    with pytest.raises(kind, match=message) as caught:
        SqliteEngine(path)
    assert str(path) in str(caught.value)
    assert files_beside(path) == beside, "a file was left"
    assert before == (path.read_bytes() if path.is_file() else b""), "it is not ours to change"
