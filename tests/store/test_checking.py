import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.store.puts import COLOURS, OTHERS, put
from trunkline.store.checking import contents, is_whole, state, structure
from trunkline.store.engine import Defect, no_progress
from trunkline.store.format import CLOSED, row_crc
from trunkline.store.sqlite import SqliteEngine


@pytest.fixture
def database(quick_path: Path) -> Iterator[sqlite3.Connection]:
    """The file of a store that was closed, with three rows."""
    engine = SqliteEngine(quick_path / "a.db")
    put(engine, COLOURS, red=b"1", blue=b"2")
    put(engine, OTHERS, red=b"3")
    engine.close()
    with closing(sqlite3.connect(quick_path / "a.db", isolation_level=None)) as opened:
        yield opened


def found(database: sqlite3.Connection) -> list[Defect]:
    return [*structure(database), *contents(database, no_progress)]


def test_a_whole_one_has_no_defects(database: sqlite3.Connection) -> None:
    assert found(database) == []
    assert state(database) == CLOSED


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        ("CREATE TABLE mine (number)", "its tables are not those of a store"),
        ("UPDATE meta SET value = 'ajar'", "whether it was closed is not known"),
        ("DELETE FROM meta", "whether it was closed is not known"),
        ("DELETE FROM records WHERE key = x'626c7565'", "rows are missing, or are not those that were written"),
        ("UPDATE spaces SET rows = rows + 1", "rows are missing, or are not those that were written"),
        ("UPDATE spaces SET total = total - 1", "rows are missing, or are not those that were written"),
        (
            "UPDATE records SET crc = crc + 1 WHERE value = x'31'",
            "rows are missing, or are not those that were written",
        ),
    ],
)
def test_what_is_wrong_without_a_look_at_the_values(database: sqlite3.Connection, damage: str, text: str) -> None:
    database.execute(damage)
    assert list(structure(database)) == [Defect(None, None, text)]


def test_a_row_that_is_another_one_is_named(database: sqlite3.Connection) -> None:
    database.execute("UPDATE records SET value = x'39' WHERE value = x'33'")
    assert found(database) == [Defect(OTHERS, b"red", "the row is not what was written")]


def test_a_row_whose_space_and_key_are_none_is_told_without_them(database: sqlite3.Connection) -> None:
    database.execute("UPDATE records SET space = 77, key = 'text' WHERE value = x'33'")
    assert Defect(None, None, "the row is not what was written") in found(database)


def test_progress_is_told_at_the_end(database: sqlite3.Connection) -> None:
    told: list[tuple[int, int]] = []
    list(contents(database, lambda done, total: told.append((done, total))))
    assert told == [(3, 3)]


def test_a_row_is_whole_if_it_has_its_checksum() -> None:
    crc = row_crc(1, b"k", b"v")
    assert is_whole(1, b"k", crc, b"v")
    for changed in ((2, b"k", crc, b"v"), (1, b"K", crc, b"v"), (1, b"k", crc + 1, b"v"), (1, b"k", crc, b"w")):
        assert not is_whole(*changed)
    for of_another_type in (("1", b"k", crc, b"v"), (1, "k", crc, b"v"), (1, b"k", crc, None)):
        assert not is_whole(*of_another_type)
