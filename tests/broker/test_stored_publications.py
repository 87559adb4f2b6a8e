"""Publications that are stored once for all that have them."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.broker.committing import House, Value
from trunkline.broker.committer import Committer
from trunkline.broker.stored_publications import MESSAGES, REFERENCES, StoredPublications, stored_bytes
from trunkline.mqtt.message import Message
from trunkline.mqtt.packing import unpack
from trunkline.mqtt.stored import IndexEntry
from trunkline.store import Space, StoreCorrupt, WriteBatch
from trunkline.store.engine import key_of


def test_what_waits_in_backlogs_is_stored_again_by_itself_when_more_of_it_is_routed() -> None:
    house, message = House(), Message("t", b"x", 1)
    house.committer.publications.routed(message)
    first = message.stored
    assert first is not None
    house.committer.publications.routed(message)
    assert message.stored is first
    first.entries = ((1, 1),)
    house.committer.publications.routed(message)
    second = message.stored
    assert second is not None
    assert (second.number, second.entries) == (first.number + 1, ())


def test_a_publication_is_safe_when_nobody_holds_it_any_more() -> None:
    house, message = House(), Message("t", b"x", 1)
    stored = house.committer.publications.of(message)
    stored.pins += 2
    house.committer.publications.wait_for(stored, house.tell("safe"))
    house.set(Value(b"k"), 1)
    house.turns.end()
    assert len(house.writer.batches) == 1
    house.committer.publications.unpin(stored, 1)
    house.turns.end()
    assert house.told == []
    house.committer.publications.unpin(stored, 1)
    house.turns.end()
    assert house.told == ["safe"]  # before the commit is done
    house.writer.end()
    assert house.told == ["safe"]


def test_who_waits_for_a_publication_is_told_once() -> None:
    house = House()
    stored = house.committer.publications.of(Message("t", b"x", 1))
    stored.pins += 1
    house.committer.publications.wait_for(stored, house.tell("safe"))
    house.set(Value(b"k"), 1)
    house.turns.end()
    house.writer.end()
    assert house.told == ["safe"]
    house.committer.publications.unpin(stored, 1)
    house.turns.end()
    assert house.told == ["safe"]


def test_nobody_waits_any_more_for_a_publication_that_is_done_with_while_a_commit_runs() -> None:
    house, message = House(), Message("t", b"x", 1)
    house.set(Value(b"k"), 1)
    house.fire()
    stored = house.committer.publications.of(message)
    stored.pins += 1
    house.committer.publications.wait_for(stored, house.tell("safe"))
    house.turns.end()
    assert house.committer.waiting == 1
    house.committer.publications.unpin(stored, 1)
    house.turns.end()
    assert (house.told, house.committer.waiting) == (["safe"], 0)


def test_a_publication_that_is_done_with_in_its_turn_is_never_written() -> None:
    house, message = House(), Message("t", b"x", 1)
    stored = house.committer.publications.of(message)
    stored.pins += 1
    house.committer.publications.wait_for(stored, house.tell("safe"))
    house.committer.publications.unpin(stored, 1)
    house.turns.end()
    assert (house.told, house.writer.batches) == (["safe"], [])


class Holder:
    """An entry for a publication."""

    owner: Any = None

    def __init__(self, committer: Committer, message: Message, *, holds: bool) -> None:
        self._committer = committer
        self._message = message
        self.holds = holds

    def write(self, batch: WriteBatch) -> None:
        stored = self._committer.publications.of(self._message)
        if self.holds:
            self._committer.publications.put(stored, batch, 1)
        else:
            self._committer.publications.unrefer(stored)


def test_a_publication_that_goes_from_one_session_to_another_stays() -> None:
    house, message = House(), Message("t", b"x", 1)
    first, second = (Holder(house.committer, message, holds=True) for _ in range(2))
    house.committer.change(first)
    house.fire()
    house.fire()
    house.writer.end()
    first.holds = False
    house.committer.change(first)  # it is let go of before it is taken
    house.committer.change(second)
    house.fire()
    house.fire()
    assert len(house.writer.batches) == 1  # there is nothing to write
    second.holds = False
    house.committer.change(second)
    house.fire()
    house.fire()
    assert house.writer.batches[1].values[MESSAGES] == {(1).to_bytes(8, "big"): None}
    house.writer.end()
    assert house.committer.publications.of(message).number == 2, "it is in the store no more"
    house.set(Value(b"k"), 1)
    house.fire()
    assert MESSAGES not in house.writer.batches[2].values, "it is deleted once"


def test_what_came_to_wait_while_a_commit_ran_is_in_the_next_one_at_once() -> None:
    house = House()
    house.set(Value(b"k"), 1)
    house.fire()
    stored = house.committer.publications.of(Message("t", b"x", 1))
    stored.pins += 1
    house.committer.publications.wait_for(stored, house.tell("safe"))
    house.turns.end()
    house.writer.end()
    assert house.told == []
    house.turns.end()
    assert house.told == ["safe"]


# What the store says of rows in queues


class Notes:
    def __init__(self) -> None:
        self.publications = StoredPublications(lambda: None, 0, 0.0)
        self.stored = self.publications.of(Message("t", b"x", 1))

    def commit(self, *, queue: int = 0, window: int = 0) -> tuple[int | None, bool]:
        """So many rows more. Returns what is noted of those of queues, if anything, and whether the publication is
        found in memory until this is stored."""
        publications, batch = self.publications, WriteBatch()
        for _ in range(queue):
            publications.put_queued(self.stored, batch)
        for _ in range(-queue):
            publications.unrefer_queued(self.stored)
        for _ in range(window):
            publications.put(self.stored, batch, 1)
        for _ in range(-window):
            publications.unrefer(self.stored)
        is_held = self.stored in publications.write(batch)
        rows = batch.values.get(REFERENCES, {})
        return (unpack(row) if (row := rows[key_of(1)]) else 0) if rows else None, is_held


def test_the_only_row_of_a_publication_is_not_noted() -> None:
    notes = Notes()
    assert notes.commit(queue=1) == (None, True)
    assert notes.commit(queue=2) == (3, True)
    assert notes.commit(queue=-1) == (2, True)
    assert notes.commit(queue=-1) == (0, True)
    assert notes.commit(queue=-1) == (None, True)


def test_a_row_of_a_queue_is_noted_beside_one_of_a_window() -> None:
    notes = Notes()
    assert notes.commit(queue=1) == (None, True)
    assert notes.commit(window=1) == (1, True)
    assert notes.commit(queue=-1) == (0, True)


def test_a_row_of_a_queue_is_noted_beside_an_entry_of_a_backlog_whichever_came_first() -> None:
    for is_first in (True, False):
        notes = Notes()
        if is_first:
            notes.publications.indexed_by(notes.stored, (1, 1))
            assert notes.commit() == (None, False)
        else:
            assert notes.commit(queue=1) == (None, True)
            notes.publications.indexed_by(notes.stored, (1, 1))
        assert notes.commit(queue=is_first) == (1, True)
        assert notes.commit(queue=1) == (2, True)
        assert notes.commit(queue=-1) == (1, True)


def test_who_reads_while_rows_are_counted_finds_the_publication_in_memory_for_one_commit_more() -> None:
    notes, other = Notes(), Notes()
    other.publications = notes.publications
    other.stored = notes.publications.of(Message("t", b"y", 1))
    assert notes.commit(queue=2) == (2, True)
    assert notes.commit() == (None, True)
    assert notes.commit() == (None, False)
    assert notes.commit(queue=1) == (3, True)
    other.commit(queue=1)
    assert notes.commit() == (None, False)


def test_a_publication_that_no_queue_has_is_not_held_for_its_rows() -> None:
    notes = Notes()
    assert notes.commit(window=2) == (None, False)


@pytest.mark.parametrize("needed", [True, False])
def test_a_publication_without_rows_stays_as_long_as_an_entry_of_a_backlog_is_needed(needed: bool) -> None:
    notes = Notes()

    def is_needed(entries: Iterable[IndexEntry]) -> bool:
        return needed and list(entries) == [(2, 3)]

    notes.publications.is_needed = is_needed
    notes.publications.indexed_by(notes.stored, (2, 3))
    assert notes.publications.found(1, 0, (), 0) is notes.stored
    notes.commit(window=1)
    notes.commit(window=-1)
    assert notes.stored.written is needed


def test_a_publication_that_is_found_is_as_it_was_stored() -> None:
    publications = StoredPublications(lambda: None, 0, 0.0)
    stored = publications.found(1, 7, ((2, 3),), 4)
    assert (stored.first_guid, stored.entries, stored.noted) == (7, ((2, 3),), 4)
    assert (stored.queued, stored.references) == (4, 4)
    assert publications.found(1, 7, (), 0, in_queue=True) is stored
    alone = publications.found(2, 8, (), 0, in_queue=True)
    assert (alone.noted, alone.queued, alone.references) == (0, 1, 1)
    assert publications.found(3, 9, (), 0).references == 0


def test_one_that_is_damaged_is_not_there(caplog: pytest.LogCaptureFixture) -> None:
    def damaged(space: Space, key: bytes) -> bytes:
        raise StoreCorrupt("a damaged row")

    engine: Any = SimpleNamespace(get=damaged)
    assert stored_bytes(engine, 1) is None
    assert caplog.messages == ["a damaged row"]
