from pathlib import Path

import pytest

from tests.store.puts import COLOURS, OTHERS, put
from trunkline.store import StoreUnavailable
from trunkline.store.memory import MemoryEngine


def test_there_is_nothing_on_a_disk(tmp_path: Path) -> None:
    engine = MemoryEngine()
    put(engine, COLOURS, red=b"1")
    engine.verify()
    engine.maintain()
    engine.check_files()
    engine.limit(1)
    assert (list(engine.check()), engine.size(), engine.compact()) == ([], 0, 0)
    with pytest.raises(StoreUnavailable, match=r"copy\.db: a store in memory has no file to back up"):
        engine.backup(tmp_path / "copy.db")
    assert engine.get(COLOURS, b"red") == b"1"


def test_spaces_are_those_that_were_asked_for_in_order() -> None:
    engine = MemoryEngine()
    put(engine, OTHERS, red=b"1")
    put(engine, COLOURS, red=b"1")
    assert engine.spaces() == [COLOURS, OTHERS]


def test_a_closed_one_refuses_whatever_needs_it() -> None:
    engine = MemoryEngine()
    put(engine, COLOURS, red=b"1")
    engine.close()
    for use in (lambda: engine.get(COLOURS, b"red"), lambda: engine.scan(COLOURS), lambda: put(engine, COLOURS)):
        with pytest.raises(StoreUnavailable, match="the store is closed"):
            use()


def test_two_of_them_have_nothing_in_common() -> None:
    one, two = MemoryEngine(), MemoryEngine()
    put(one, COLOURS, red=b"1")
    assert two.get(COLOURS, b"red") is None
