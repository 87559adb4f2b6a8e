"""What is read of a store's pages without SQLite is what SQLite reads."""

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.store.puts import COLOURS
from trunkline.store import WriteBatch
from trunkline.store.format import PAGE_SIZE, ROOTS
from trunkline.store.pages import Columns, Pages
from trunkline.store.sqlite import SqliteEngine

#: About the limits between what lies in a page and what lies in a chain of pages.
SIZES = (0, 1, 127, 128, 300, 1000, 3900, 4040, 4050, 4061, 4062, 5000, 4096 * 2, 4092 * 3 + 20)


@pytest.fixture
def store(quick_path: Path) -> Path:
    """Rows of all sizes, of which some are deleted: more than fit below one page."""
    rng = random.Random(1)
    engine = SqliteEngine(quick_path / "a.db")
    batch = WriteBatch()
    for number in range(700):
        batch.put(COLOURS, b"%04d" % number, rng.randbytes(SIZES[number % len(SIZES)]))
    batch.put(COLOURS, b"long" * 900, b"a key in a chain of its own")
    engine.commit(batch)
    batch = WriteBatch()
    batch.delete_range(COLOURS, b"0100", b"0300")
    engine.commit(batch)
    engine.close()
    return engine.path


def read(path: Path, *roots: str) -> list[tuple[int, Columns]]:
    with closing(Pages(path)) as pages:
        return [row for page in pages.below([ROOTS[root] for root in roots]) for row in pages.rows(page)]


def rows_of(path: Path) -> Iterator[tuple[int, Columns]]:
    with closing(sqlite3.connect(path)) as database:
        for rowid, *columns in database.execute("SELECT rowid, space, key, crc, value FROM records ORDER BY rowid"):
            yield rowid, tuple(columns)


def damage(path: Path, page: int, content: bytes = bytes(PAGE_SIZE)) -> None:
    with path.open("rb+") as file:
        file.seek((page - 1) * PAGE_SIZE)
        file.write(content)


def test_the_rows_of_a_table(store: Path) -> None:
    expected = list(rows_of(store))
    assert len(expected) == 501
    assert sorted(read(store, "records"), key=lambda row: row[0]) == expected


def test_the_keys_of_an_index_with_the_rowids_of_their_rows(store: Path) -> None:
    expected = {(columns[0], columns[1], rowid) for rowid, columns in rows_of(store)}
    found = read(store, "sqlite_autoindex_records_1")
    assert {rowid for rowid, _ in found} == {0}
    # what lies in the inner pages of an index is not among the rows of its leaves
    assert len(expected) * 0.9 < len({columns for _, columns in found}) <= len(expected)
    assert {columns for _, columns in found} <= expected


def test_names_and_counts_of_spaces(store: Path) -> None:
    ((number, (none, name, rows, _)),) = read(store, "spaces")
    assert (number, none, name, rows) == (1, None, "colours", 501)


def test_what_is_in_the_log_alone(quick_path: Path) -> None:
    engine = SqliteEngine(quick_path / "a.db")
    batch = WriteBatch()
    batch.put(COLOURS, b"key", b"late" * 2000)
    engine.commit(batch)
    assert (quick_path / "a.db-wal").stat().st_size
    assert [columns[1:4:2] for _, columns in read(engine.path, "records")] == [(b"key", b"late" * 2000)]
    engine.close()


def test_a_page_above_others_that_is_gone_costs_no_row(store: Path) -> None:
    expected = list(rows_of(store))
    damage(store, ROOTS["records"])
    assert sorted((row for row in read(store, "records") if row in expected), key=lambda row: row[0]) == expected


def test_what_was_deleted_does_not_come_back(store: Path) -> None:
    """Its pages are free, though their content is still there."""
    damage(store, ROOTS["records"])
    known = {columns for _, columns in rows_of_whole(store)}
    assert not [row for row in known if isinstance(row[1], bytes) and b"0100" <= row[1] < b"0300"]


def rows_of_whole(path: Path) -> list[tuple[int, Columns]]:
    return [row for row in read(path, "records") if len(row[1]) == 4]


def test_a_chain_that_is_broken_costs_its_row_alone(store: Path) -> None:
    expected = list(rows_of(store))
    content = store.read_bytes()
    value = max((columns[3] for _, columns in expected), key=lambda each: len(each) if isinstance(each, bytes) else 0)
    assert isinstance(value, bytes)
    page = content.index(value[-100:]) // PAGE_SIZE + 1
    begins = content.index(value[4096:4196]) // PAGE_SIZE + 1
    assert page != begins
    damage(store, begins, b"\xff" * PAGE_SIZE)
    found = {columns for _, columns in read(store, "records")}
    missing = [columns for _, columns in expected if columns not in found]
    assert [columns[3] == value for columns in missing] == [True]


def test_what_is_no_store_has_no_rows(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"something else" * 10_000)
    with closing(Pages(tmp_path / "a")) as pages:
        assert [row for page in pages.below(ROOTS.values()) for row in pages.rows(page)] == []
