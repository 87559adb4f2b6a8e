"""A connection of the same session may allow less than the one before. What was sent on that one, and what waits, must
keep to it, too: a server hangs up on what it does not allow, at each connection again."""

from collections.abc import Callable
from dataclasses import fields

import pytest
import trio
from trio.testing import MockClock

from tests.client.rig import Rig, shown
from tests.client.scripted import ScriptedServer, well
from trunkline.client.errors import LargerThanServerAccepts, NotOffered, NotSentAgain
from trunkline.client.requests import ClientRequest, PublishRequest, SubscribeRequest, UnsubscribeRequest
from trunkline.client.server_limits import ServerLimits
from trunkline.client.session_client import SessionClient
from trunkline.client.settings import ConnectionSettings
from trunkline.mqtt.encoder import encode
from trunkline.mqtt.packets import (
    Connack,
    Connect,
    Packet,
    Publish,
    Pubrec,
    Subscribe,
    SubscriptionRequest,
    Unsubscribe,
)
from trunkline.mqtt.properties import Properties
from trunkline.mqtt.versions import Version

LONG = "x" * 200
#: Each limit: the CONNACK that has it, and the packets that exceed it below.
LIMITS: dict[str, tuple[Properties, set[type]]] = {
    "receive_maximum": ({"receive_maximum": 1}, set()),
    "maximum_qos": ({"maximum_qos": 0}, {Publish}),
    "retain": ({"retain_available": 0}, {Publish}),
    "max_packet_size": ({"maximum_packet_size": 100}, {Publish, Subscribe, Unsubscribe}),
    "topic_aliases": ({"topic_alias_maximum": 0}, set()),
    "wildcards": ({"wildcard_subscription_available": 0}, {Subscribe}),
    "shared": ({"shared_subscription_available": 0}, {Subscribe}),
    "subscription_identifiers": ({"subscription_identifier_available": 0}, {Subscribe}),
}


def message(qos: int) -> PublishRequest:
    return PublishRequest("t", [LONG.encode()], qos, retain=True)


def subscription() -> SubscribeRequest:
    return SubscribeRequest([SubscriptionRequest(f"$share/g/+/{LONG}", 1)], {"subscription_identifier": [7]})


#: Each request that exceeds whatever it can, and its packets.
REQUESTS: dict[str, tuple[Callable[[], ClientRequest], type]] = {
    "a message at QoS 1": (lambda: message(1), Publish),
    "a message at QoS 2": (lambda: message(2), Publish),
    "messages in part": (lambda: PublishRequest("t", [LONG.encode()] * 9, 1, retain=True), Publish),
    "a subscription": (subscription, Subscribe),
    "the end of a subscription": (lambda: UnsubscribeRequest([LONG]), Unsubscribe),
}
#: Where each of them may be when the connection is lost.
MOMENTS = [(name, moment) for name in REQUESTS for moment in ("queued", "in flight")]
MOMENTS.append(("a message at QoS 2", "PUBREC came"))


def test_all_limits_are_here() -> None:
    assert LIMITS.keys() == {field.name for field in fields(ServerLimits)}


def keeps_to(packet: Packet, limits: ServerLimits) -> None:
    """What a server does not forgive."""
    limits.check_size(len(encode(packet, Version.V5)))
    if isinstance(packet, Publish):
        limits.check_publish(packet.qos, packet.retain)
        assert packet.properties.get("topic_alias", 0) <= limits.topic_aliases
    elif isinstance(packet, Subscribe):
        limits.check_subscribe(packet.requests, "subscription_identifier" in packet.properties)


