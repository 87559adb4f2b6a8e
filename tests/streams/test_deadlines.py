from collections.abc import Callable
from math import inf
from typing import TypeVar

import pytest

from tests.streams.world import World, done, single
from trunkline.mqtt.packing import unpack
from trunkline.store import Engine, StoreError, WriteBatch
from trunkline.store.engine import rows
from trunkline.store.memory import MemoryEngine
from trunkline.streams import deadlines
from trunkline.streams.deadlines import MAX_IN_ROW, MIN_ADDED, PAGE_ROWS, MessageDeadlines
from trunkline.streams.keys import STREAM_DEADLINES, deadline_in

T = TypeVar("T")


class Store:
    """Over an engine; `meanwhile` happens behind each reading, before its result is there."""

    def __init__(self) -> None:
        self.engine: Engine = MemoryEngine()
        self.index = MessageDeadlines(1)
        self.reads = 0
        self.meanwhile: Callable[[], None] = lambda: None

    async def read(self, function: Callable[[Engine], T]) -> T:
        self.reads += 1
        found = function(self.engine)
        self.meanwhile()
        return found

    async def pause(self) -> None: ...

    def commit(self) -> bool:
        batch = WriteBatch()
        self.index.write(batch)
        written = self.index.take_written()
        self.engine.commit(batch)
        return self.index.stored(written)

    @property
    def rows(self) -> list[tuple[int, list[int]]]:
        return [(deadline_in(key), unpack(value)) for key, value in rows(self.engine, STREAM_DEADLINES)]

    def ended(self, now: float) -> list[int]:
        """All that has ended, as it is worked off."""
        found: list[int] = []
        while self.index.next_due <= now:
            done(self.index.read(self, now))
            while self.index.ending:
                found += self.index.ending[0].left[::-1]
                self.index.ended()
        return found


def test_what_ends_about_the_same_time_and_came_together_shares_a_row() -> None:
    store = Store()
    for sequence, deadline in enumerate([10.0, 10.1, 10.25, 10.24, 99.0], 1):
        store.index.note(sequence, 1, deadline)
    assert store.commit()
    assert store.rows == [(40, [1]), (41, [2, 3, 4]), (396, [5])]
    assert store.index.next_due == 10
    assert store.ended(9.9) == []
    assert store.ended(10.2) == [1]
    assert store.index.next_due == 10.25
    assert store.ended(50) == [2, 3, 4]
    store.commit()
    assert store.rows == [(396, [5])]
    assert store.index.next_due == 99


def test_who_commits_hears_of_what_ends_sooner_and_of_nothing_else() -> None:
    store = Store()
    store.index.note(1, 1, 50.0)
    assert store.index.next_due == inf, "what is not stored does not end"
    assert store.commit()
    store.index.note(2, 1, 60.0)
    assert not store.commit()
    assert not store.commit()
    store.index.note(3, 1, 40.0)
    assert store.commit()


def test_many_end_in_pages() -> None:
    store = Store()
    count = MAX_IN_ROW * PAGE_ROWS * 2 + 5
    store.index.note(1, count, 10.0)
    store.commit()
    assert all(len(sequences) <= MAX_IN_ROW for _, sequences in store.rows)
    assert store.ended(10) == list(range(1, count + 1))
    assert store.reads == 4  # three pages, and a look whether there is one more
    assert store.ended(10) == []
    assert store.reads == 4


def test_what_is_stored_while_others_read_is_found() -> None:
    store = Store()
    store.index.note(1, 1, 10.0)
    store.commit()

    def meanwhile() -> None:
        store.meanwhile = lambda: None
        store.index.note(2, 1, 11.0)
        store.commit()

    store.meanwhile = meanwhile
    assert store.ended(10) == [1]
    assert store.index.next_due == 11
    assert store.ended(11) == [2]


def test_a_reading_that_fails_changes_nothing() -> None:
    store = Store()
    store.index.note(1, 1, 10.0)
    store.commit()

    def fail() -> None:
        store.meanwhile = lambda: None
        raise StoreError("no")

    store.meanwhile = fail
    with pytest.raises(StoreError):
        store.ended(10)
    assert store.ended(10) == [1]


def test_a_restart_reads_nothing_and_finds_all() -> None:
    store = Store()
    store.index.note(1, 3, 10.0)
    store.commit()
    store.index.note(4, 1, 20.0)  # is lost
    store.index = MessageDeadlines(1)
    store.index.restore(3)
    assert store.reads == 0
    assert store.ended(5) == []
    assert store.index.next_due == 10
    assert store.ended(30) == [1, 2, 3]


def test_another_stream_has_its_own() -> None:
    store, other = Store(), MessageDeadlines(2)
    other.note(1, 1, 10.0)
    batch = WriteBatch()
    other.write(batch)
    store.engine.commit(batch)
    store.index.restore(0)
    assert store.ended(100) == []


def test_a_pass_drops_those_that_are_gone() -> None:
    store = Store()
    count = MIN_ADDED + 10
    store.index.note(1, count, 10.0)
    store.index.note(count + 1, 2, 11.0)
    store.commit()
    assert not store.index.is_untidy(count)
    assert store.index.is_untidy(1)
    while store.index.is_untidy(1):
        done(store.index.tidy(store, lambda sequence: sequence in (5, count + 2)))
    store.commit()
    assert store.rows == [(40, [5]), (44, [count + 2])]
    assert store.index.added == 0
    assert store.ended(20) == [5, count + 2]


def test_a_stream_whose_keys_are_written_anew_keeps_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message takes the place of the one before, long before its life is over."""
    monkeypatch.setattr(deadlines, "MIN_ADDED", 50)
    world = World()
    world.create("#", allow_message_ttl=True, max_messages_per_topic=1)
    for _ in range(500):
        world.take(single("a", ttl="100h"))
        world.commit()
    assert world.engine.count(STREAM_DEADLINES) <= 60
    world.restart()
    world.now += 360_000
    world.settle()
    assert world.stream.log.messages == 0
