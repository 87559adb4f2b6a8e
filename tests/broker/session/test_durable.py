"""A stored session: whatever happens to it, what a later start finds in the store is what it was at the last commit."""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import accumulate
from math import inf
from operator import itemgetter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.conformance import raw
from tests.store.clocks import clock_at
from trunkline.broker.alarms import Alarms
from trunkline.broker.alive_note import ALIVE, NODE
from trunkline.broker.backlogs.merge import Merge
from trunkline.broker.backlogs.rows import ENTRIES
from trunkline.broker.committer import Committer
from trunkline.broker.routes import Subscriber
from trunkline.broker.session.durable import (
    SESSIONS,
    SUBSCRIPTIONS,
    Durable,
    StoredParts,
    make_durable,
)
from trunkline.broker.session.export import head_to_plain, target_from_plain, target_to_plain
from trunkline.broker.session.mqueue import MessageQueue, QueueSettings
from trunkline.broker.session.queue_reader import QueueReader
from trunkline.broker.session.recovery import Recovery
from trunkline.broker.session.revoked import Revoked
from trunkline.broker.session.state import Session
from trunkline.broker.session.stored_sessions import find
from trunkline.broker.session.stored_window import WINDOWS
from trunkline.broker.stored_publications import MESSAGES, REFERENCES
from trunkline.hooks.chain import Hooks
from trunkline.hooks.client import ClientInfo
from trunkline.mqtt.message import Message
from trunkline.mqtt.message_row import message_to_row
from trunkline.mqtt.packets import Will
from trunkline.mqtt.publication import Publication, PublishBatch
from trunkline.mqtt.session.awaiting_rel import AwaitingRel
from trunkline.mqtt.session.states import State
from trunkline.mqtt.session.window import Inflight
from trunkline.mqtt.versions import Version
from trunkline.router import Options, Router, Target
from trunkline.store import Engine, StoreError, StoreFull, WriteBatch
from trunkline.store.memory import MemoryEngine

if TYPE_CHECKING:
    from trunkline.broker.session.stored_queue import StoredQueue

EPOCH = 1_000_000.0
topics = st.sampled_from(["low", "high", "other"])
PRIORITIES = {"low": 1, "high": 2}
#: Binary fractions: sums of them are exact.
times = st.integers(0, 64).map(lambda number: number / 4)


class Turns:
    """A run queue without actors: `end` ends a turn."""

    def __init__(self) -> None:
        self.ready = 0
        self.now = 0.0
        self._tasks: list[Any] = []

    def at_end(self, task: Any) -> None:
        self._tasks.append(task)

    def end(self) -> None:
        while self._tasks:
            self._tasks.pop(0).end_turn()

    def blame(self, owner: object, callback: object, error: Exception) -> None:
        raise error

    def call_at(self, deadline: float, callback: Callable[..., None], *args: object) -> Any:
        timer = SimpleNamespace(armed=deadline < inf, deadline=deadline, delays=[])

        def arm(delay: float) -> None:
            timer.armed, timer.deadline = True, self.now
            timer.delays.append(delay)

        def cancel() -> None:
            timer.armed, timer.deadline = False, inf

        timer.restart_at = timer.restart = arm
        timer.cancel = timer.discard = cancel
        timer.fire = lambda now=0.0: (cancel(), callback(*args))
        self.timers = [*getattr(self, "timers", []), timer]
        return timer


