"""Rows of queues that share their publications, some of them unread: each is there as long as a row needs it, and no
longer."""

from itertools import accumulate
from types import SimpleNamespace
from typing import Any, Unpack, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.broker.session.test_durable import EPOCH, Home, committer_of
from tests.conformance import raw
from trunkline.broker.backlogs.merge import Merge
from trunkline.broker.backlogs.rows import ENTRIES, entry_from_row
from trunkline.broker.routes import Subscriber
from trunkline.broker.session.mqueue import HIGHEST, LOWEST, Overflow, QueueSettings
from trunkline.broker.session.recovery import Recovery
from trunkline.broker.session.stored_queue import (
    FEW,
    NO_HEAD,
    PRIVATE,
    QueueHead,
    StoredHead,
    StoredQueue,
    head_from_row,
    head_to_row,
    place_in_queue,
    private_entries,
    sequence_of,
)
from trunkline.broker.session.stored_sessions import find
from trunkline.broker.session.stored_window import WINDOWS
from trunkline.broker.stored_publications import MESSAGES, REFERENCES
from trunkline.hooks.client import ClientInfo
from trunkline.mqtt.message import Message
from trunkline.mqtt.packing import pack
from trunkline.mqtt.publication import Publication, PublishBatch
from trunkline.mqtt.versions import Version
from trunkline.router import Member, Options, Router, Target
from trunkline.store import WriteBatch
from trunkline.store.engine import NUMBER_SIZE, key_of
from trunkline.store.memory import MemoryEngine

CLIENTS = ("a", "b", "c")
some = st.sets(st.sampled_from(CLIENTS))


