"""What is whole of a damaged store, whatever the damage."""

import random
from pathlib import Path

import pytest

from tests.store.test_engine import COLOURS, OTHERS, put
from trunkline.store import StoreCorrupt
from trunkline.store.memory import MemoryEngine
from trunkline.store.salvage import Salvaged, salvage
from trunkline.store.sqlite import SqliteEngine

PAGE = 4096


@pytest.fixture
def file(tmp_path: Path) -> Path:
    engine = SqliteEngine(tmp_path / "a.store")
    put(engine, COLOURS, **{f"{number:04}": b"%04d" % number * 100 for number in range(500)})
    put(engine, OTHERS, red=b"\xff" * 20_000)
    engine.close()
    return tmp_path / "a.store"


def test_of_a_whole_store_everything(file: Path) -> None:
    into, steps = MemoryEngine(), list[tuple[int, int]]()
    found = salvage(file, into, lambda done, total: steps.append((done, total)))
    assert found == [Salvaged(COLOURS, 500, 500), Salvaged(OTHERS, 1, 1)]
    assert into.scan(OTHERS) == [(b"red", b"\xff" * 20_000)]
    assert steps[-1] == (501, 501)


@pytest.mark.parametrize("seed", range(30))
def test_rows_of_whole_pages_are_kept(file: Path, seed: int) -> None:
    rng = random.Random(seed)
    content = bytearray(file.read_bytes())
    pages = rng.sample(range(5, len(content) // PAGE), rng.randint(1, 4))
    for page in pages:
        content[page * PAGE : (page + 1) * PAGE] = rng.choice([bytes(PAGE), rng.randbytes(PAGE), b"\xff" * PAGE])
    file.write_bytes(content)
    into = MemoryEngine()
    try:
        (colours, others) = salvage(file, into)
    except StoreCorrupt:
        assert 0 in pages
        return
    kept = into.scan(COLOURS)
    assert len(kept) == colours.rows
    assert all(value == key * 100 for key, value in kept), "nothing that was not written"
    # ten rows are in a page; one of the pages may be what leads to the others
    assert colours.rows >= 500 - 11 * len(pages) or any(page < 10 for page in pages)
    assert others.rows in (0, 1)


def test_names_come_from_the_index_when_the_table_is_gone(file: Path) -> None:
    content = bytearray(file.read_bytes())
    (page,) = [at for at in range(1, len(content) // PAGE) if is_table_of_names(content, at)]
    content[page * PAGE : (page + 1) * PAGE] = bytes(PAGE)
    file.write_bytes(content)
    assert salvage(file, MemoryEngine()) == [Salvaged(COLOURS, 500, None), Salvaged(OTHERS, 1, None)]


def is_table_of_names(content: bytes, page: int) -> bool:
    data = content[page * PAGE : (page + 1) * PAGE]
    return data[0] == 0x0D and b"colours" in data


def test_of_a_file_that_was_cut_off_what_sqlite_finds_a_way_to(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: len(content) * 9 // 10])
    into = MemoryEngine()
    found = {each.space: each.rows for each in salvage(file, into)}
    assert found[COLOURS] > 400
    assert all(value == key * 100 for key, value in into.scan(COLOURS))


def test_of_no_store_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.store").write_bytes(b"something else" * 1000)
    with pytest.raises(StoreCorrupt, match="put a backup in its place"):
        salvage(tmp_path / "a.store", MemoryEngine())