class AtOnce:
    """Commits in the caller's turn."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.refuses: StoreError | None = None

    def commit(self, batches: list[WriteBatch], done: Callable[[int, StoreError | None], None]) -> None:
        if self.refuses is None:
            for batch in batches:
                self.engine.commit(batch)
        done(len(batches) if self.refuses is None else 0, self.refuses)


def committer_of(engine: Engine, last: int = 0) -> tuple[Committer, Turns, AtOnce]:
    turns, writer = Turns(), AtOnce(engine)
    alarms = Alarms(Hooks(), lambda: EPOCH)
    return Committer(writer, turns, alarms, clock_at(EPOCH), 10.0, last), turns, writer  # type: ignore[arg-type]


class Home:
    """As `Directory`, as far as a recovery knows it."""

    def __init__(self, committer: Committer, priorities: dict[str, int] = PRIORITIES) -> None:
        self.committer = committer
        self.priorities = priorities
        self.actors: list[Any] = []
        self.get = lambda client_id: None
        self.add_dormant = lambda dormants: None

    def add(self, client: ClientInfo, number: int, subscriber: None = None, *, claims: bool = True) -> Any:
        queue: QueueSettings = {"max_length": 6, "priority": self.priorities.get}
        parts = StoredParts.new(self.committer, number, (8, 0), queue, (0, 0))
        session = Session(client, *parts)
        session.durable = Durable(session, self.committer, number, parts)
        to = Subscriber(client.client_id, lambda mail: None)
        self.actors.append(Sleeper(session, to))
        return self.actors[-1]


class Sleeper:
    """As `SessionActor`, as far as a recovery knows it, and the reader of its queue, which reads when it is told to."""

    def __init__(self, session: Session, subscriber: Subscriber) -> None:
        self.session, self.subscriber = session, subscriber
        self.is_asked = False

    def leave_unread(self, reader: QueueReader) -> None:
        self.session.queue.unread = self

    def begin(self, priority: int) -> None:
        self.is_asked = True

    def then(self, action: Callable[[], object]) -> None:
        raise NotImplementedError

    async def read_now(self) -> None:
        raise NotImplementedError

    def read(self, engine: Engine) -> None:
        """All of it, page by page."""
        queue, router = cast("StoredQueue", self.session.queue), Router[Any]()
        to = partial(target_from_plain, subscriber=self.subscriber, group_of=router.group)
        while queue.unread is not None:
            priority = queue.first_unread
            queue.adopt(priority, Merge().page(engine, queue.next_page(priority), 2, 1 << 18), to)
            queue.trim()


def plain(publication: Publication) -> list[object]:
    (message,) = publication.messages
    assert message.payload
    return message_to_row(message, EPOCH)


def of(session: Session, state: State) -> list[int]:
    return [packet_id for packet_id in range(1, 200) if session.inflight.state(packet_id) is state]


class StoredSessionsComeBack(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.engine = MemoryEngine()
        self.now = 0.0
        self.number = 0
        self.guid = 0
        self.committer, self.turns, self.writer = committer_of(self.engine)
        self.use(Home(self.committer).add(ClientInfo("a"), 1))
        self.session.left_at = 0.0

    def use(self, actor: Sleeper) -> None:
        self.actor = actor
        self.session = actor.session
        self.to = Target(actor.subscriber, Options(2))
        #: What was stored of the queue when it was left unread, and what has come since.
        self.unread: list[Any] = []
        self.since: list[Any] = []

    def read_queue(self) -> None:
        """It has what it would have, if it had been in memory all the time."""
        is_unread, queue = self.session.queue.unread is not None, self.session.queue
        assert is_unread or not self.actor.is_asked
        self.actor.read(self.engine)
        if is_unread:
            other: MessageQueue[Any] = MessageQueue(max_length=6, priority=PRIORITIES.get)
            for message, target, qos, _ in self.unread + self.since:
                other.push(message, target, qos)
            assert self.waiting(queue) == self.waiting(other)
        assert queue.length == len(list(queue))
        assert queue.byte_size == sum(message.weight for message, *_ in queue)
        self.unread, self.since, self.actor.is_asked = [], [], False

    def waiting(self, queue: Iterable[Any]) -> list[object]:
        return [
            (plain(message), target_to_plain(target), qos)
            for message, target, qos, _ in queue
            if qos and message.expires_at > self.now
        ]

    def publications(
        self, topic: str, qos: int, count: int, expiry: float | None, *, mixed: bool = False
    ) -> Publication:
        """One message, or a batch."""
        first, self.number = self.number, self.number + count
        payloads = [b"%04d" % number for number in range(first, self.number)]
        publication: Publication
        if count == 1:
            publication = Message(topic, payloads[0], qos)
        else:
            # in turn this topic and another one, or this one alone
            among = [topic, "high"] if mixed else [topic]
            names = [among[number % len(among)] for number in range(count)]
            packets = [
                raw.publish(name, payload, qos=qos, packet_id=1, version=4)
                for name, payload in zip(names, payloads, strict=True)
            ]
            starts = list(accumulate(map(len, packets), initial=0))[:-1]
            wire = b"".join(packets)
            publication = PublishBatch(
                names if mixed else [topic], 0x30 | qos << 1, Version.V311, wire, starts, [1] * count
            )
        self.guid += 5
        publication.guid = self.guid
        self.guid += count
        if expiry is not None:
            publication.expires_at = self.now + 1 + expiry
        return publication

    @rule(delay=times)
    def wait(self, delay: float) -> None:
        self.now += delay
        self.turns.now = self.now

    # Subscriptions and all that is one of a kind

    @rule(filter=topics, qos=st.integers(0, 2), by_client=st.booleans())
    def subscribe(self, filter: str, qos: int, by_client: bool) -> None:
        self.session.subscribe(filter, Options(qos), by_client=by_client)

    @rule(filter=topics)
    def unsubscribe(self, filter: str) -> None:
        self.session.unsubscribe(filter)

    @rule(filter=topics)
    def revoke(self, filter: str) -> None:
        self.session.revoked = Revoked()
        self.session.revoked.deny(filter)

    @rule(username=st.none() | topics, expiry=times)
    def attach(self, username: str | None, expiry: float) -> None:
        self.session.attach(ClientInfo("a", username), expiry, Will("w", b"", properties={"content_type": "x"}))
        self.session.left_at = self.now

    @rule(username=topics)
    def authenticate_again(self, username: str) -> None:
        self.session.client.username = username

    # Messages

    @rule(
        topic=topics,
        qos=st.integers(0, 2),
        count=st.integers(1, 4),
        expiry=st.none() | times,
        some=st.booleans(),
        mixed=st.booleans(),
    )
    def push(self, topic: str, qos: int, count: int, expiry: float | None, some: bool, mixed: bool) -> None:
        publication = self.publications(topic, max(qos, 1), count, expiry, mixed=mixed)
        self.committer.publications.of(publication)  # as pubsub does
        if some:  # a member of a shared group gets them
            publication = publication.select(range(0, count, 2))
        for message in publication.messages:
            self.session.queue.push(message, self.to, qos)
            self.since.append((message, self.to, qos, None))
        if self.actor.is_asked:
            self.read_queue()

    @rule()
    def read(self) -> None:
        self.read_queue()

    @rule(to_window=st.booleans())
    def pop(self, to_window: bool) -> None:
        self.read_queue()
        queue, window = self.session.queue, self.session.inflight
        qos = 0 if queue.first is None else queue.first[2]
        for message, target, _, _ in queue.take(window.room, self.now):
            if to_window and qos and message.expires_at > self.now:
                window.insert(message, target, qos, self.now)

    @rule(qos=st.integers(1, 2), count=st.integers(1, 4), some=st.booleans())
    def send(self, qos: int, count: int, some: bool) -> None:
        publication = self.publications("t", qos, count, None)
        self.committer.publications.of(publication)
        if some:
            publication = publication.select(range(0, count, 2))
        self.session.inflight.insert(publication, self.to, qos, self.now)

    @rule(state=st.sampled_from([State.WAIT_PUBACK, State.WAIT_PUBREC, State.WAIT_PUBCOMP]), data=st.data())
    def acknowledge(self, state: State, data: st.DataObject) -> None:
        packet_ids = data.draw(st.permutations(of(self.session, state)))
        packet_ids = packet_ids[: data.draw(st.integers(1, 4))]
        if packet_ids and state is State.WAIT_PUBREC:
            self.session.inflight.release(packet_ids, self.now)
        elif packet_ids:
            self.session.inflight.end(packet_ids)

    @rule()
    def take(self) -> None:
        self.session.inflight.remove_oldest(1)

    @rule(count=st.integers(1, 3), refused=st.booleans())
    def hold(self, count: int, refused: bool) -> None:
        publication = self.publications("t", 2, count, None)
        packet_ids = list(range(self.number - count + 1, self.number + 1))
        if refused:
            self.session.awaiting_rel.receive(packet_ids, None, 0, self.now)
        else:
            self.session.awaiting_rel.receive(packet_ids, publication, publication.weight, self.now)

    @precondition(lambda self: len(self.session.awaiting_rel))
    @rule(number=st.integers(0, 9))
    def release(self, number: int) -> None:
        open_ids = [packet_ids[0] for packet_ids, *_ in self.session.awaiting_rel.export()]
        self.session.awaiting_rel.release([open_ids[number % len(open_ids)]])

    # The store

    def commit(self) -> None:
        assert self.session.durable is not None
        self.session.durable.changed()
        self.committer.after_commit(lambda: None)
        self.turns.end()

    @rule()
    def store(self) -> None:
        self.commit()

    @rule()
    def refuse_once(self) -> None:
        """What a full disk has refused comes with the next commit."""
        self.writer.refuses = StoreFull("full")
        self.commit()
        self.writer.refuses = None
        for timer in self.turns.timers:
            if timer.armed:
                timer.fire()
        self.turns.end()

    @rule(reads_before=st.booleans(), reads_at_once=st.booleans())
    def restart(self, *, reads_before: bool = True, reads_at_once: bool = True) -> None:
        if reads_before:
            self.read_queue()
        is_unread = self.session.queue.unread is not None
        if not is_unread:
            self.unread, self.since = sorted(self.session.queue, key=itemgetter(3)), []
        came = [each for each in self.unread + self.since if each[2]]
        self.commit()
        was = self.exported(self.session)
        found = find(self.engine)
        assert found.last_number >= self.engine.count(MESSAGES)
        self.committer, self.turns, self.writer = committer_of(self.engine, found.last_number)
        self.turns.now = self.now
        home: Any = Home(self.committer)
        list(Recovery(found, home, Router(), EPOCH, self.now, self.committer).restore())
        (actor,) = home.actors
        self.use(actor)
        self.unread = came
        if reads_at_once:
            self.read_queue()
        now = self.exported(self.session)
        if is_unread or not reads_at_once:
            del now["queue"], was["queue"]
        assert now == was

    def exported(self, session: Session) -> dict[str, Any]:
        """All but QoS 0, which is not stored, and what has expired, which may be stored as long as what is before it
        is."""
        _, sent = session.inflight.export()
        held = session.awaiting_rel.export()
        return {
            **head_to_plain(session, self.now),
            "subscriptions": session.subscriptions,
            "unasked": session.unasked,
            "sent": [(each[:2], plain(each[2]), target_to_plain(each[3])) for each in sent],
            "queue": [
                (number, plain(message), target_to_plain(target), qos)
                for message, target, qos, number in sorted(session.queue, key=itemgetter(3))
                if qos and message.expires_at > self.now
            ],
            "awaited": [
                (packet_ids, weight, publication and plain(publication)) for packet_ids, weight, publication in held
            ],
        }

    def teardown(self) -> None:
        if hasattr(self, "engine"):
            self.restart()
            assert self.session.durable is not None
            self.session.durable.end()
            self.commit()
            assert all(stored.has_ended for stored in find(self.engine).sessions.values())
            self.session.durable.forget()
            self.commit()
            left = [
                space.name
                for space in (SESSIONS, SUBSCRIPTIONS, WINDOWS, ENTRIES, MESSAGES, REFERENCES)
                if self.engine.count(space)
            ]
            assert not left


TestStoredSessions = StoredSessionsComeBack.TestCase
TestStoredSessions.settings = settings(stateful_step_count=40, max_examples=100)


class Noted(MemoryEngine):
    """Knows what each commit wrote."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[WriteBatch] = []

    def commit(self, batch: WriteBatch) -> None:
        super().commit(batch)
        self.batches.append(batch)