class QueuesShareTheirPublications(RuleBasedStateMachine):
    """What a session has to get is in its window or its queue, where a model says so."""

    @initialize()
    def begin(self) -> None:
        self.engine = MemoryEngine()
        self.committer, self.turns, _ = committer_of(self.engine)
        home = Home(self.committer, {})
        for number, client_id in enumerate(CLIENTS, 1):
            home.add(ClientInfo(client_id), number).session.left_at = 0.0
        self.actors: dict[str, Any] = {actor.session.client_id: actor for actor in home.actors}
        self.queued: dict[str, list[bytes]] = {client_id: [] for client_id in CLIENTS}
        self.sent: dict[str, list[bytes]] = {client_id: [] for client_id in CLIENTS}
        self.guid = 0
        #: A message for nobody's window or queue alone: an entry of a backlog refers to it.
        self.needed: set[int] = set()
        self.needs()

    def needs(self) -> None:
        self.committer.publications.is_needed = lambda entries: any(number in self.needed for number, _ in entries)

    @rule(to=some, at_once=some, is_in_backlog=st.booleans())
    def publish(self, to: set[str], at_once: set[str], is_in_backlog: bool) -> None:
        self.guid += 1
        message = Message("t", b"%d" % self.guid, 1)
        message.guid = self.guid
        stored = self.committer.publications.of(message)
        if is_in_backlog:  # of the filter with this number
            self.needed.add(stored.number)
            self.committer.publications.indexed_by(stored, (stored.number, stored.number))
        for client_id in to:
            actor = self.actors[client_id]
            target = Target(actor.subscriber, Options(1))
            if client_id in at_once and actor.session.inflight.room:
                actor.session.inflight.insert(message, target, 1, 0.0)
                self.sent[client_id].append(message.payload)
            elif len(self.queued[client_id]) < 6:
                actor.session.queue.push(message, target, 1)
                self.queued[client_id].append(message.payload)

    @rule(client_id=st.sampled_from(CLIENTS), to_window=st.booleans())
    def pop(self, client_id: str, to_window: bool) -> None:
        actor = self.actors[client_id]
        actor.read(self.engine)
        session = actor.session
        for message, target, *_ in session.queue.take(session.inflight.room, 0.0):
            assert message.payload == self.queued[client_id].pop(0)
            if to_window:
                session.inflight.insert(message, target, 1, 0.0)
                self.sent[client_id].append(message.payload)

    @rule(client_id=st.sampled_from(CLIENTS))
    def acknowledge(self, client_id: str) -> None:
        if self.sent[client_id]:
            ((message, _, _),) = self.actors[client_id].session.inflight.remove_oldest(1)
            assert message.payload == self.sent[client_id].pop(0)

    @rule(client_id=st.sampled_from(CLIENTS))
    def end(self, client_id: str) -> None:
        """And a new one takes its place."""
        actor = self.actors[client_id]
        actor.read(self.engine)
        actor.session.inflight.remove_oldest(10)
        actor.session.durable.forget()
        self.queued[client_id], self.sent[client_id] = [], []
        number = 1 + max([each.session.durable.number for each in self.actors.values()])
        home = Home(self.committer, {})
        self.actors[client_id] = home.add(ClientInfo(client_id), number)
        self.actors[client_id].session.left_at = 0.0

    @rule()
    def commit(self) -> None:
        for actor in self.actors.values():
            actor.session.durable.changed()
        self.committer.after_commit(lambda: None)
        self.turns.end()

    @rule(read=some)
    def restart(self, read: set[str]) -> None:
        self.commit()
        found = find(self.engine)
        self.committer, self.turns, _ = committer_of(self.engine, found.last_number)
        self.needs()
        home: Any = Home(self.committer, {})
        list(Recovery(found, home, Router(), EPOCH, 0.0, self.committer).restore())
        self.actors = {actor.session.client_id: actor for actor in home.actors}
        for client_id, actor in self.actors.items():
            assert actor.session.queue.length == len(self.queued[client_id])
            if client_id in read:
                self.look(client_id)

    def look(self, client_id: str) -> None:
        actor = self.actors[client_id]
        actor.read(self.engine)
        assert [message.payload for message, *_ in actor.session.queue] == self.queued[client_id]
        _, sent = actor.session.inflight.export()
        assert [message.payload for _, _, message, _ in sent] == self.sent[client_id]

    def teardown(self) -> None:
        if not hasattr(self, "needed"):
            return
        for client_id in CLIENTS:
            self.look(client_id)
        self.restart(set())
        backlogs = set(self.needed)
        self.needed.clear()
        for client_id in CLIENTS:
            self.end(client_id)
        self.commit()
        # those that an entry alone refers to are deleted with it, see `Backlogs`
        left = [int.from_bytes(key, "big") for key, _ in self.engine.scan(MESSAGES)]
        assert backlogs.issuperset(left)
        assert not self.engine.count(REFERENCES)
        assert not self.engine.count(ENTRIES)


TestQueues = QueuesShareTheirPublications.TestCase
TestQueues.settings = settings(stateful_step_count=40, max_examples=100)


def test_a_head_is_read_as_it_was_written_and_one_of_former_versions_says_nothing_of_the_queue() -> None:
    head = StoredHead(7, QueueHead(17, 1234, {0: (3, 3), 256: (9, 1)}))
    assert head_from_row(head_to_row(head)) == head
    assert head_from_row(head_to_row(NO_HEAD)) == NO_HEAD
    for former in ((7, [(1, 3)]), (7, [(1, 3), (4, 5), (6, 8)], (8, 100, [(0, 3)]))):
        assert head_from_row(pack(former)) == NO_HEAD._replace(last_id=7)


@given(st.integers(LOWEST, HIGHEST), st.integers(0, 1 << 40))
def test_entries_of_a_higher_priority_come_first_and_then_they_are_in_the_order_of_arrival(
    priority: int, number: int
) -> None:
    sequence = sequence_of(priority, number)
    assert place_in_queue(sequence) == (priority, number)
    assert sequence < sequence_of(priority, number + 1) < 1 << 64
    assert priority == LOWEST or sequence < sequence_of(priority - 1, 0)


