"""Rows on their way into new parts."""

import pytest

from tests.broker.resharding.divided import all_rows
from tests.store.puts import COLOURS
from trunkline.broker.resharding import new_parts
from trunkline.broker.resharding.new_parts import NewParts
from trunkline.store.memory import MemoryEngine


def test_a_client_has_one_home() -> None:
    engines = [MemoryEngine(), MemoryEngine()]
    parts = NewParts(list(engines), lambda client_id: int(client_id == "b"))
    parts.home("a").put(COLOURS, b"a", b"1")
    parts.home("b").put(COLOURS, b"b", b"2")
    parts.put_in_all(COLOURS, b"c", b"3")
    assert not any(all_rows(engine, COLOURS) for engine in engines)
    parts.flush()
    assert [all_rows(engine, COLOURS) for engine in engines] == [
        [(b"a", b"1"), (b"c", b"3")],
        [(b"b", b"2"), (b"c", b"3")],
    ]


def test_what_waits_for_a_commit_is_bounded_for_all_parts_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new_parts, "BATCH", 20_000)
    engines = [MemoryEngine(), MemoryEngine()]
    parts = NewParts(list(engines), lambda _: 0)
    for number in range(10):
        parts.put_in_all(COLOURS, b"%d" % number, bytes(2000))
    assert [engine.count(COLOURS) for engine in engines] == [10, 10]
    parts.put_in_all(COLOURS, b"more", b"")
    assert [engine.count(COLOURS) for engine in engines] == [10, 10]
