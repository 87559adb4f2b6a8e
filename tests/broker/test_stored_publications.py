"""Publications that are stored once for all that have them."""

from typing import Any

from tests.broker.committing import House, Value
from trunkline.broker.committer import Committer
from trunkline.broker.stored_publications import MESSAGES
from trunkline.mqtt.message import Message
from trunkline.store import WriteBatch


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
    house.committer.publications.pin(stored, 2)
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
    house.committer.publications.pin(stored, 1)
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
    house.committer.publications.pin(stored, 1)
    house.committer.publications.wait_for(stored, house.tell("safe"))
    house.turns.end()
    assert house.committer.waiting == 1
    house.committer.publications.unpin(stored, 1)
    house.turns.end()
    assert (house.told, house.committer.waiting) == (["safe"], 0)


def test_a_publication_that_is_done_with_in_its_turn_is_never_written() -> None:
    house, message = House(), Message("t", b"x", 1)
    stored = house.committer.publications.of(message)
    house.committer.publications.pin(stored, 1)
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
            self._committer.publications.refer(stored, batch)
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
    house.committer.publications.pin(stored, 1)
    house.committer.publications.wait_for(stored, house.tell("safe"))
    house.turns.end()
    house.writer.end()
    assert house.told == []
    house.turns.end()
    assert house.told == ["safe"]