class Kept:
    """The queue of session 1, and what a store has of it."""

    def __init__(self, **settings: Unpack[QueueSettings]) -> None:
        self.engine = MemoryEngine()
        self.committer, _, _ = committer_of(self.engine)
        self.queue = StoredQueue(self.committer, 1, **settings)
        self.target: Target[Any] = Target(Subscriber("a", lambda mail: None), Options(1))
        self.guid = 0
        #: Of which priorities messages were wanted.
        self.asked: list[int] = []

    def batch(self, *topics: str) -> Publication:
        packets = [raw.publish(topic, b"x", qos=1, packet_id=1, version=4) for topic in topics]
        starts = list(accumulate(map(len, packets), initial=0))[:-1]
        batch = PublishBatch(topics, 0x32, Version.V311, b"".join(packets), starts, [1] * len(topics))
        batch.guid = self.guid = self.guid + 10
        self.committer.publications.of(batch)
        return batch

    def push(self, *messages: Message, target: Target[Any] | None = None, qos: int = 1) -> None:
        for message in messages:
            self.queue.push(message, target or self.target, qos)

    def commit(self) -> WriteBatch:
        batch = WriteBatch()
        self.queue.write(batch, 7)
        self.committer.publications.write(batch)
        self.engine.commit(batch)
        return batch

    @property
    def rows(self) -> dict[int, int]:
        """How many messages are in each, by the number of its first."""
        return {place_in_queue(entry.sequence)[1]: entry.length for entry in private_entries(self.engine, 1)}

    @property
    def head(self) -> QueueHead:
        row = self.engine.get(WINDOWS, key_of(1))
        assert row is not None
        return head_from_row(row).queue

    def again(self, **settings: Unpack[QueueSettings]) -> "Kept":
        """After a start: its queue is unread."""
        kept = Kept(**settings)
        kept.engine, kept.guid, kept.target = self.engine, self.guid, self.target
        kept.committer.publications.number = self.committer.publications.number
        kept.queue.restored(self.head, cast("Any", SimpleNamespace(begin=kept.asked.append)))
        return kept

    def page(self, rows: int = 100) -> int:
        """Read so many rows of what comes next. Returns how many messages are lost."""
        priority = self.queue.first_unread
        reads = Merge().page(self.engine, self.queue.next_page(priority), rows, 1 << 20)
        return self.queue.adopt(priority, reads, lambda _: self.target)

    def read(self) -> None:
        while self.queue.unread is not None:
            assert not self.page()

    @property
    def weight(self) -> int:
        return sum(message.weight for message, *_ in self.queue)


def test_a_row_is_for_messages_that_follow_each_other_to_one_target_at_one_qos() -> None:
    kept = Kept()
    one, two = kept.batch(*"abcdef").messages, kept.batch("a").messages
    other: Target[Any] = Target(kept.target.subscriber, Options(2))
    kept.push(one[0], one[1], two[0], one[3], one[5])
    kept.push(*kept.batch("a", "b").messages)
    kept.guid -= 8
    kept.push(*kept.batch("a").messages)  # whose GUID is the next one
    first, second, third = kept.batch(*"abc").messages
    kept.push(first)
    kept.push(second, target=other)
    kept.push(third, target=other, qos=2)
    kept.commit()
    assert kept.rows == {1: 2, 3: 1, 4: 1, 5: 1, 6: 2, 8: 1, 9: 1, 10: 1, 11: 1}