class Store:
    """With one session, or more."""

    def __init__(self) -> None:
        self.engine = Noted()
        self.committer, self.turns, self.writer = committer_of(self.engine)
        self.home = Home(self.committer)

    def add(self, number: int = 1) -> Session:
        session: Session = self.home.add(ClientInfo(f"c{number}"), number).session
        return session

    def commit(self, *sessions: Session) -> None:
        for session in sessions:
            assert session.durable is not None
            session.durable.changed()
        self.committer.after_commit(lambda: None)
        self.turns.end()

    def beat(self) -> None:
        for timer in self.turns.timers:
            if timer.armed:
                timer.fire()
        self.turns.end()


def test_a_message_that_has_expired_leaves_the_store_when_it_is_its_turn() -> None:
    store = Store()
    session = store.add()
    for guid, expires_at in ((5, 1.0), (10, inf)):
        message = Message("t", b"%d" % guid, 1)
        message.guid, message.expires_at = guid, expires_at
        store.committer.publications.of(message)
        session.queue.push(message, Target(store.home.actors[0].subscriber, Options(1)), 1)
    store.commit(session)
    assert store.engine.count(MESSAGES) == 2
    taken = [session.queue.take(1, 2.0) for _ in range(2)]
    assert [message.guid for ((message, *_),) in taken] == [5, 10]
    store.commit(session)
    assert store.engine.count(MESSAGES) == 0


