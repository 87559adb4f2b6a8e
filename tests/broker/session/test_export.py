"""A session as plain values: exported in one place, it goes on in another as if nothing had been."""

from dataclasses import asdict
from math import inf
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.broker.routes import Subscriber
from trunkline.broker.session.export import FORMAT, UnknownFormat, export_session, restore_session
from trunkline.broker.session.mqueue import MessageQueue
from trunkline.broker.session.state import Session
from trunkline.hooks.client import ClientInfo
from trunkline.mqtt.awaiting_rel import AwaitingRel
from trunkline.mqtt.inflight import Inflight, State
from trunkline.mqtt.message import Message
from trunkline.mqtt.packets import Will
from trunkline.mqtt.versions import Version
from trunkline.router import Options, Router, Target

SUBSCRIBER = Subscriber("a", lambda mail: None)


def empty(limit: int = 4) -> Session:
    return Session(ClientInfo("a"), Inflight(limit), MessageQueue(), AwaitingRel())


def nobody(filter: str) -> None:
    return None


def redelivered(session: Session) -> list[tuple[int, State]]:
    found = iter(lambda: session.inflight.next_again(80.0), None)
    return [(packet_id, entry.state) for packet_id, entry in found]


def describe(session: Session) -> dict[str, Any]:
    """All that a session holds, comparable."""

    def message(value: Message | None) -> Any:
        if value is None:
            return None
        fields = ("topic", "payload", "qos", "retain", "properties", "publisher", "username", "guid", "timestamp")
        return [getattr(value, name) for name in fields]

    def target(value: Target[Subscriber]) -> Any:
        return (value.qos, value.retain_as_published, value.identifiers)

    last_id, inflight = session.inflight.export()
    return {
        "subscriptions": session.subscriptions,
        "expiry": session.expiry_interval,
        "client": asdict(session.client),
        "will": session.will,
        "last_id": last_id,
        "inflight": [(packet_id, state, message(m), target(t)) for packet_id, state, m, t in inflight],
        "queue": [(message(m), target(t), qos) for m, t, qos, _ in session.queue.export()],
        "awaiting": [(packet_id, size, message(m)) for packet_id, size, m in session.awaiting_rel.export()],
    }


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0+#"), min_size=1, max_size=5)
messages = st.builds(
    Message,
    topic=texts,
    payload=st.binary(max_size=20),
    qos=st.integers(0, 2),
    retain=st.booleans(),
    properties=st.fixed_dictionaries(
        {},
        optional={
            "user_property": st.lists(st.tuples(texts, texts), max_size=3).map(tuple),
            "correlation_data": st.binary(max_size=5),
            "content_type": texts,
        },
    ),
    publisher=texts,
    username=st.none() | texts,
    guid=st.integers(0, (1 << 128) - 1),
    timestamp=st.floats(0, 1e10),
)
properties = st.fixed_dictionaries({}, optional={"content_type": texts, "will_delay_interval": st.integers(0, 9)})
wills = st.builds(Will, texts, st.binary(max_size=5), st.integers(0, 2), st.booleans(), properties)
plain = st.one_of(st.none(), st.booleans(), st.integers(-9, 9), texts, st.binary(max_size=5))
clients = st.builds(
    ClientInfo,
    client_id=st.just("a"),
    username=st.none() | texts,
    peer=st.none() | st.tuples(texts, st.integers(0, 65_535)),
    listener=texts,
    version=st.sampled_from(Version),
    keep_alive=st.integers(0, 65_535),
    clean_start=st.booleans(),
    connected_at=st.floats(0, 1e10),
    node=texts,
    bridge=st.booleans(),
    superuser=st.booleans(),
    attributes=st.dictionaries(texts, plain, max_size=2),
)
options = st.builds(
    Options, st.integers(0, 2), st.booleans(), st.booleans(), st.integers(0, 2), st.none() | st.integers(1, 1000)
)