def test_a_head_has_the_bytes_and_says_where_it_begins_also_while_it_is_unread() -> None:
    kept = Kept()
    kept.push(*kept.batch(*"abcd").messages)
    kept.commit()
    assert kept.head == QueueHead(4, kept.weight, {LOWEST: (1, 4)})
    kept.queue.take(1, 0.0)
    kept.commit()
    assert kept.head == QueueHead(4, kept.weight, {LOWEST: (2, 3)})
    unread = kept.again()
    (new,) = unread.batch("n").messages
    unread.push(new)
    unread.commit()
    assert unread.head == QueueHead(5, kept.weight + new.weight, {LOWEST: (2, 4)})
    read = unread.again()
    read.read()
    assert WINDOWS not in read.commit().values, "nothing has changed"
    read.queue.take(1, 0.0)
    read.commit()
    assert read.head == QueueHead(5, read.weight, {LOWEST: (3, 3)})
    assert read.rows == {1: 4, 5: 1}
    while read.queue.length:
        read.queue.take(1, 0.0)
    read.commit()
    assert (read.head, read.rows) == (NO_HEAD.queue, {})
    assert not read.commit().values


def test_rows_of_what_was_unread_go_before_those_of_what_came_since() -> None:
    kept = Kept()
    kept.push(*kept.batch(*"ab").messages)
    kept.commit()
    unread = kept.again()
    unread.push(*unread.batch(*"cd").messages)
    unread.commit()
    unread.read()
    for rows in ({1: 2, 3: 2}, {3: 2}, {3: 2}, {}):
        unread.queue.take(1, 0.0)
        unread.commit()
        assert unread.rows == rows


def test_what_is_read_is_a_page_and_the_next_is_asked_for_before_its_end() -> None:
    kept = Kept()
    for _ in range(40):
        kept.push(*kept.batch("a").messages)
    kept.commit()
    unread = kept.again()
    assert not unread.queue.take(1, 0.0)
    assert unread.queue.first is None
    assert unread.asked == [LOWEST]
    unread.page(20)
    for left in range(19, -1, -1):
        assert unread.queue.take(1, 0.0)
        assert len(unread.asked) == 1 + max(0, FEW + 1 - left)
        unread.commit()
        assert list(unread.rows) == list(range(21 - left, 41))
    unread.push(*unread.batch("b").messages)
    unread.read()
    assert [number for *_, number in unread.queue] == list(range(21, 42))


def test_each_priority_is_read_by_itself_and_no_other_session_is() -> None:
    kept = Kept(priority={"a": 1, "b": 2}.get)
    kept.push(*kept.batch(*"abab").messages)
    kept.commit()
    batch = WriteBatch()
    for key, row in kept.engine.scan(ENTRIES):
        for other in (PRIVATE, PRIVATE + 2):
            batch.put(ENTRIES, key_of(other) + key[NUMBER_SIZE:], row)
    kept.engine.commit(batch)
    unread = kept.again(priority={"a": 1, "b": 2}.get)
    assert unread.queue.first_unread == 2
    unread.page()
    assert [number for *_, number in unread.queue] == [2, 4]
    assert unread.queue.first_unread == 1
    unread.read()
    assert [number for *_, number in unread.queue] == [2, 4, 1, 3]


@pytest.mark.parametrize("settings", [{}, {"priority": {"a": 7}.get}], ids=["none", "others"])
def test_what_waits_keeps_its_priority_whatever_the_settings_say(settings: QueueSettings) -> None:
    kept = Kept(priority={"a": 1, "b": 2}.get)
    kept.push(*kept.batch(*"ab").messages)
    kept.commit()
    read = kept.again(**settings)
    read.push(*read.batch("a").messages)
    read.read()
    assert [number for *_, number in read.queue] == ([3, 2, 1] if settings else [2, 1, 3])


def test_the_oldest_are_dropped_when_they_are_read_and_until_then_what_has_come_since_is_limited_by_itself() -> None:
    kept = Kept(max_length=3)
    kept.push(*kept.batch(*"abc").messages)
    kept.commit()
    unread = kept.again(max_length=3)
    new = [unread.batch("n").messages[0] for _ in range(5)]
    for message in new[:3]:
        assert not unread.queue.push(message, unread.target, 1)
    unread.commit()
    for message, gone in zip(new[3:], new, strict=False):
        assert [each.message for each in unread.queue.push(message, unread.target, 1)] == [gone]
    unread.commit()
    assert list(unread.rows) == [1, 6, 7, 8]
    unread.page()
    assert [each.message.topic for each in unread.queue.trim()] == ["a", "b", "c"]
    unread.commit()
    assert (list(unread.rows), unread.queue.length) == ([6, 7, 8], 3)
    assert unread.queue.byte_size == unread.weight


