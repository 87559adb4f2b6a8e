"""One table of packets and the bytes that stand for them. Many tests run over all of it."""

from dataclasses import dataclass

from tests.mqtt.exchange import V5, V31, V311, wire
from trunkline.mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Unsuback,
    Unsubscribe,
    Will,
)
from trunkline.mqtt.properties import Properties
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.versions import Version


@dataclass(frozen=True)
class Case:
    name: str
    version: Version
    packet: Packet
    data: bytes
    #: Who may receive it: a server, a client.
    server: bool = True
    client: bool = False

    def sides(self) -> list[bool]:
        """The values of `Decoder.server` that take the packet."""
        return [side for side, takes in ((True, self.server), (False, self.client)) if takes]


def publish(
    topic: str,
    payload: bytes = b"",
    qos: int = 0,
    retain: bool = False,
    *,
    packet_id: int = 0,
    dup: bool = False,
    properties: Properties | None = None,
) -> Publish:
    message = Publish(topic, payload, qos, retain)
    if properties is not None:
        message.properties = properties
    message.packet_id = packet_id
    message.dup = dup
    return message


def _case(name: str, version: Version, packet: Packet, data: str, receiver: str = "server") -> Case:
    return Case(
        f"{version} {name}",
        version,
        packet,
        wire(data),
        server=receiver in ("server", "both"),
        client=receiver in ("client", "both"),
    )


def _for_all(name: str, packet: Packet, data: str, receiver: str = "both") -> list[Case]:
    return [_case(name, version, packet, data, receiver) for version in Version]


def _for_3(name: str, packet: Packet, data: str, receiver: str = "both") -> list[Case]:
    return [_case(name, version, packet, data, receiver) for version in (V31, V311)]


ALL_CONNECT: Properties = {
    "session_expiry_interval": 10,
    "receive_maximum": 20,
    "maximum_packet_size": 65536,
    "topic_alias_maximum": 7,
    "request_response_information": 1,
    "request_problem_information": 0,
    "user_property": [("k", "v"), ("k", "w"), ("k", "v")],
    "authentication_method": "M",
    "authentication_data": b"\0\1",
}
ALL_WILL: Properties = {
    "will_delay_interval": 3,
    "payload_format_indicator": 1,
    "message_expiry_interval": 60,
    "content_type": "t",
    "response_topic": "r",
    "correlation_data": b"c",
    "user_property": [("", "")],
}
ALL_CONNACK: Properties = {
    "session_expiry_interval": 1,
    "receive_maximum": 2,
    "maximum_qos": 1,
    "retain_available": 0,
    "maximum_packet_size": 3,
    "assigned_client_identifier": "a",
    "topic_alias_maximum": 4,
    "reason_string": "b",
    "user_property": [("c", "d")],
    "wildcard_subscription_available": 1,
    "subscription_identifier_available": 0,
    "shared_subscription_available": 1,
    "server_keep_alive": 5,
    "response_information": "e",
    "server_reference": "f",
    "authentication_method": "g",
    "authentication_data": b"",
}
ALL_PUBLISH: Properties = {
    "payload_format_indicator": 1,
    "message_expiry_interval": 2,
    "topic_alias": 3,
    "response_topic": "r/t",
    "correlation_data": b"\xff",
    "user_property": [("ä", "ö"), ("k" * 100, "v")],
    "content_type": "text/plain",
}