def answered(rig: Rig, packets: list[Packet], limits: ServerLimits) -> None:
    """A strict server answers all that comes."""
    while packets:
        assert sum(isinstance(each, Publish) and each.qos > 0 for each in packets) <= limits.receive_maximum
        for packet in packets:
            keeps_to(packet, limits)
            rig.give(*well(packet))
        packets = rig.sent()


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize(("request_name", "moment"), MOMENTS)
def test_a_narrower_limit(limit: str, request_name: str, moment: str) -> None:
    make, kind = REQUESTS[request_name]
    properties, exceeding = LIMITS[limit]
    request = make()
    rig = Rig(topic_aliases_out=5)
    orphans: list[str] = []
    rig.outgoing.on_orphans = orphans.extend
    if moment != "queued":
        rig.open(properties={"topic_alias_maximum": 5, "receive_maximum": 4})
        rig.add(request)
        rig.sent()
        if moment == "PUBREC came":
            rig.give(Pubrec(1))
        rig = rig.again(topic_aliases_out=5)
    else:
        rig.add(request)
    behind = rig.publish("behind")
    answered(rig, rig.open(session_present=moment != "queued", properties=properties), ServerLimits.of(properties))
    assert rig.connection.error is None
    assert behind.is_done
    assert behind.error is None
    assert request.is_done
    assert not rig.outgoing.is_waiting
    if kind not in exceeding or moment == "PUBREC came":
        assert request.error is None
    elif moment == "queued":
        assert isinstance(request.error, NotOffered | LargerThanServerAccepts)
    elif request_name == "messages in part":  # its rest was never sent
        assert isinstance(request.error, NotOffered | LargerThanServerAccepts | NotSentAgain)
    else:
        assert isinstance(request.error, NotSentAgain)
        assert isinstance(request.error.__cause__, NotOffered | LargerThanServerAccepts)
        # the server may have granted it
        assert orphans == ([f"$share/g/+/{LONG}"] if kind is Subscribe else [])


def test_those_that_were_sent_together_are_given_up_one_by_one() -> None:
    rig = Rig()
    rig.open()
    rig.outgoing.detach()
    requests = [PublishRequest("t", [b"x" * size], 1) for size in (10, 200, 20)]
    for request in requests:
        rig.outgoing.add(request)
    rig = rig.again()
    assert shown(rig.open(session_present=True)) == ["PUBLISH 1", "PUBLISH 2", "PUBLISH 3"]
    rig = rig.again()
    answered(rig, rig.open(session_present=True, properties={"maximum_packet_size": 100}), ServerLimits())
    assert [type(request.error) for request in requests] == [type(None), NotSentAgain, type(None)]


def test_a_packet_id_of_qos_2_is_given_back_before_another_message_has_it() -> None:
    """The server may have received the message that is given up."""
    rig = Rig()
    rig.open()
    rig.publish("t", bytes(200), 2)
    rig.sent()
    rig = rig.again()
    assert shown(rig.open(session_present=True, properties={"maximum_packet_size": 100})) == ["PUBREL 1"]
    rig = rig.again()
    assert shown(rig.open(session_present=True)) == ["PUBREL 1"]


async def test_a_client_whose_server_hangs_up_on_large_packets_goes_on(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(packet: Packet) -> list[Packet]:
        if isinstance(packet, Connect):
            return [Connack(not packet.clean_start, 0, {} if server.opened == 1 else {"maximum_packet_size": 100})]
        if len(encode(packet, Version.V5)) > 100:
            server.close()
            return []
        return [*well(packet)]

    server = ScriptedServer(answer)
    async with SessionClient(ConnectionSettings(client_id="c"), open_stream=server.open_stream) as client:
        with pytest.raises(NotSentAgain, match="a packet of 209 bytes; the server accepts 100"):
            await client.publish("t", bytes(200), qos=1)
        assert await client.publish("t", b"small", qos=1) == 0
    assert server.opened == 2
    assert "a message to t is given up" in caplog.text


async def test_a_server_that_hangs_up_without_a_word_is_asked_less_and_less_often(autojump_clock: MockClock) -> None:
    def answer(packet: Packet) -> list[Packet]:
        if isinstance(packet, Publish):
            server.close()
            return []
        return [*well(packet)]

    server = ScriptedServer(answer)
    async with SessionClient(ConnectionSettings(client_id="c"), open_stream=server.open_stream) as client:
        client.publish_nowait("t", b"", qos=1)
        await trio.sleep(600)
        assert server.opened < 25
        server.opened = 0
        await trio.sleep(6000)
        assert 100 <= server.opened < 120
        await client.disconnect()
