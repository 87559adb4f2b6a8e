import pytest

from tests.mqtt.cases import publish
from tests.mqtt.exchange import V5, V31, V311
from trunkline.mqtt.encoder import encode, encode_run
from trunkline.mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    Puback,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Unsuback,
    Will,
)
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.versions import Version


@pytest.mark.parametrize(
    ("packet", "version", "data"),
    [
        (Connack(True, Reason.NOT_AUTHORIZED), V5, "2003008700"),
        (Connack(True, Reason.NOT_AUTHORIZED), V311, "20020005"),
        (Connack(True), V31, "20020000"),
        (Connack(False, Reason.QUOTA_EXCEEDED), V311, "20020003"),
        (Connack(False, Reason.BANNED, {"reason_string": "no"}), V311, "20020005"),
        (Puback(1, Reason.QUOTA_EXCEEDED, {"reason_string": "no"}), V311, "40020001"),
        (Suback(1, [Reason.NOT_AUTHORIZED, 2, 0x97]), V311, "90050001800280"),
        (Unsuback(1, [0, 0x11]), V311, "b0020001"),
        (Disconnect(Reason.SESSION_TAKEN_OVER), V311, "e000"),
        (Disconnect(Reason.SESSION_TAKEN_OVER), V5, "e0018e"),
        (Subscribe(1, [SubscriptionRequest("a", 1, True, True, 2)]), V311, "82060001000161 01"),
        (publish("a", b"x", properties={"content_type": "t"}), V311, "3004000161 78"),
        (Connect("c", V5, will=Will("w", b"", properties={"will_delay_interval": 1})), V311,
         "10120004 4d515454 04 06 0000 000163 000177 0000"),
    ],
)  # fmt: skip
def test_leaves_out_what_a_version_does_not_have(packet: Packet, version: Version, data: str) -> None:
    """[MQTT-3.2.2-6] [MQTT3-3.2.2-4] [MQTT3-3.9.3-2]"""
    assert encode(packet, version) == bytes.fromhex(data)


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_a_return_code(reason: Reason) -> None:
    for version in (V31, V311):
        code = encode(Connack(False, reason), version)[3]
        assert code in (1, 2, 3, 4, 5) if reason else code == 0


@pytest.mark.parametrize("packet_id", [0, -1, 65_536])
def test_refuses_a_packet_identifier(packet_id: int) -> None:
    """[MQTT-2.2.1-3] [MQTT-2.2.1-4]"""
    for packet in (Puback(packet_id), Subscribe(packet_id, []), publish("a", qos=1, packet_id=packet_id)):
        with pytest.raises(ValueError, match="packet identifier"):
            encode(packet, V5)


def test_refuses_what_a_version_cannot_say() -> None:
    with pytest.raises(ValueError, match="AUTH"):
        encode(Auth(0x18), V311)
    with pytest.raises(ValueError, match="password"):
        encode(Connect("c", V311, password=b"p"), V311)


def test_acknowledgements_in_a_row() -> None:
    kinds = (PacketType.PUBACK, Puback), (PacketType.PUBREC, Pubrec), (PacketType.PUBREL, Pubrel)
    for kind, packet in kinds:
        for version in Version:
            assert encode_run(kind, (1, 300)) == encode(packet(1), version) + encode(packet(300), version)
