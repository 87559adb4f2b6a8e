"""What every engine does."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.store.puts import COLOURS, OTHERS, put
from trunkline.store import Engine, Space, StoreError, WriteBatch
from trunkline.store.batch import LARGE
from trunkline.store.engine import following, rows
from trunkline.store.memory import MemoryEngine
from trunkline.store.sqlite import SqliteEngine


@pytest.fixture(params=["memory", "sqlite"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    make: Callable[[], Engine] = (
        MemoryEngine if request.param == "memory" else lambda: SqliteEngine(tmp_path / "a.store")
    )
    engine = make()
    yield engine
    engine.close()


def test_reads_what_was_committed(engine: Engine) -> None:
    put(engine, COLOURS, red=b"1", blue=b"2")
    put(engine, OTHERS, red=b"3")
    put(engine, COLOURS, red=b"4")
    assert engine.get(COLOURS, b"red") == b"4"
    assert engine.get(COLOURS, b"green") is None
    assert engine.scan(COLOURS) == [(b"blue", b"2"), (b"red", b"4")]
    assert (engine.count(COLOURS), engine.count(OTHERS), engine.count(Space("none"))) == (2, 1, 0)


def test_deletes_keys_and_ranges(engine: Engine) -> None:
    put(engine, COLOURS, a=b"1", b=b"2", c=b"3", d=b"4")
    batch = WriteBatch()
    batch.put(COLOURS, b"bb", b"5")
    batch.delete_range(COLOURS, b"b", b"d")
    batch.put(COLOURS, b"c", b"6")
    batch.delete(COLOURS, b"a")
    batch.delete(COLOURS, b"absent")
    engine.commit(batch)
    assert engine.scan(COLOURS) == [(b"c", b"6"), (b"d", b"4")]
    assert engine.count(COLOURS) == 2


@pytest.mark.parametrize("put_once", [False, True])
def test_a_key_that_is_put_and_deleted_in_one_batch_is_gone(engine: Engine, put_once: bool) -> None:
    if not put_once:
        put(engine, COLOURS, a=b"1")
    batch = WriteBatch()
    batch.put(COLOURS, b"a", b"2")
    batch.delete(COLOURS, b"a", put_once=put_once)
    engine.commit(batch)
    assert engine.scan(COLOURS) == []


def test_what_is_put_later_is_packed_once_unless_it_was_deleted_or_put_since(engine: Engine) -> None:
    batch, packed = WriteBatch(), list[str]()

    def value(of: str) -> bytes:
        packed.append(of)
        return of.encode()

    for key in ("later", "deleted", "never", "put", "range"):
        batch.put_packed(COLOURS, key.encode(), LARGE, value, key)
    assert batch.weight > 5000
    batch.delete(COLOURS, b"deleted")
    batch.delete(COLOURS, b"never", put_once=True)
    batch.put(COLOURS, b"put", b"other")
    batch.delete_range(COLOURS, b"range", b"rangf")
    for _ in range(2):  # the first commit is refused, say
        batch.pack()
    engine.commit(batch)
    assert engine.scan(COLOURS) == [(b"later", b"later"), (b"put", b"other")]
    assert packed == ["later"]


def test_pages_are_bounded_in_rows_and_bytes(engine: Engine) -> None:
    put(engine, COLOURS, a=b"1" * 100, b=b"2" * 100, c=b"3", d=b"4")
    assert [key for key, _ in engine.scan(COLOURS, b"b", b"d")] == [b"b", b"c"]
    assert [key for key, _ in engine.scan(COLOURS, limit=3)] == [b"a", b"b", b"c"]
    assert [key for key, _ in engine.scan(COLOURS, weight=101)] == [b"a"]
    assert [key for key, _ in rows(engine, COLOURS, following(b"a"))] == [b"b", b"c", b"d"]


def test_a_closed_engine_refuses(engine: Engine) -> None:
    put(engine, COLOURS, a=b"1")
    engine.close()
    with pytest.raises(StoreError):
        put(engine, COLOURS, b=b"1")
    with pytest.raises(StoreError):
        engine.get(COLOURS, b"a")