def test_what_has_not_changed_is_not_written_again() -> None:
    store = Store()
    session = store.add()
    written = list[int]()
    for username in (None, None, "other", "other"):
        session.client.username = username
        store.commit(session)
        written.append(sum(SESSIONS in batch.values for batch in store.engine.batches))
    assert written == [1, 1, 2, 2]


def test_what_its_client_is_told_is_settled_with_the_commit_that_has_it() -> None:
    store = Store()
    session = store.add()
    assert session.durable is not None
    store.writer.refuses = StoreFull("full")
    store.commit(session)
    assert not session.durable.is_settled
    store.writer.refuses = None
    store.beat()
    assert session.durable.is_settled
    session.attach(ClientInfo("c1"), 4.0, None)
    assert not session.durable.is_settled
    store.commit(session)
    assert session.durable.is_settled


def test_the_heartbeat_is_as_quick_as_the_sessions_whose_clients_are_there_need() -> None:
    store = Store()
    session = store.add()
    session.attach(ClientInfo("c1"), 4.0, None)
    store.commit(session)
    assert store.committer.heartbeat.interval == 2.0
    session.left_at = 1.0
    store.commit(session)
    assert store.committer.heartbeat.interval == 10.0


def test_the_heartbeat_is_noted_for_as_long_as_there_is_a_session() -> None:
    store = Store()
    one, two = store.add(1), store.add(2)
    assert one.durable is not None
    assert two.durable is not None
    one.durable.end()
    store.turns.now = 10.0
    store.beat()
    noted = store.engine.get(NODE, ALIVE)
    assert noted is not None
    two.durable.forget()
    two.durable.end()
    store.turns.now = 20.0
    store.commit()
    commits = len(store.engine.batches)
    store.turns.now = 30.0
    store.beat()
    assert len(store.engine.batches) == commits
    store.add(3)
    store.beat()
    assert store.engine.get(NODE, ALIVE) != noted


