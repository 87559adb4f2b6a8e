"""A client resumes the session of another one that was killed, and takes packet ids of which the server may hold
messages."""

import pytest
import trio

from tests.client.rig import PIECES, Rig, shown
from trunkline.client.clearing import FIRST_STEP
from trunkline.client.client import Client
from trunkline.client.errors import Disconnected
from trunkline.client.outgoing import MAX_PUBLISH_ID
from trunkline.client.requests import PublishRequest
from trunkline.client.session_client import SessionClient
from trunkline.client.settings import ConnectionSettings
from trunkline.mqtt.packets import Packet, Puback, Pubcomp, Pubrec, Pubrel
from trunkline.mqtt.reasons import Reason
from trunkline.testing import Broker


@pytest.mark.parametrize("version", ["5.0", "3.1.1", "3.1"])
async def test_no_message_is_taken_for_one_of_a_client_that_was_killed(mqtt_broker: Broker, version: str) -> None:
    expiry = 60 if version == "5.0" else None
    settings = ConnectionSettings(client_id="c", clean_start=False, session_expiry=expiry, version=version)
    async with Client(open_stream=mqtt_broker.connect) as other:
        messages = await other.subscribe("#", qos=2)
        mqtt_broker.faults.cut(before="PUBREL", client="c", times=1)
        with pytest.RaisesGroup(Disconnected, flatten_subgroups=True, allow_unwrapped=True):
            async with Client(settings, open_stream=mqtt_broker.connect) as killed:
                await killed.publish("t", "of the killed client", qos=2)
        async with SessionClient(settings, open_stream=mqtt_broker.connect) as client:
            for number in range(3):
                await client.publish("t", f"{number}", qos=2)
        with trio.fail_after(60):
            seen = [(await messages.receive()).payload for _ in range(3 + (version != "3.1"))]
        assert seen[-3:] == [b"0", b"1", b"2"]


def answers(packets: list[Packet], *, knows: int = 0) -> list[Packet]:
    """Of a server that holds a message of one packet id."""
    found: list[Packet] = []
    for packet in packets:
        if isinstance(packet, Pubrel):
            found.append(Pubcomp(packet.packet_id, 0 if packet.packet_id == knows else REASON))
        else:
            packet_id: int = getattr(packet, "packet_id")  # noqa: B009 - of PUBLISH
            found.append(Puback(packet_id) if getattr(packet, "qos", 0) == 1 else Pubrec(packet_id))
    return found


REASON = Reason.PACKET_IDENTIFIER_NOT_FOUND


@pytest.mark.parametrize("pieces", PIECES)
def test_packet_ids_are_released_before_their_first_use(pieces: int) -> None:
    rig = Rig(clean_start=False, pieces=pieces)
    request = rig.publish(qos=2)
    released = rig.open(session_present=True)
    assert shown(released) == [f"PUBREL {number}" for number in range(1, FIRST_STEP + 1)]
    rig.give(*answers(released[:-1], knows=1))
    assert rig.sent() == []
    rig.give(*answers(released[-1:]))
    assert shown(rig.sent()) == ["PUBLISH 1"]
    rig.give(Pubrec(1), Pubcomp(1))
    assert request.is_done
    assert shown(rig.sent()) == ["PUBREL 1"]


def test_a_lost_connection_releases_them_anew() -> None:
    rig = Rig(clean_start=False)
    rig.publish(qos=2)
    released = rig.open(session_present=True)
    rig.give(*answers(released[:10]))
    rig = rig.again()
    assert rig.open(session_present=True) == released
    rig.give(*answers(released))
    assert shown(rig.sent()) == ["PUBLISH 1"]
    rig = rig.again()
    assert shown(rig.open(session_present=True)) == ["PUBLISH 1 dup"]


def test_messages_of_both_qos_over_all_packet_ids() -> None:
    """No message of QoS 2 has a packet id that was not released, and answers find their messages meanwhile."""
    rig = Rig(clean_start=False)
    taken = set[int]()
    released = set[int]()
    rounds = 0
    requests: list[PublishRequest] = []
    packets = rig.open(session_present=True)
    while not {1, MAX_PUBLISH_ID} <= taken:
        for qos in (2, 1, 2):
            requests.append(PublishRequest("t", [b""] * 999, qos))
            rig.add(requests[-1])
        packets = rig.sent()
        while packets:
            rounds += bool(released) and not taken & {1}
            new = {each.packet_id for each in packets if isinstance(each, Pubrel)} - taken
            released |= new
            publishes = [each for each in packets if not isinstance(each, Pubrel)]
            used = {getattr(each, "packet_id") for each in publishes if getattr(each, "qos", 0) == 2}  # noqa: B009
            assert used <= released
            taken |= used
            rig.give(*answers(packets))
            assert rig.connection.error is None
            packets = rig.sent()
    assert all(request.is_done and request.error is None for request in requests)


@pytest.mark.parametrize(("clean_start", "present"), [(True, False), (False, False)])
def test_a_new_session_has_nothing_to_release(clean_start: bool, present: bool) -> None:
    rig = Rig(clean_start=clean_start)
    rig.publish(qos=2)
    assert shown(rig.open(session_present=present)) == ["PUBLISH 1"]


def test_qos_1_needs_none() -> None:
    rig = Rig(clean_start=False)
    rig.publish(qos=1)
    assert shown(rig.open(session_present=True)) == ["PUBLISH 1"]


async def test_a_large_burst_in_a_session_that_is_resumed(mqtt_broker: Broker) -> None:
    settings = ConnectionSettings(client_id="c", clean_start=False, session_expiry=60)
    async with SessionClient(settings, open_stream=mqtt_broker.connect, keep_session=True) as first:
        messages = await first.subscribe("t", qos=0)
        assert not first.connack.session_present
    assert len(messages) == 0
    async with SessionClient(settings, open_stream=mqtt_broker.connect) as client:
        received = client.receive_from("t")
        with trio.fail_after(60):
            await client.publish_many("t", [b"%d" % number for number in range(900)], qos=2)
            assert [int((await received.receive()).payload) for _ in range(900)] == list(range(900))
