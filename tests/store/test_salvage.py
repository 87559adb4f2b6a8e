"""What is whole of a damaged store, whatever the damage."""

import os
import random
import shutil
import sqlite3
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.store.conftest import THOROUGH
from tests.store.puts import COLOURS, OTHERS, put
from trunkline.store import Space, StoreCorrupt, WriteBatch
from trunkline.store.format import PAGE_SIZE, ROOTS
from trunkline.store.memory import MemoryEngine
from trunkline.store.salvage import Salvaged, salvage
from trunkline.store.sqlite import SqliteEngine

ROWS = 4000
#: Pages that lead to all others: header, map, tables and indexes.
FIRST = 7
#: The first page of each 820 says what they are.
MAPS = range(1, 10_000, 820)
GARBAGE: list[bytes] = [bytes(PAGE_SIZE), random.Random(1).randbytes(PAGE_SIZE), b"\xff" * PAGE_SIZE]
Contents = dict[Space, dict[bytes, bytes]]


class Store(NamedTuple):
    path: Path
    rows: Contents

    def copy(self, folder: Path) -> Path:
        for old in self.path.parent.glob(f"{self.path.name}*"):
            shutil.copy(old, folder / old.name)
        return folder / self.path.name


def fill(engine: SqliteEngine) -> Contents:
    """Rows of all sizes, of which many are deleted and many changed: some pages are free, and many rows moved."""
    rng = random.Random(1)
    rows: Contents = {COLOURS: {}, OTHERS: {}}

    def commit(changes: dict[Space, dict[bytes, bytes | None]]) -> None:
        batch = WriteBatch()
        for space, values in changes.items():
            for key, value in values.items():
                if value is None:
                    batch.delete(space, key)
                    del rows[space][key]
                else:
                    batch.put(space, key, value)
                    rows[space][key] = value
        engine.commit(batch)

    sizes = (0, 1, 100, 100, 100, 300, 1000, 3900, 4061, 4062, 5000, 9000)
    for start in range(0, ROWS, 500):
        keys = [b"%06d" % number for number in range(start, start + 500)]
        commit({COLOURS: {key: rng.randbytes(rng.choice(sizes)) for key in keys}})
    commit({OTHERS: {b"red": b"\xff" * 500_000, b"\x00" * 2000: b"long key", b"": b""}})
    commit({COLOURS: {b"%06d" % number: None for number in range(800, 1600)}})
    commit({COLOURS: dict.fromkeys(rng.sample(sorted(rows[COLOURS]), 400))})
    commit({COLOURS: {key: b"new" + value * 2 for key, value in rng.sample(sorted(rows[COLOURS].items()), 300)}})
    return rows


@pytest.fixture(scope="module")
def closed(quick_module_path: Path) -> Store:
    engine = SqliteEngine(quick_module_path / "closed.db")
    rows = fill(engine)
    engine.close()
    return Store(engine.path, rows)


@pytest.fixture(scope="module")
def killed(quick_module_path: Path) -> Store:
    """Its log has rows, deletions and changes that its file does not have."""
    engine = SqliteEngine(quick_module_path / "made.db")
    rows = fill(engine)
    engine.maintain()
    batch = WriteBatch()
    batch.put(COLOURS, b"late", b"late")
    for key in sorted(rows[COLOURS])[::3]:
        batch.delete(COLOURS, key)
        del rows[COLOURS][key]
    rows[COLOURS][b"late"] = b"late"
    engine.commit(batch)
    put(engine, OTHERS, late=b"later")
    rows[OTHERS][b"late"] = b"later"
    for suffix in ("", "-wal"):
        shutil.copy(f"{engine.path}{suffix}", quick_module_path / f"killed.db{suffix}")
    engine.close()
    return Store(quick_module_path / "killed.db", rows)


def salvaged(path: Path, store: Store) -> Contents:
    """What is saved: never what was not written, or was deleted; and what is lost is counted."""
    into = MemoryEngine()
    found, _ = salvage(path, into)
    rows = {each.space: dict(into.scan(each.space, weight=1 << 40, limit=ROWS)) for each in found}
    for space, values in rows.items():
        for key, value in values.items():
            assert store.rows[space].get(key) == value
    for space, count, former in found:
        assert count == len(rows[space])
        assert former in (len(store.rows[space]), None)
    return rows


def count(rows: Contents) -> int:
    return sum(map(len, rows.values()))


@pytest.fixture(scope="module")
def ends(closed: Store) -> dict[bytes, int]:
    """Where some rows end that are whole in one page, for they are unlike all others."""
    content = closed.path.read_bytes()
    found = {key: value for key, value in sorted(closed.rows[COLOURS].items())[::10] if 100 <= len(value) < 1000}
    assert len(found) > 50
    return {key: content.rindex(value) + len(value) for key, value in found.items()}


