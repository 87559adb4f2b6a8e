"""What is stored of a session as plain values, and back."""

from dataclasses import asdict
from math import inf
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from tests.mqtt.property_values import blocks, decoded
from trunkline.broker.routes import Subscriber
from trunkline.broker.session.export import head_to_plain, restore_head, target_from_plain, target_to_plain
from trunkline.broker.session.mqueue import MessageQueue
from trunkline.broker.session.revoked import Revoked
from trunkline.broker.session.state import Session
from trunkline.hooks.client import ClientInfo
from trunkline.mqtt.message import Message
from trunkline.mqtt.packets import PacketType, Will
from trunkline.mqtt.packing import pack, unpack
from trunkline.mqtt.session.awaiting_rel import AwaitingRel
from trunkline.mqtt.session.window import Inflight
from trunkline.mqtt.versions import Version
from trunkline.router import Options, Router, Target

SUBSCRIBER = Subscriber("a", lambda mail: None)


def empty(limit: int = 4) -> Session:
    return Session(ClientInfo("a"), Inflight(limit), MessageQueue(), AwaitingRel())


def nobody(filter: str) -> None:
    return None


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0+#"), min_size=1, max_size=5)
properties = blocks(PacketType.WILL).map(lambda block: decoded(block, PacketType.WILL))
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


@given(clients, st.sampled_from([0.0, 10.0, inf]), st.none() | wills, st.none() | st.integers(0, 50))
def test_what_was_stored_is_restored(client: ClientInfo, expiry: float, will: Will | None, away: int | None) -> None:
    session, copy = empty(), empty()
    session.attach(client, expiry, will)
    session.created_at = 5.0
    if away is not None:
        session.left_at = 100.0 - away
    plain = unpack(pack(head_to_plain(session, 100.0)))
    restore_head(plain, copy, 1000.0, 7.0)
    assert asdict(copy.client) == asdict(session.client)
    assert (copy.will, copy.expiry_interval, copy.created_at) == (will, expiry, 5.0)
    assert copy.left_at == (7.0 if away is None else 1000.0 - away)


def test_a_will_as_the_first_version_wrote_it() -> None:
    session, copy = empty(), empty()
    row = head_to_plain(session, 0.0)
    row["will"] = {
        "topic": "t",
        "payload": b"x",
        "qos": 1,
        "retain": True,
        "properties": {"content_type": "text", "will_delay_interval": 5},
    }
    restore_head(unpack(pack(row)), copy, 0.0, 0.0)
    assert copy.will == Will("t", b"x", 1, True, {"content_type": "text", "will_delay_interval": 5})


def test_of_a_clients_attributes_only_plain_values_are_stored() -> None:
    session, copy = empty(), empty()
    session.client.attributes.update(tenant="x", secret=object(), huge=1 << 64, cut="\ud83d")
    restore_head(unpack(pack(head_to_plain(session, 0.0))), copy, 0.0, 0.0)
    assert copy.client.attributes == {"tenant": "x"}


def test_what_waits_is_in_the_queue_and_behind_it() -> None:
    session, message = empty(), Message("t", b"x", 1)
    session.queue.push(message, Target(SUBSCRIBER, Options(1)), 1)
    assert session.waiting == (1, message.weight)
    session.cursor = cast("Any", SimpleNamespace(waits=True, waiting=4, byte_size=1000))
    assert session.waiting == (5, message.weight + 1000)


def test_revoked_subscriptions_stay_revoked() -> None:
    session, copy = empty(), empty()
    session.revoked = Revoked()
    session.revoked.deny("t/#")
    copy.subscriptions["t/1"] = Options()
    restore_head(head_to_plain(session, 0.0), copy, 0.0, 0.0)
    assert copy.revoked is not None
    assert copy.revoked.concerns("t/2")
    assert not copy.revoked.concerns("t/1")


@given(options, st.lists(st.integers(1, 1000), max_size=3))
def test_what_a_message_came_by(options: Options, identifiers: list[int]) -> None:
    target = Target(SUBSCRIBER, options)
    target.identifiers = tuple(identifiers)
    copy = target_from_plain(unpack(pack(target_to_plain(target))), SUBSCRIBER, nobody)
    assert (copy.qos, copy.retain_as_published, copy.identifiers) == (
        options.qos,
        options.retain_as_published,
        target.identifiers,
    )


def test_a_member_of_a_group_is_a_member_again() -> None:
    router: Router[Subscriber] = Router()
    router.subscribe(SUBSCRIBER, "$share/g/t", Options(1))
    (member,) = router.targets("$share/g/t")
    plain = target_to_plain(member)
    assert target_from_plain(plain, SUBSCRIBER, router.group) is member
    other = Subscriber("other", lambda mail: None)
    router.subscribe(other, "$share/g/t", Options(1))
    router.unsubscribe(SUBSCRIBER, "$share/g/t")
    former = target_from_plain(plain, SUBSCRIBER, router.group)
    assert (former.subscriber, former.qos, former.group) == (SUBSCRIBER, 1, router.group("$share/g/t"))
    assert former is not member
    router.unsubscribe(other, "$share/g/t")
    assert target_from_plain(plain, SUBSCRIBER, router.group).group is None