def test_a_session_that_is_stored_from_now_on_is_stored_with_all_that_it_holds() -> None:
    store = Store()
    to = Target(Subscriber("c1", lambda mail: None), Options(2))
    session = Session(ClientInfo("c1"), Inflight(8, 0), MessageQueue(max_length=6), AwaitingRel(0, 0))
    session.subscribe("t", Options(2))
    for guid in (5, 10, 15):
        message = Message("t", b"%d" % guid, 2)
        message.guid = guid
        if guid == 5:
            session.inflight.insert(message, to, 2, 0.0)
        elif guid == 10:
            session.queue.push(message, to, 2)
        else:
            session.awaiting_rel.receive([7], message, message.weight, 0.0)
    parts = StoredParts.new(store.committer, 1, (8, 0), {"max_length": 6}, (0, 0))
    make_durable(session, store.committer, 1, parts)
    store.commit(session)
    found = find(store.engine)
    committer, _, _ = committer_of(store.engine, found.last_number)
    home: Any = Home(committer)
    list(Recovery(found, home, Router(), EPOCH, 0.0, committer).restore())
    restored: Session = home.actors[0].session
    assert restored.subscriptions == session.subscriptions
    _, sent = restored.inflight.export()
    assert [plain(each[2]) for each in sent] == [message_to_row(_message(5), EPOCH)]
    home.actors[0].read(store.engine)
    assert [entry[0].payload for entry in restored.queue] == [b"10"]
    ((packet_ids, _, held),) = restored.awaiting_rel.export()
    assert (list(packet_ids), held and plain(held)) == ([7], message_to_row(_message(15), EPOCH))


def _message(guid: int) -> Message:
    message = Message("t", b"%d" % guid, 2)
    message.guid = guid
    return message


def test_nobody_waits_for_a_full_store_because_of_a_message_that_has_expired() -> None:
    store, told = Store(), list[str]()
    session, message = store.add(), _message(5)
    message.expires_at = 1.0
    session.queue.push(message, Target(store.home.actors[0].subscriber, Options(1)), 1)
    store.committer.publications.wait_for(store.committer.publications.of(message), lambda: told.append("safe"))
    store.writer.refuses = StoreFull("full")
    store.commit(session)
    assert told == []
    assert len(session.queue.take(0, 2.0)) == 1
    store.turns.end()
    assert told == ["safe"]