@pytest.mark.parametrize("which", ["closed", "killed"])
def test_of_a_whole_store_everything(which: str, request: pytest.FixtureRequest) -> None:
    store: Store = request.getfixturevalue(which)
    assert salvaged(store.path, store) == store.rows


def test_progress(closed: Store) -> None:
    steps = list[tuple[int, int]]()
    salvage(closed.path, MemoryEngine(), lambda done, total: steps.append((done, total)))
    assert len(steps) > 1
    assert steps[-1] == (count(closed.rows), count(closed.rows))


@pytest.mark.parametrize("left", [0.1, 0.25, 0.5, 0.75, 0.9])
@pytest.mark.parametrize("more", [0, 1, 2000, PAGE_SIZE - 1])
def test_of_a_file_that_was_cut_off_all_rows_before_the_cut(
    closed: Store, ends: dict[bytes, int], left: float, more: int, quick_path: Path
) -> None:
    path = closed.copy(quick_path)
    size = int(path.stat().st_size * left) // PAGE_SIZE * PAGE_SIZE + more
    os.truncate(path, size)
    rows = salvaged(path, closed)
    assert {key for key, end in ends.items() if end <= size} <= set(rows[COLOURS])
    assert 0.5 * left < count(rows) / count(closed.rows) < 1


@pytest.mark.parametrize("left", [0, 0.1, 0.5, 0.9])
def test_a_file_that_was_cut_off_beside_its_log(killed: Store, left: float, quick_path: Path) -> None:
    path = killed.copy(quick_path)
    os.truncate(path, int(path.stat().st_size * left))
    rows = salvaged(path, killed)
    assert rows[COLOURS][b"late"] == b"late"


@pytest.mark.parametrize("part", [0.3, 0.6, 0.99])
def test_a_log_that_was_cut_off(killed: Store, part: float, quick_path: Path) -> None:
    """As SQLite takes it: up to the last commit that is whole."""
    path = killed.copy(quick_path)
    log = path.with_name(f"{path.name}-wal")
    os.truncate(log, int(log.stat().st_size * part))
    into = MemoryEngine()
    found, _ = salvage(path, into)
    with closing(sqlite3.connect(path)) as database:
        for number, name, rows in database.execute("SELECT number, name, rows FROM spaces").fetchall():
            select = "SELECT key, value FROM records WHERE space = ? ORDER BY key"
            assert into.scan(Space(name), weight=1 << 40, limit=ROWS) == database.execute(select, (number,)).fetchall()
            assert Salvaged(Space(name), rows, rows) in found


