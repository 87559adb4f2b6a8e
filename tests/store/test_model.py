"""Every engine against a dictionary, with random batches, closed and opened again at random."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tests.store.conftest import MEMORY
from trunkline.store import Engine, Space, WriteBatch
from trunkline.store.engine import rows
from trunkline.store.memory import MemoryEngine
from trunkline.store.sqlite import SqliteEngine

SPACES = [Space("a"), Space("b"), Space("c")]
spaces = st.sampled_from(SPACES)
# few, with prefixes of each other and with bytes at both ends
keys = st.lists(st.sampled_from([b"\0", b"a", b"b", b"\xff"]), max_size=3).map(b"".join)
values = st.one_of(st.binary(max_size=20), st.integers(1000, 20_000).map(lambda size: b"v" * size))
changes = st.one_of(
    st.tuples(st.just("put"), spaces, keys, values),
    st.tuples(st.just("delete"), spaces, keys),
    st.tuples(st.just("delete_range"), spaces, keys, keys),
)


class Machine(RuleBasedStateMachine):
    """With an engine that is never closed."""

    def __init__(self) -> None:
        super().__init__()
        self.model: dict[Space, dict[bytes, bytes]] = {space: {} for space in SPACES}
        self.engine: Engine = self.make()

    def make(self) -> Engine:
        return MemoryEngine()

    @rule(noted=st.lists(changes, max_size=12))
    def commit(self, noted: list[tuple[str, Space, bytes, bytes]]) -> None:
        batch = WriteBatch()
        for name, space, *arguments in noted:
            getattr(batch, name)(space, *arguments)
            known = self.model[space]
            if name == "put":
                known[arguments[0]] = arguments[1]
            elif name == "delete":
                known.pop(arguments[0], None)
            else:
                low, high = arguments
                self.model[space] = {key: value for key, value in known.items() if not low <= key < high}
        self.engine.commit(batch)

    @rule(space=spaces, number=st.integers(100, 2000))
    def commit_many(self, space: Space, number: int) -> None:
        batch = WriteBatch()
        for key in range(number):
            batch.put(space, b"m%d" % key, b"%d" % number)
            self.model[space][b"m%d" % key] = b"%d" % number
        self.engine.commit(batch)

    @rule(space=spaces, low=keys, high=st.none() | keys, limit=st.integers(1, 5), weight=st.integers(1, 2000))
    def scan(self, space: Space, low: bytes, high: bytes | None, limit: int, weight: int) -> None:
        expected = [
            row for row in sorted(self.model[space].items()) if row[0] >= low and (high is None or row[0] < high)
        ]
        page = self.engine.scan(space, low, high, limit=limit, weight=weight)
        assert page == expected[: len(page)]
        assert len(page) <= limit
        assert sum(len(key) + len(value) for key, value in page[:-1]) < weight
        assert list(rows(self.engine, space, low, high)) == expected

    @rule(space=spaces, key=keys)
    def get(self, space: Space, key: bytes) -> None:
        assert self.engine.get(space, key) == self.model[space].get(key)

    @rule()
    def maintain(self) -> None:
        self.engine.maintain()

    @rule(limit=st.integers(1, 100_000))
    def compact(self, limit: int) -> None:
        self.engine.compact(limit)

    @invariant()
    def counts(self) -> None:
        assert [self.engine.count(space) for space in SPACES] == [len(self.model[space]) for space in SPACES]

    @rule()
    def check(self) -> None:
        assert list(self.engine.check()) == []

    def teardown(self) -> None:
        for space in SPACES:
            assert self.engine.scan(space, limit=10_000, weight=1 << 30) == sorted(self.model[space].items())
        self.engine.close()


class SqliteMachine(Machine):
    def make(self) -> Engine:
        self.folder = tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)
        return self.opened()

    def opened(self) -> Engine:
        return SqliteEngine(Path(self.folder.name, "a.store"), durability="os")

    @rule()
    def open_again(self) -> None:
        self.engine.close()
        self.engine = self.opened()

    @rule()
    def read_beside(self) -> None:
        beside = SqliteEngine(Path(self.folder.name, "a.store"), read_only=True)
        for space in SPACES:
            assert beside.scan(space, limit=10_000, weight=1 << 30) == sorted(self.model[space].items())
        beside.close()

    def teardown(self) -> None:
        super().teardown()
        self.folder.cleanup()


@pytest.mark.parametrize("kind", [Machine, SqliteMachine])
def test_an_engine_is_a_dictionary_that_lasts(kind: type[Machine]) -> None:
    run_state_machine_as_test(kind, settings=settings(max_examples=20, stateful_step_count=20))