@st.composite
def sessions(draw: st.DrawFn) -> Session:
    session = empty(limit=draw(st.integers(1, 6)))
    session.attach(draw(clients), draw(st.sampled_from([0.0, 10.0, inf])), draw(st.none() | wills))
    session.subscriptions = draw(st.dictionaries(texts, options, max_size=3))
    for message in draw(st.lists(messages, max_size=8)):
        target = Target(SUBSCRIBER, draw(options))
        qos = draw(st.integers(1, 2))
        packet_ids = session.inflight.insert(message, target, qos, 0.0)
        if not packet_ids:
            session.queue.push(message, target, qos)
        elif qos == 2 and draw(st.booleans()):
            session.inflight.release(packet_ids, 0.0)
    for packet_id, held in enumerate(draw(st.lists(st.none() | messages, max_size=3)), 1):
        session.awaiting_rel.receive([packet_id], held, 7)
    return session


@given(sessions())
def test_what_was_exported_is_restored(session: Session) -> None:
    plain = export_session(session, 5.0, 1000.0)
    stored = msgpack.unpackb(msgpack.packb(plain), strict_map_key=False)
    copy = empty(limit=session.inflight.limit)
    restore_session(stored, copy, SUBSCRIBER, nobody, 77.0, 1000.0)
    assert describe(copy) == describe(session)
    # and it sends the same again, with the same packet ids
    for each in (session, copy):
        each.inflight.resume(10)
    again = [redelivered(each) for each in (session, copy)]
    assert again[0] == again[1]
    following = Message("next", b"")
    target = Target(SUBSCRIBER, Options(1))
    assert copy.inflight.insert(following, target, 1, 80.0) == session.inflight.insert(following, target, 1, 80.0)


def test_the_time_between_export_and_restoring_counts() -> None:
    session = empty()
    session.queue.push(Message("t", b"", expires_at=110.0), Target(SUBSCRIBER, Options()), 0)
    plain = export_session(session, 100.0, 5000.0)
    copy = empty()
    restore_session(plain, copy, SUBSCRIBER, nobody, 1.0, 5004.0)
    ((message, *_),) = copy.queue.export()
    assert message.expires_at == pytest.approx(7.0)


def test_a_client_that_was_connected_has_left_at_the_export() -> None:
    connected, away = empty(), empty()
    away.left_at = 90.0
    left = list[float]()
    for session in (connected, away):
        copy = empty()
        restore_session(export_session(session, 100.0, 5000.0), copy, SUBSCRIBER, nobody, 1000.0, 5004.0)
        left.append(copy.left_at)
    assert left == [pytest.approx(996.0), pytest.approx(986.0)]


def test_of_a_clients_attributes_only_plain_values_are_exported() -> None:
    session = empty()
    session.client.attributes.update(tenant="x", secret=object())
    copy = empty()
    restore_session(export_session(session, 0.0, 0.0), copy, SUBSCRIBER, nobody, 0.0, 0.0)
    assert copy.client.attributes == {"tenant": "x"}


def test_a_member_of_a_group_is_a_member_again() -> None:
    router: Router[Subscriber] = Router()
    router.subscribe(SUBSCRIBER, "$share/g/t", Options(1))
    member = router.targets("$share/g/t")[0]
    session = empty()
    session.queue.push(Message("t", b"", 1), member, 1)
    plain = export_session(session, 0.0, 0.0)

    def find(filter: str) -> Target[Subscriber] | None:
        group = router.group(filter)
        return None if group is None else group.member(SUBSCRIBER)

    copy = empty()
    restore_session(plain, copy, SUBSCRIBER, find, 0.0, 0.0)
    assert copy.queue.export()[0][1] is member
    orphan = empty()
    restore_session(plain, orphan, SUBSCRIBER, nobody, 0.0, 0.0)
    assert orphan.queue.export()[0][1].group is None


def test_a_newer_format_is_refused_in_words() -> None:
    plain = export_session(empty(), 0.0, 0.0) | {"format": FORMAT + 1}
    with pytest.raises(UnknownFormat, match="session 'a' has format 2; only 1 is supported"):
        restore_session(plain, empty(), SUBSCRIBER, nobody, 0.0, 0.0)
