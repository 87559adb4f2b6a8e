"""The backlogs of a node: the task that keeps them short."""

from collections.abc import Callable
from itertools import pairwise
from typing import TypeVar

import pytest
import trio

from tests.broker.backlogs.test_backlog import Here, Place
from trunkline.broker.backlogs import backlogs
from trunkline.broker.backlogs.backlogs import READ_AT_ONCE
from trunkline.broker.backlogs.rows import ENTRIES, FILTERS, StoredBacklog, filter_from_row
from trunkline.broker.stored_publications import MESSAGES, REFERENCES
from trunkline.mqtt.packing import pack
from trunkline.store import Engine, StoreFull, WriteBatch
from trunkline.store.engine import rows

pytestmark = pytest.mark.trio
T = TypeVar("T")


class Readable(Here):
    def __init__(self, max_length: int = 0) -> None:
        super().__init__(max_length)

        async def read(function: Callable[[Engine], T]) -> T:
            await trio.lowlevel.checkpoint()
            return function(self.engine)

        self.committer.read = read  # type: ignore[method-assign]

    async def collect(self) -> None:
        """Until there is nothing to do."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.backlogs.collect)
            for _ in range(50):
                await trio.lowlevel.checkpoint()
                self.turns.end()
                for timer in self.turns.timers:
                    if timer.armed:
                        timer.fire()
            nursery.cancel_scope.cancel()

    def counts(self) -> tuple[int, int, int]:
        return self.engine.count(ENTRIES), self.engine.count(MESSAGES), self.engine.count(FILTERS)


async def test_entries_go_when_no_member_needs_them() -> None:
    here = Readable()
    slow, quick = Place(), Place()
    member = here.backlogs.join("t", slow)
    here.backlogs.join("t", quick)
    for _ in range(10):
        here.publish("t")
    here.turns.end()
    quick.needed = here.committer.publications.number + 1
    here.backlogs.moved(member.backlog)
    await here.collect()
    assert here.counts() == (10, 10, 1)
    slow.needed = member.backlog.last
    here.backlogs.moved(member.backlog)
    await here.collect()
    assert here.counts() == (1, 1, 1)


async def test_many_entries_go_in_several_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlogs, "READ_AT_ONCE", 2)
    monkeypatch.setattr(backlogs, "TRIMMED_AT_ONCE", 4)
    here, place = Readable(), Place()
    member = here.backlogs.join("t", place)
    for _ in range(20):
        here.publish("t")
    here.turns.end()
    left: list[int] = []
    commit = here.engine.commit

    def noting(batch: WriteBatch) -> None:
        commit(batch)
        left.append(here.engine.count(ENTRIES))

    monkeypatch.setattr(here.engine, "commit", noting)
    place.needed = here.committer.publications.number + 1
    here.backlogs.moved(member.backlog)
    await here.collect()
    assert left[-1] == 0
    assert all(before - after <= 4 for before, after in pairwise([20, *left]))


@pytest.mark.parametrize("is_in_memory", [True, False])
async def test_a_publication_goes_with_the_last_entry(is_in_memory: bool) -> None:
    here = Readable()
    one, two = here.backlogs.join("t", Place()), here.backlogs.join("#", Place())
    message = here.publish("t")
    here.turns.end()
    assert message.stored is not None
    assert len(message.stored.entries) == 2
    if not is_in_memory:
        del message
    assert bool(here.committer.publications.indexed) is is_in_memory
    here.backlogs.leave(one)
    await here.collect()
    assert here.counts() == (1, 1, 1)
    here.backlogs.leave(two)
    await here.collect()
    assert here.counts() == (0, 0, 0)


@pytest.mark.parametrize("leaves", [False, True])
async def test_what_nobody_needs_of_a_refused_commit_is_not_stored(leaves: bool) -> None:
    here, place = Readable(), Place()
    member = here.backlogs.join("t", place)
    for _ in range(3):
        here.publish("t")
    here.turns.end()
    here.writer.refuses = StoreFull("no room")
    messages = [here.publish("t") for _ in range(READ_AT_ONCE + 1)]
    here.turns.end()
    here.publish("t")  # in no batch yet
    if leaves:
        here.backlogs.leave(member)
    else:
        place.needed = member.backlog.last
        here.backlogs.moved(member.backlog)
    await here.collect()
    assert [message.stored and message.stored.pins for message in messages] == [0] * len(messages)
    here.writer.refuses = None
    await here.collect()
    left = 0 if leaves else 1
    assert here.counts() == (left, left, left)
    assert here.engine.most <= 3 + 1, "the others were never stored"


async def test_a_publication_that_another_backlog_needs_stays_when_its_memory_is_gone() -> None:
    """A member that is up to date leaves while the commit goes on, and what it needs no more is deleted after that."""
    here = Readable()
    one, two = here.backlogs.join("t", Place()), here.backlogs.join("#", Place())
    here.writer.refuses = StoreFull("no room")
    here.publish("t")
    here.turns.end()
    here.backlogs.leave(one)
    here.writer.refuses = None
    for _ in range(3):
        for timer in here.turns.timers:
            if timer.armed:
                timer.fire()
        here.turns.end()
    assert not here.committer.publications.indexed
    await here.collect()
    assert here.counts() == (1, 1, 1)
    here.backlogs.leave(two)
    await here.collect()
    assert here.counts() == (0, 0, 0)


async def test_a_publication_that_a_session_refers_to_stays() -> None:
    here = Readable()
    member = here.backlogs.join("t", Place())
    message = here.publish("t")
    here.turns.end()
    assert message.stored is not None
    message.stored.references = 1
    here.backlogs.leave(member)
    await here.collect()
    assert here.counts() == (0, 1, 0)
    message.stored.references = 0
    here.committer.publications.delete_unused(message.stored)
    here.committer.after_commit(lambda: None)
    here.turns.end()
    assert here.counts() == (0, 0, 0)


async def test_a_publication_that_waits_in_a_queue_that_nobody_has_read_stays() -> None:
    here, batch = Readable(), WriteBatch()
    member = here.backlogs.join("t", Place())
    for _ in range(3):
        here.publish("t")
    here.turns.end()
    keys = [key for key, _ in here.engine.scan(MESSAGES)]
    batch.put(REFERENCES, keys[1], pack(1))
    here.engine.commit(batch)
    assert not here.committer.publications.indexed
    here.backlogs.leave(member)
    await here.collect()
    assert here.engine.count(ENTRIES) == 0
    assert [key for key, _ in here.engine.scan(MESSAGES)] == [keys[1]]


async def test_members_with_too_much_are_told() -> None:
    here = Readable(max_length=5)
    long, short = Place(), Place()
    here.backlogs.join("t", long)
    for _ in range(8):
        here.publish("t")
    here.backlogs.join("t", short)
    for _ in range(3):
        here.publish("t")
    await here.collect()
    assert (long.too_long, short.too_long) == (1, 0)


async def test_a_member_that_dropped_some_is_told_again_when_twice_the_limit_waits() -> None:
    here, place = Readable(max_length=5), Place()
    member = here.backlogs.join("t", place)
    for _ in range(11):
        here.publish("t")
    await here.collect()
    member.total = member.backlog.total - 5  # it was told, and drops all above the limit
    told: list[int] = []
    for _ in range(6):
        here.publish("t")
        await here.collect()
        told.append(place.too_long)
    assert told == [1, 1, 1, 1, 1, 2]


def stored(here: Here) -> list[StoredBacklog]:
    return [filter_from_row(key, row) for key, row in rows(here.engine, FILTERS)]


async def test_members_go_on_in_the_newest_backlog_of_their_filter() -> None:
    before = Readable()
    first = before.backlogs.join("t", Place())
    before.publish("t")
    before.turns.end()
    before.backlogs.leave(first)
    second = before.backlogs.join("t", Place())
    before.publish("t")
    before.turns.end()
    assert before.counts() == (2, 2, 2)  # what the first one left is not deleted yet
    here = Readable()
    here.engine = here.writer.engine = before.engine
    list(here.backlogs.restore(stored(before)))
    again = here.backlogs.join("t", Place(), second.since)
    here.backlogs.forget_abandoned()
    assert again.backlog.number == second.backlog.number
    await here.collect()
    assert here.counts() == (1, 1, 1)


async def test_what_was_stored_without_members_is_deleted() -> None:
    before = Readable()
    before.backlogs.join("t", Place())
    before.publish("t")
    before.turns.end()
    here = Readable()
    here.engine = here.writer.engine = before.engine
    list(here.backlogs.restore(stored(before)))
    here.backlogs.forget_abandoned()
    await here.collect()
    assert here.counts() == (0, 0, 0)