def test_of_too_many_bytes_the_oldest_are_dropped_when_they_are_read_and_no_new_ones_for_them() -> None:
    kept = Kept()
    kept.push(*kept.batch(*"abcde").messages)
    kept.commit()
    unread = kept.again(max_bytes=kept.weight // 3)  # less than before
    new = [unread.batch("n").messages[0] for _ in range(3)]
    assert not unread.queue.push(new[0], unread.target, 1)
    gone = [each.message for message in new[1:] for each in unread.queue.push(message, unread.target, 1)]
    assert gone == new[:2], "they are limited by themselves"
    unread.page()
    assert [each.message.topic for each in unread.queue.trim()] == list("abcde")
    assert [each[0] for each in unread.queue] == new[2:]
    assert unread.queue.byte_size == unread.weight


def test_one_that_is_full_takes_nothing_new_and_is_not_read_for_that() -> None:
    settings: QueueSettings = {"max_length": 2, "overflow": Overflow.DROP_NEW}
    kept = Kept(**settings)
    kept.push(*kept.batch(*"ab").messages)
    kept.commit()
    unread = kept.again(**settings)
    (new,) = unread.batch("n").messages
    assert [each.message for each in unread.queue.push(new, unread.target, 1)] == [new]
    assert not unread.asked
    unread.read()
    assert not unread.queue.trim()
    assert [number for *_, number in unread.queue] == [1, 2]


@pytest.mark.parametrize("is_row", [True, False])
def test_what_the_store_has_lost_is_counted_and_leaves_it(is_row: bool) -> None:
    kept = Kept()
    for topic in "abc":
        kept.push(*kept.batch(topic, topic).messages)
    kept.commit()
    batch = WriteBatch()
    key, row = kept.engine.scan(ENTRIES)[1]
    if is_row:
        batch.delete(ENTRIES, key)
    else:
        batch.delete(MESSAGES, key_of(entry_from_row(key, row).number))
    kept.engine.commit(batch)
    unread = kept.again()
    lost = unread.page()
    if unread.queue.unread is not None:
        lost += unread.page()
    assert lost == 2
    assert [number for *_, number in unread.queue] == [1, 2, 5, 6]
    assert (unread.queue.length, unread.queue.byte_size) == (4, unread.weight)
    while unread.queue.length:
        unread.queue.take(1, 0.0)
    unread.commit()
    assert (unread.rows, unread.engine.count(MESSAGES)) == ({}, int(is_row))  # a repair had deleted it


def test_a_page_that_two_tasks_have_read_is_taken_once() -> None:
    kept = Kept()
    kept.push(*kept.batch("a").messages, *kept.batch("a").messages)
    kept.commit()
    unread = kept.again()
    page = Merge().page(unread.engine, unread.queue.next_page(LOWEST), 1, 1 << 20)
    for _ in range(2):
        assert not unread.queue.adopt(LOWEST, page, lambda _: unread.target)
    unread.page()
    assert not unread.queue.adopt(LOWEST, page, lambda _: unread.target)
    assert unread.queue.next_page(LOWEST) == []
    assert [number for *_, number in unread.queue] == [1, 2]


def test_what_a_shared_group_gives_says_nothing_of_what_came_before_backlogs() -> None:
    kept, router = Kept(), Router[Any]()
    router.subscribe(kept.target.subscriber, "$share/g/t", Options(1))
    group = router.group("$share/g/t")
    assert group is not None
    kept.push(*kept.batch("a").messages)
    kept.push(*kept.batch("a").messages, target=Member(kept.target.subscriber, Options(1), group))
    assert kept.queue.before_backlogs == 1
