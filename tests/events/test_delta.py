"""Rows and the number of the next one are one commit of the table."""

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from tests.events.logs import KEY, expected
from trunkline.events.delta import TABLE_SCHEMA, DeltaTarget, application
from trunkline.events.layout import LogError
from trunkline.events.schema import SCHEMA
from trunkline.events.target import Missing, Piece, Written


def rows(first: int, end: int) -> pa.RecordBatch:
    (batch,) = expected(first, end).combine_chunks().to_batches()
    return batch


def contents(path: Path) -> pa.Table:
    """All rows in the order of their numbers, by what the table's log says of it."""
    files = deltalake.DeltaTable(path).file_uris()
    table = ds.dataset(files, schema=TABLE_SCHEMA, partitioning=ds.partitioning(flavor="hive")).to_table()
    return table.sort_by("seq")


def meanwhile(path: Path, first: int, end: int) -> None:
    """Somebody else writes; in a thread, as the library cannot be called by the rows that it asks for."""
    thread = threading.Thread(target=lambda: DeltaTarget(path).write(KEY, first, end, iter([rows(first, end)])))
    thread.start()
    thread.join()


def test_rows_are_added_with_the_number_of_the_next(tmp_path: Path) -> None:
    target = DeltaTarget(tmp_path / "t")
    assert target.next_seq(KEY) is None
    assert target.write(KEY, 0, 30, iter([rows(0, 10), rows(10, 30)])) == Written(30, 30, 1, 0, 0)
    assert target.next_seq(KEY) == 30
    assert target.write(KEY, 30, 40, iter([rows(30, 40)])).end == 40
    assert DeltaTarget(tmp_path / "t").next_seq(KEY) == 40
    other = KEY._replace(name="other")
    assert target.next_seq(other) is None
    found = contents(tmp_path / "t")
    assert found.select(SCHEMA.names).equals(expected(0, 40))
    table = deltalake.DeltaTable(tmp_path / "t")
    assert table.version() == 1
    assert table.metadata().partition_columns == ["date"]
    actions: Any = table.get_add_actions(flatten=True)
    assert {f"{day}" for day in pa.table(actions).column("partition.date").to_pylist()} == {"2025-11-21"}


def test_for_missing_rows_there_is_one_that_says_so(tmp_path: Path) -> None:
    target = DeltaTarget(tmp_path / "t")
    pieces: list[Piece] = [rows(0, 10), Missing(10, 5, rows(10, 11)), rows(15, 20)]
    assert target.write(KEY, 0, 20, iter(pieces)) == Written(20, 15, 1, 0, 5)
    assert contents(tmp_path / "t").column("seq").to_pylist() == [*range(11), *range(15, 20)]


def test_nothing_is_added_when_the_rows_break_off(tmp_path: Path) -> None:
    def pieces() -> Iterator[Piece]:
        yield rows(0, 10)
        raise LogError("rows 10 to 19 are corrupt")

    with pytest.raises(LogError, match="^rows 10 to 19 are corrupt$"):
        DeltaTarget(tmp_path / "t").write(KEY, 0, 20, pieces())
    assert not deltalake.DeltaTable.is_deltatable(str(tmp_path / "t"))


def test_of_two_that_add_the_same_rows_one_is_refused(tmp_path: Path) -> None:
    target = DeltaTarget(tmp_path / "t")
    target.write(KEY, 0, 10, iter([rows(0, 10)]))

    def pieces() -> Iterator[Piece]:
        yield rows(10, 15)
        meanwhile(tmp_path / "t", 10, 20)
        yield rows(15, 20)

    with pytest.raises(LogError, match=r"t: .*Concurrent transaction"):
        target.write(KEY, 10, 20, pieces())
    with pytest.raises(LogError, match="somebody else has added rows of n1@1763739192123, up to 20"):
        target.write(KEY, 10, 20, iter([rows(10, 20)]))
    assert contents(tmp_path / "t").column("seq").to_pylist() == list(range(20))


def test_nodes_are_added_beside_each_other(tmp_path: Path) -> None:
    target = DeltaTarget(tmp_path / "t")
    target.write(KEY, 0, 10, iter([rows(0, 10)]))
    other = KEY._replace(name="other")

    def pieces() -> Iterator[Piece]:
        meanwhile(tmp_path / "t", 10, 20)
        yield rows(0, 10)

    target.write(other, 0, 10, pieces())
    assert [target.next_seq(key) for key in (KEY, other)] == [20, 10]
    assert contents(tmp_path / "t").num_rows == 30


def test_a_table_of_others_is_named(tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path / "t", pa.table({"seq": ["a"]}))
    with pytest.raises(LogError, match=str(tmp_path / "t")):
        DeltaTarget(tmp_path / "t").write(KEY, 0, 10, iter([rows(0, 10)]))


def test_the_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(LogError, match=r"pip install 'trunkline\[lake\]'"):
        DeltaTarget("anywhere")


def test_the_name_of_a_node_in_the_table_says_whose_it_is() -> None:
    assert application(KEY) == "trunkline-events n1@1763739192123"
