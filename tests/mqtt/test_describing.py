"""Packets in words, as journals and the log show them."""

import pytest

from trunkline.mqtt.describing import describe, describe_without_content
from trunkline.mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Puback,
    Publish,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Unsuback,
    Unsubscribe,
    Will,
)


@pytest.mark.parametrize(
    ("packet", "text"),
    [
        (
            Connect(
                "a", clean_start=False, keep_alive=60, will=Will("gone", b"bye", 1, True, {"will_delay_interval": 5})
            ),
            "CONNECT version=5.0 client_id=a keep_alive=60 will=(gone 'bye' qos=1 retain {will_delay_interval: 5})",
        ),
        (Connack(True), "CONNACK session_present"),
        (Connack(False, 0x87, {"reason_string": "go away"}), "CONNACK NOT_AUTHORIZED {reason_string: 'go away'}"),
        (Publish("a b", b"", 2, True, packet_id=7, dup=True), "PUBLISH 'a b' id=7 qos=2 retain dup ''"),
        (Publish("t", b"x" * 100), f"PUBLISH t '{'x' * 60}'… (100 bytes)"),
        (
            Publish("t", b"", properties={"user_property": (("a", "1"), ("a", "2")), "correlation_data": b"\1"}),
            "PUBLISH t {user_property: [['a', '1'], ['a', '2']], correlation_data: '\\x01'} ''",
        ),
        (Puback(7), "PUBACK id=7"),
        (Puback(7, 0xF1), "PUBACK id=7 0xF1"),
        (
            Subscribe(3, [SubscriptionRequest("a/#", 1, True), SubscriptionRequest("b", retain_handling=2)]),
            "SUBSCRIBE id=3 a/# qos=1 no_local, b retain_handling=2",
        ),
        (Suback(3, [0, 1, 2, 0x80]), "SUBACK id=3 GRANTED_QOS_0, GRANTED_QOS_1, GRANTED_QOS_2, UNSPECIFIED_ERROR"),
        (Unsubscribe(3, ["a", "b"]), "UNSUBSCRIBE id=3 a, b"),
        (Unsuback(3, [0, 0x11]), "UNSUBACK id=3 SUCCESS, NO_SUBSCRIPTION_EXISTED"),
        (Pingreq(), "PINGREQ"),
        (Disconnect(0x8E), "DISCONNECT SESSION_TAKEN_OVER"),
        (Auth(0x18, {"authentication_method": "X"}), "AUTH CONTINUE_AUTHENTICATION {authentication_method: X}"),
    ],
)
def test_packets_in_a_line(packet: Packet, text: str) -> None:
    assert describe(packet) == text


@pytest.mark.parametrize(
    ("packet", "text"),
    [
        (
            Connect("a", username="ann", password=b"secret", will=Will("gone", b"bye", 1, True)),
            (
                "CONNECT version=5.0 client_id=a clean_start username=ann password will=(gone payload_bytes=3 qos=1 "
                "retain)"
            ),
        ),
        (
            Publish(
                "t", b"secret", 1, packet_id=3, properties={"user_property": (("a", "x"),), "correlation_data": b"xyz"}
            ),
            "PUBLISH t id=3 qos=1 {user_properties: 1, correlation_data_bytes: 3} payload_bytes=6",
        ),
        (
            Auth(0x18, {"authentication_method": "X", "authentication_data": b"secret"}),
            "AUTH CONTINUE_AUTHENTICATION {authentication_method: X, authentication_data_bytes: 6}",
        ),
        (Puback(7, 0x10), "PUBACK id=7 NO_MATCHING_SUBSCRIBERS"),
    ],
)
def test_packets_without_what_they_carry(packet: Packet, text: str) -> None:
    assert describe_without_content(packet) == text