CASES = [
    _case("CONNECT", V31, Connect("c", V31, False, 10), "10 0f 0006 4d5149736470 03 00 000a 0001 63"),
    _case("CONNECT of a bridge", V31, Connect("c", V31, bridge=True), "10 0f 0006 4d5149736470 83 02 0000 0001 63"),
    _case("CONNECT", V311, Connect("c", V311, True, 10), "10 0d 0004 4d515454 04 02 000a 0001 63"),
    _case("CONNECT of a bridge", V311, Connect("", V311, bridge=True), "10 0c 0004 4d515454 84 02 0000 0000"),
    _case(
        "CONNECT with all",
        V311,
        Connect("c", V311, False, 65535, Will("w", b"\0x", 2, True), "u", b"\xff\0"),
        "10 1b 0004 4d515454 04 f4 ffff 0001 63 0001 77 0002 0078 0001 75 0002 ff00",
    ),
    _case("CONNECT", V5, Connect("c"), "10 0e 0004 4d515454 05 02 0000 00 0001 63"),
    _case(
        "CONNECT with a password alone",
        V5,
        Connect("", password=b"p"),
        "10 10 0004 4d515454 05 42 0000 00 0000 0001 70",
    ),
    _case(
        "CONNECT with all",
        V5,
        Connect("c", V5, False, 9, Will("w", b"", 1, False, ALL_WILL), "", b"", False, ALL_CONNECT),
        "10 67 0004 4d515454 05 cc 0009"
        " 32 11 0000000a 21 0014 27 00010000 22 0007 19 01 17 00"
        " 26 0001 6b 0001 76 26 0001 6b 0001 77 26 0001 6b 0001 76 15 0001 4d 16 0002 0001"
        " 0001 63"
        " 1d 18 00000003 01 01 02 0000003c 03 0001 74 08 0001 72 09 0001 63 26 0000 0000"
        " 0001 77 0000 0000 0000",
    ),
    _case("CONNACK", V31, Connack(), "20 02 00 00", "client"),
    _case("CONNACK", V311, Connack(True), "20 02 01 00", "client"),
    *_for_3("CONNACK that refuses", Connack(False, Reason.NOT_AUTHORIZED), "20 02 00 05", "client"),
    _case("CONNACK", V5, Connack(True), "20 03 01 00 00", "client"),
    _case("CONNACK that refuses", V5, Connack(False, 0x87), "20 03 00 87 00", "client"),
    _case(
        "CONNACK with all",
        V5,
        Connack(False, 0, ALL_CONNACK),
        "20 3e 00 00 3b 11 00000001 21 0002 24 01 25 00 27 00000003 12 0001 61 22 0004 1f 0001 62"
        " 26 0001 63 0001 64 28 01 29 00 2a 01 13 0005 1a 0001 65 1c 0001 66 15 0001 67 16 0000",
        "client",
    ),
    *_for_3("PUBLISH", publish("a/b", b"hi"), "30 07 0003 612f62 6869"),
    *_for_3("PUBLISH retained", publish("a/b", b"", 0, True), "31 05 0003 612f62"),
    *_for_3("PUBLISH QoS 1", publish("a/b", b"hi", 1, packet_id=258), "32 09 0003 612f62 0102 6869"),
    *_for_3("PUBLISH QoS 1 retained", publish("a", b"h", 1, True, packet_id=1), "33 06 0001 61 0001 68"),
    *_for_3("PUBLISH QoS 2", publish("a/b", b"hi", 2, packet_id=65535), "34 09 0003 612f62 ffff 6869"),
    *_for_3("PUBLISH again", publish("a", b"", 2, True, packet_id=1, dup=True), "3d 05 0001 61 0001"),
    _case("PUBLISH", V5, publish("a/b", b"hi"), "30 08 0003 612f62 00 6869", "both"),
    _case("PUBLISH of nothing", V5, publish("a/b"), "30 06 0003 612f62 00", "both"),
    _case("PUBLISH retained", V5, publish("a", b"\0", 0, True), "31 05 0001 61 00 00", "both"),
    _case("PUBLISH QoS 1", V5, publish("ä", b"h", 1, packet_id=7), "32 08 0002 c3a4 0007 00 68", "both"),
    _case("PUBLISH QoS 2", V5, publish("a", b"", 2, True, packet_id=7), "35 06 0001 61 0007 00", "both"),
    _case("PUBLISH again", V5, publish("a", b"", 1, packet_id=7, dup=True), "3a 06 0001 61 0007 00", "both"),
    _case(
        "PUBLISH by alias",
        V5,
        publish("", b"x", properties={"topic_alias": 65535}),
        "30 07 0000 03 23 ffff 78",
        "both",
    ),
    _case(
        "PUBLISH with all",
        V5,
        publish("a", b"x", 1, packet_id=1, properties=ALL_PUBLISH),
        "32 9c01 0001 61 0001 9401 01 01 02 00000002 23 0003 08 0003 722f74 09 0001 ff"
        f" 26 0002 c3a4 0002 c3b6 26 0064 {'6b' * 100} 0001 76 03 000a 746578742f706c61696e 78",
        "both",
    ),
    _case(
        "PUBLISH with subscription identifiers",
        V5,
        publish("a", b"", properties={"subscription_identifier": [1, 268435455, 1]}),
        "30 0d 0001 61 09 0b 01 0b ffffff7f 0b 01",
        "client",
    ),
    *_for_all("PUBACK", Puback(7), "40 02 0007"),
    *_for_all("PUBREC", Pubrec(7), "50 02 0007"),
    *_for_all("PUBREL", Pubrel(65535), "62 02 ffff"),
    *_for_all("PUBCOMP", Pubcomp(7), "70 02 0007"),
    _case("PUBACK with a reason", V5, Puback(7, 0x10), "40 03 0007 10", "both"),
    _case("PUBREC with a reason", V5, Pubrec(7, 0x97), "50 03 0007 97", "both"),
    _case("PUBREL with a reason", V5, Pubrel(7, 0x92), "62 03 0007 92", "both"),
    _case("PUBCOMP with a reason", V5, Pubcomp(7, 0x92), "70 03 0007 92", "both"),
    _case(
        "PUBACK with properties",
        V5,
        Puback(7, 0, {"reason_string": "no", "user_property": [("a", "b")]}),
        "40 10 0007 00 0c 1f 0002 6e6f 26 0001 61 0001 62",
        "both",
    ),
    _case("PUBREC with properties", V5, Pubrec(7, 0x80, {"reason_string": ""}), "50 07 0007 80 03 1f 0000", "both"),
    _case("PUBREL with properties", V5, Pubrel(7, 0, {"reason_string": ""}), "62 07 0007 00 03 1f 0000", "both"),
    _case("PUBCOMP with properties", V5, Pubcomp(7, 0, {"reason_string": ""}), "70 07 0007 00 03 1f 0000", "both"),
    *_for_3(
        "SUBSCRIBE",
        Subscribe(1, [SubscriptionRequest("a/#", 2), SubscriptionRequest("+", 0)]),
        "82 0c 0001 0003 612f23 02 0001 2b 00",
        "server",
    ),
    _case(
        "SUBSCRIBE",
        V5,
        Subscribe(
            65535,
            [SubscriptionRequest("#", 1, True, True, 2), SubscriptionRequest("$share/g/+/a", 2, False, False, 1)],
            {"subscription_identifier": [128], "user_property": [("a", "b")]},
        ),
        "82 20 ffff 0a 0b 8001 26 0001 61 0001 62 0001 23 2d 000c 2473686172652f672f2b2f61 12",
    ),
    *_for_3("SUBACK", Suback(1, [0, 1, 2, 0x80]), "90 06 0001 00 01 02 80", "client"),
    _case("SUBACK", V5, Suback(1, [0, 0x9E]), "90 05 0001 00 00 9e", "client"),
    _case(
        "SUBACK with properties", V5, Suback(1, [1], {"reason_string": "x"}), "90 08 0001 04 1f 0001 78 01", "client"
    ),
    *_for_3("UNSUBSCRIBE", Unsubscribe(1, ["a", "b/+"]), "a2 0a 0001 0001 61 0003 622f2b", "server"),
    _case(
        "UNSUBSCRIBE",
        V5,
        Unsubscribe(1, ["$share/g/a"], {"user_property": [("a", "b")]}),
        "a2 16 0001 07 26 0001 61 0001 62 000a 2473686172652f672f61",
    ),
    *_for_3("UNSUBACK", Unsuback(1), "b0 02 0001", "client"),
    _case("UNSUBACK", V5, Unsuback(1, [0, 0x11]), "b0 05 0001 00 00 11", "client"),
    *_for_all("PINGREQ", Pingreq(), "c0 00", "server"),
    *_for_all("PINGRESP", Pingresp(), "d0 00", "client"),
    *_for_3("DISCONNECT", Disconnect(), "e0 00", "server"),
    _case("DISCONNECT", V5, Disconnect(), "e0 00", "both"),
    _case("DISCONNECT with the will", V5, Disconnect(4), "e0 01 04"),
    _case(
        "DISCONNECT with an expiry",
        V5,
        Disconnect(0, {"session_expiry_interval": 0, "reason_string": "bye"}),
        "e0 0d 00 0b 11 00000000 1f 0003 627965",
    ),
    _case("DISCONNECT of a server", V5, Disconnect(0x8E), "e0 01 8e", "client"),
    _case(
        "DISCONNECT to another server",
        V5,
        Disconnect(0x9C, {"server_reference": "h:1"}),
        "e0 08 9c 06 1c 0003 683a31",
        "client",
    ),
    _case("AUTH", V5, Auth(0x18, {"authentication_method": "M"}), "f0 06 18 04 15 0001 4d", "both"),
    _case(
        "AUTH again",
        V5,
        Auth(0x19, {"authentication_method": "M", "authentication_data": b"\0"}),
        "f0 0a 19 08 15 0001 4d 16 0001 00",
    ),
    _case("AUTH done", V5, Auth(), "f0 00", "client"),
]

#: Every case for each side that takes it, and a name for the test.
SIDES = [(case, server) for case in CASES for server in case.sides()]
NAMES = [f"{case.name} to a {'server' if server else 'client'}" for case, server in SIDES]