@pytest.mark.parametrize("seed", range(10 * THOROUGH))
@pytest.mark.parametrize("garbage", GARBAGE, ids=["zeros", "random", "ones"])
def test_pages_of_nothing(closed: Store, garbage: bytes, seed: int, quick_path: Path) -> None:
    path = closed.copy(quick_path)
    rng = random.Random(seed)
    pages = rng.sample(range(path.stat().st_size // PAGE_SIZE), 1 + seed % 4 * 3)
    overwrite(path, dict.fromkeys(set(pages) - {3, 4}, garbage))
    rows = salvaged(path, closed)
    # a page holds some forty of the smallest rows; none is lost with a page that leads to others
    assert count(rows) >= count(closed.rows) - 45 * len(pages)


@pytest.mark.parametrize("page", [0, 1, *range(5, FIRST)])
def test_a_page_that_leads_to_others_costs_no_row(closed: Store, page: int, quick_path: Path) -> None:
    path = closed.copy(quick_path)
    overwrite(path, {page: random.Random(page).randbytes(PAGE_SIZE)})
    assert salvaged(path, closed) == closed.rows


def test_every_inner_page_may_be_gone(closed: Store, quick_path: Path) -> None:
    path = closed.copy(quick_path)
    content = path.read_bytes()
    pages = set(range(FIRST, len(content) // PAGE_SIZE)) - set(MAPS)
    inner = [page for page in pages if content[page * PAGE_SIZE] in (2, 5)]
    assert len(inner) > 1
    overwrite(path, {page: bytes(PAGE_SIZE) for page in (0, ROOTS["records"] - 1, *inner)})
    assert salvaged(path, closed) == closed.rows


def test_pages_that_are_free_stay_so_when_the_map_is_gone(closed: Store, quick_path: Path) -> None:
    path = closed.copy(quick_path)
    assert path.stat().st_size > MAPS[1] * PAGE_SIZE
    overwrite(path, {page: bytes(PAGE_SIZE) for page in MAPS if page * PAGE_SIZE < path.stat().st_size})
    assert salvaged(path, closed) == closed.rows


def test_the_log_of_a_file_that_is_smaller_now(closed: Store, quick_path: Path) -> None:
    """What lies behind its end has moved to its beginning."""
    path = closed.copy(quick_path)
    engine = SqliteEngine(path)
    while engine.compact():
        pass
    batch = WriteBatch()
    for key in closed.rows[COLOURS]:
        batch.delete(COLOURS, key)
    engine.commit(batch)
    shutil.copy(path, quick_path / "killed.db")
    shutil.copy(f"{path}-wal", quick_path / "killed.db-wal")
    engine.close()
    left = Store(quick_path / "killed.db", {COLOURS: {}, OTHERS: closed.rows[OTHERS]})
    assert salvaged(left.path, left) == left.rows


@pytest.mark.parametrize("seed", range(30 * THOROUGH))
def test_bits(closed: Store, seed: int, quick_path: Path) -> None:
    path = closed.copy(quick_path)
    rng = random.Random(seed)
    content = bytearray(path.read_bytes())
    for _ in range(100):
        place = rng.randrange(len(content))
        if place // PAGE_SIZE != ROOTS["spaces"] - 1:  # names and counts have no checksum
            content[place] ^= 1 << rng.randrange(8)
    path.write_bytes(content)
    assert count(salvaged(path, closed)) > count(closed.rows) // 2


def overwrite(path: Path, pages: dict[int, bytes]) -> None:
    with path.open("rb+") as file:
        for page, content in pages.items():
            file.seek(page * PAGE_SIZE)
            file.write(content)


def test_names_come_from_the_index_when_the_table_is_gone(closed: Store, quick_path: Path) -> None:
    path = closed.copy(quick_path)
    overwrite(path, {ROOTS["spaces"] - 1: bytes(PAGE_SIZE)})
    found, _ = salvage(path, MemoryEngine())
    assert found == [Salvaged(space, len(rows), None) for space, rows in sorted(closed.rows.items())]


def test_of_a_store_whose_spaces_have_no_names_nothing(closed: Store, quick_path: Path) -> None:
    path = closed.copy(quick_path)
    overwrite(path, dict.fromkeys(range(FIRST), bytes(PAGE_SIZE)))
    with pytest.raises(StoreCorrupt, match="put a backup in its place"):
        salvage(path, MemoryEngine())


def test_many_spaces(quick_path: Path) -> None:
    """More than fit into a page."""
    engine = SqliteEngine(quick_path / "a.db")
    for number in range(500):
        put(engine, Space(f"space-{number:03}"), key=b"%d" % number)
    engine.close()
    into = MemoryEngine()
    found, _ = salvage(engine.path, into)
    assert found == [Salvaged(Space(f"space-{number:03}"), 1, 1) for number in range(500)]
    assert into.scan(Space("space-499")) == [(b"key", b"499")]


def test_where_the_tables_begin(closed: Store, quick_path: Path) -> None:
    path = closed.copy(quick_path)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        for change in ("SELECT 1", "VACUUM", f"VACUUM INTO '{quick_path / 'other.db'}'"):
            database.execute(change)
            assert dict(database.execute("SELECT name, rootpage FROM sqlite_master WHERE rootpage")) == ROOTS
    assert salvaged(path, closed) == salvaged(quick_path / "other.db", closed) == closed.rows


@pytest.mark.parametrize(
    ("damage", "finding"), [("gone", "its log killed.db-wal is gone"), ("header", "commits in its log killed.db-wal")]
)
def test_commits_that_were_lost_with_the_log_are_said(
    killed: Store, damage: str, finding: str, quick_path: Path
) -> None:
    path = killed.copy(quick_path)
    log = path.with_name(f"{path.name}-wal")
    if damage == "gone":
        log.unlink()
    else:
        log.write_bytes(b"\0" * 32 + log.read_bytes()[32:])
    _, defect = salvage(path, MemoryEngine())
    assert defect is not None
    assert finding in defect


@pytest.mark.parametrize("content", [b"", b"something else" * 10_000, bytes(1 << 20)])
def test_of_no_store_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.store").write_bytes(content)
    with pytest.raises(StoreCorrupt, match="put a backup in its place"):
        salvage(tmp_path / "a.store", MemoryEngine())


def test_pages_that_lead_in_circles(closed: Store, quick_path: Path) -> None:
    """Chains of a row's pages, and pages above pages, whatever numbers are in them."""
    path = closed.copy(quick_path)
    content = bytearray(path.read_bytes())
    for page, at in product(range(FIRST, len(content) // PAGE_SIZE, 3), (0, 8)):
        place = page * PAGE_SIZE + at
        content[place : place + 4] = (page + 1).to_bytes(4, "big")
    path.write_bytes(content)
    salvaged(path, closed)
