"""Changes of a session: an export with all that changed since gives what an export would give now."""

from typing import Any

import msgpack
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from trunkline.broker.routes import Subscriber
from trunkline.broker.session.changes import Changes, apply_changes
from trunkline.broker.session.export import export_session
from trunkline.broker.session.mqueue import MessageQueue
from trunkline.broker.session.revoked import Revoked
from trunkline.broker.session.state import Session
from trunkline.hooks.client import ClientInfo
from trunkline.mqtt.awaiting_rel import AwaitingRel
from trunkline.mqtt.inflight import Inflight, State
from trunkline.mqtt.message import Message
from trunkline.mqtt.packets import Will
from trunkline.router import Options, Target

SUBSCRIBER = Subscriber("a", lambda mail: None)
topics = st.sampled_from(["low", "high", "other"])
PRIORITIES = {"low": 1, "high": 2}
#: Binary fractions: sums of them are exact.
times = st.integers(0, 64).map(lambda number: number / 4)


def of(packet_ids: Any, session: Session, state: State) -> list[int]:
    return [packet_id for packet_id in packet_ids if session.inflight.state(packet_id) is state]


class ChangesMatchExports(RuleBasedStateMachine):
    @initialize(tracked_from_the_start=st.booleans(), with_priorities=st.booleans())
    def begin(self, tracked_from_the_start: bool, with_priorities: bool) -> None:
        queue = MessageQueue[Target[Subscriber]](max_length=4, priority=PRIORITIES.get if with_priorities else None)
        self.session = Session(ClientInfo("a"), Inflight(6), queue, AwaitingRel())
        self.now = 0.0
        self.number = 0
        if not tracked_from_the_start:
            self.push("low", 1, 1, None)
            self.send(2, 2)
            self.hold(2)
            self.subscribe("low", 1, True)
        self.changes = Changes(self.session)
        self.stored = self.export()

    def export(self) -> dict[str, Any]:
        return export_session(self.session, self.now, 1000 + self.now)

    def message(self, topic: str, qos: int, expiry: float | None) -> Message:
        self.number += 1
        message = Message(topic, b"%d" % self.number, qos)
        if expiry is not None:
            message.expires_at = self.now + 1 + expiry
        return message

    @rule(delay=times)
    def wait(self, delay: float) -> None:
        self.now += delay

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
        self.session.attach(ClientInfo("a", username), expiry, Will("w", b""))

    @rule(username=topics)
    def authenticate_again(self, username: str) -> None:
        self.session.client.username = username

    @rule(keeps_will=st.booleans())
    def leave(self, keeps_will: bool) -> None:
        self.session.left_at = self.now
        if not keeps_will:
            self.session.will = None

    # Messages

    @rule(topic=topics, qos=st.integers(0, 2), count=st.integers(1, 3), expiry=st.none() | times)
    def push(self, topic: str, qos: int, count: int, expiry: float | None) -> None:
        for _ in range(count):
            self.session.queue.push(self.message(topic, qos, expiry), Target(SUBSCRIBER, Options(2)), qos)

    @rule()
    def pop(self) -> None:
        self.session.queue.pop(self.now, [])

    @rule(limit=st.integers(1, 3))
    def expire(self, limit: int) -> None:
        self.session.queue.expire(self.now, limit)

    @rule(qos=st.integers(1, 2), count=st.integers(1, 3))
    def send(self, qos: int, count: int) -> None:
        for _ in range(count):
            self.session.inflight.insert(self.message("t", qos, None), Target(SUBSCRIBER, Options(2)), qos, self.now)

    @rule(state=st.sampled_from(State), count=st.integers(1, 3))
    def acknowledge(self, state: State, count: int) -> None:
        packet_ids = of(range(1, 100), self.session, state)[:count]
        if packet_ids and state is State.WAIT_PUBREC:
            self.session.inflight.release(packet_ids, self.now)
        elif packet_ids:
            self.session.inflight.end(packet_ids)

    @rule()
    def take(self) -> None:
        self.session.inflight.take()

    @rule(count=st.integers(1, 3))
    def hold(self, count: int) -> None:
        for _ in range(count):
            message = self.message("t", 2, None)
            self.session.awaiting_rel.receive([self.number], message, message.weight, self.now)

    @precondition(lambda self: len(self.session.awaiting_rel))
    @rule(number=st.integers(0, 9))
    def release(self, number: int) -> None:
        open_ids = [packet_id for packet_id, *_ in self.session.awaiting_rel.export()]
        self.session.awaiting_rel.release([open_ids[number % len(open_ids)]])

    @rule(limit=st.integers(1, 3))
    def forget(self, limit: int) -> None:
        self.session.awaiting_rel.expire(self.now, limit)

    @rule()
    def store(self) -> None:
        changes = self.changes.take(self.now, 1000 + self.now)
        plain = msgpack.unpackb(msgpack.packb(changes), strict_map_key=False)
        self.stored = apply_changes(self.stored, plain)
        assert self.stored == self.export()

    def teardown(self) -> None:
        if hasattr(self, "changes"):
            self.store()


TestChanges = ChangesMatchExports.TestCase
TestChanges.settings = settings(stateful_step_count=40)


def test_a_session_that_is_not_stored_notes_nothing() -> None:
    session = Session(ClientInfo("a"), Inflight(6), MessageQueue(), AwaitingRel())
    assert session.changes is None
    assert type(session.inflight._entries) is dict  # pyright: ignore[reportPrivateUsage]
    assert type(session.awaiting_rel._open) is dict  # pyright: ignore[reportPrivateUsage]


def test_changes_are_small_and_given_once() -> None:
    session = Session(ClientInfo("a"), Inflight(60), MessageQueue(), AwaitingRel())
    target = Target(SUBSCRIBER, Options(2))
    for _ in range(50):
        session.inflight.insert(Message("t", b"", 1), target, 1, 0.0)
        session.queue.push(Message("t", b"", 1), target, 1)
    changes = Changes(session)
    session.inflight.end([7])
    session.queue.pop(0.0, [])
    first, second = changes.take(0.0, 0.0), changes.take(0.0, 0.0)
    assert (first["inflight"], first["queue"], first["head"]) == ([[7]], [[[0, 1]]], None)
    assert (second["inflight"], second["queue"]) == ([], [])
