"""Rows of queues that share their publications, some of them unread: each is there as long as a row needs it, and no
longer."""

from itertools import accumulate
from types import SimpleNamespace
from typing import Any, Unpack, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.broker.session.test_durable import EPOCH, Home, committer_of
from tests.conformance import raw
from trunkline.broker.routes import Subscriber
from trunkline.broker.session.mqueue import LOWEST, QueueHead, QueueSettings
from trunkline.broker.session.recovery import Recovery
from trunkline.broker.session.stored_queue import (
    NO_HEAD,
    QUEUES,
    StoredHead,
    StoredQueue,
    head_from_row,
    head_to_row,
)
from trunkline.broker.session.stored_sessions import find
from trunkline.broker.session.stored_window import WINDOWS
from trunkline.broker.session.unread_queue import QueueRows
from trunkline.broker.stored_publications import MESSAGES, REFERENCES
from trunkline.hooks.client import ClientInfo
from trunkline.mqtt.message import Message
from trunkline.mqtt.packing import pack, unpack
from trunkline.mqtt.publication import Publication, PublishBatch
from trunkline.mqtt.versions import Version
from trunkline.router import Member, Options, Router, Target
from trunkline.store import WriteBatch
from trunkline.store.engine import NUMBER_SIZE, key_of, number_of
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
        actor.read(self.engine, 0.0)
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
        actor.read(self.engine, 0.0)
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
        actor.read(self.engine, 0.0)
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
        assert not self.engine.count(QUEUES)


TestQueues = QueuesShareTheirPublications.TestCase
TestQueues.settings = settings(stateful_step_count=40, max_examples=100)


def test_a_head_is_read_as_it_was_written_and_one_of_the_first_format_says_nothing_of_the_queue() -> None:
    head = StoredHead(7, [(1, 3)], QueueHead(17, 1234, {0: 3, 256: 1}))
    assert head_from_row(head_to_row(head)) == head
    assert head_from_row(head_to_row(NO_HEAD)) == NO_HEAD
    assert head_from_row(pack((7, [(1, 3)]))) == head._replace(queue=None)


class Kept:
    """The queue of session 1, and what a store has of it."""

    def __init__(self, **settings: Unpack[QueueSettings]) -> None:
        self.engine = MemoryEngine()
        self.committer, _, _ = committer_of(self.engine)
        self.queue = StoredQueue(self.committer, 1, **settings)
        self.target: Target[Any] = Target(Subscriber("a", lambda mail: None), Options(1))
        self.guid = 0

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
        return {number_of(key[NUMBER_SIZE:]): unpack(row)[0][2] for key, row in self.engine.scan(QUEUES)}

    @property
    def head(self) -> StoredHead:
        row = self.engine.get(WINDOWS, key_of(1))
        assert row is not None
        return head_from_row(row)

    def again(self, **settings: Unpack[QueueSettings]) -> "Kept":
        """After a start: its queue is unread."""
        kept = Kept(**settings)
        kept.engine, kept.guid, kept.target = self.engine, self.guid, self.target
        kept.committer.publications.number = self.committer.publications.number
        head = self.head
        kept.queue.restored(head)
        kept.unread = QueueRows(1, head, kept.queue, lambda _: kept.target, kept.committer.publications, EPOCH)
        kept.queue.leave_unread(cast("Any", SimpleNamespace(head=head.queue)))
        return kept

    unread: QueueRows

    def read(self) -> None:
        self.unread.read_all(self.engine, 0.0)
        self.queue.adopt_runs(self.unread.runs, anew=self.unread.is_mixed)
        self.queue.adopt(self.unread)

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


def test_a_head_has_the_bytes_and_says_what_has_left_the_first_row_also_while_it_is_unread() -> None:
    kept = Kept()
    kept.push(*kept.batch(*"abcd").messages)
    kept.commit()
    assert kept.head == StoredHead(7, [], QueueHead(4, kept.weight, {LOWEST: 4}))
    kept.queue.take(1, 0.0)
    kept.commit()
    assert kept.head == StoredHead(7, [(1, 2)], QueueHead(4, kept.weight, {LOWEST: 3}))
    unread = kept.again()
    (new,) = unread.batch("n").messages
    unread.push(new)
    unread.commit()
    head = QueueHead(5, kept.weight + new.weight, {LOWEST: 4})
    assert unread.head == StoredHead(7, [(1, 2)], head)
    read = unread.again()
    read.read()
    assert WINDOWS not in read.commit().values, "nothing has changed"
    read.queue.take(1, 0.0)
    read.commit()
    assert read.head == StoredHead(7, [(1, 3)], QueueHead(5, read.weight, {LOWEST: 3}))
    assert read.rows == {1: 4, 5: 1}
    while read.queue.length:
        read.queue.take(1, 0.0)
    read.commit()
    assert (read.head.begun, read.head.queue, read.rows) == ([], None, {})
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


@pytest.mark.parametrize(("taken", "firsts"), [(0, [1, 2, 3, 4]), (3, [3])])
def test_rows_are_written_anew_when_they_have_messages_of_other_priorities(taken: int, firsts: list[int]) -> None:
    kept = Kept(priority={"a": 1, "b": 1}.get)
    kept.push(*kept.batch(*"abab").messages)
    kept.commit()
    assert kept.rows == {1: 4}
    batch, another = WriteBatch(), pack(((1, 0, 1, ()), 1, None))
    batch.put(QUEUES, key_of(2) + key_of(1), another)
    kept.engine.commit(batch)
    read = kept.again(priority={"a": 1, "b": 2}.get)
    read.read()
    for _ in range(taken):
        read.queue.take(1, 0.0)
    for _ in range(2):
        read.commit()
        rows = read.engine.scan(QUEUES)
        assert [number_of(key[NUMBER_SIZE:]) for key, _ in rows] == [*firsts, 1]
    assert read.engine.get(QUEUES, key_of(2) + key_of(1)) == another, "that of another session"
    while read.queue.length:
        assert (read.engine.count(QUEUES), read.engine.count(MESSAGES)) == (read.queue.length + 1, 1)
        read.queue.take(1, 0.0)
        read.commit()
    assert (read.engine.count(QUEUES), read.engine.count(MESSAGES)) == (1, 0)


def test_what_a_shared_group_gives_says_nothing_of_what_came_before_backlogs() -> None:
    kept, router = Kept(), Router[Any]()
    router.subscribe(kept.target.subscriber, "$share/g/t", Options(1))
    group = router.group("$share/g/t")
    assert group is not None
    kept.push(*kept.batch("a").messages)
    kept.push(*kept.batch("a").messages, target=Member(kept.target.subscriber, Options(1), group))
    assert kept.queue.before_backlogs == 1
