"""Rows of queues that share their publications, some of them unread: each is there as long as a row needs it, and no
longer."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.broker.session.test_durable import EPOCH, Home, committer_of
from trunkline.broker.session.mqueue import QueueHead
from trunkline.broker.session.recovery import Recovery
from trunkline.broker.session.stored_queue import NO_HEAD, QUEUES, StoredHead, head_from_row, head_to_row
from trunkline.broker.session.stored_sessions import find
from trunkline.broker.stored_publications import MESSAGES, REFERENCES
from trunkline.hooks.client import ClientInfo
from trunkline.mqtt.message import Message
from trunkline.mqtt.packing import pack
from trunkline.router import Options, Router, Target
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
