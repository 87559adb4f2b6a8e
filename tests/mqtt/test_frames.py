from dataclasses import replace
from typing import Any

import pytest

from tests.mqtt.cases import ALL_PUBLISH, publish
from tests.mqtt.exchange import V5, V31, V311, accepted, same
from trunkline.mqtt.encoder import encode
from trunkline.mqtt.frames import (
    PACKET_ID,
    check_writable,
    encode_publish,
    publish_pieces,
    publish_whole,
)
from trunkline.mqtt.message import Message
from trunkline.mqtt.packets import Publish
from trunkline.mqtt.properties import Properties
from trunkline.mqtt.versions import Version

FORMS = [(version, qos, retain) for version in Version for qos in (0, 1, 2) for retain in (False, True)]


@pytest.mark.parametrize(("version", "qos", "retain"), FORMS)
@pytest.mark.parametrize("payload", [b"", b"x", bytes(200), bytes(20_000)], ids=len)
@pytest.mark.parametrize(
    "properties", [{}, {"content_type": "t", "user_property": [("a", "b")]}], ids=["plain", "full"]
)
def test_pieces_are_the_packet(
    version: Version, qos: int, retain: bool, payload: bytes, properties: Properties
) -> None:
    message = Message("a/ä", payload, 2, True, properties)
    head, tail = publish_pieces(message, version, qos, retain)
    packet = publish("a/ä", payload, qos, retain, packet_id=513 if qos else 0, properties=properties)
    expected = encode(packet, version)
    if qos:
        assert head + PACKET_ID[513] + tail == expected
    else:
        assert (head, tail) == (expected, b"")
    assert encode_publish(message, version, qos=qos, retain=retain, packet_id=513 if qos else 0) == expected


def test_each_form_is_made_once() -> None:
    message = Message("a", b"x", 1)
    made = {form: publish_pieces(message, *form) for form in FORMS}
    for form, pieces in made.items():
        again = publish_pieces(message, *form)
        assert again[0] is pieces[0]
        assert again[1] is pieces[1]
    # 3.1 and 3.1.1 share theirs, 5.0 has its own.
    for qos in (0, 1, 2):
        for retain in (False, True):
            assert made[V31, qos, retain][0] is made[V311, qos, retain][0]
            assert made[V5, qos, retain] != made[V311, qos, retain]
    # No two forms are mixed up.
    assert len({id(head) for head, _ in made.values()}) == 12


def test_the_payload_is_not_copied_for_3() -> None:
    message = Message("a", bytes(70_000), 1)
    assert publish_pieces(message, V311, 1, False)[1] is message.payload


@pytest.mark.parametrize("version", Version)
def test_what_was_decoded_goes_out_as_it_came(version: Version) -> None:
    data = encode(publish("a", b"x"), version)
    message = accepted(data * 1, version)
    assert isinstance(message, Publish)
    whole, rest = publish_pieces(message, version, 0, False)
    assert whole is (message.wire5 if version is V5 else message.wire3)
    assert (whole, rest) == (data, b"")
    assert publish_whole(message, version) is whole


@pytest.mark.parametrize("version", [V311, V5])
def test_a_whole_packet_is_made_once(version: Version) -> None:
    message = Message("a", b"x")
    whole = publish_whole(message, version)
    assert whole == encode(publish("a", b"x"), version)
    assert publish_whole(message, version) is whole
    assert publish_pieces(message, version, 0, False) == (whole, b"")


def test_a_message_that_is_replaced_is_encoded_anew() -> None:
    message = Message("a", b"x")
    for form in FORMS:
        publish_pieces(message, *form)
    changed = replace(message, topic="b")
    assert (changed.wire3, changed.wire5, changed.frames) == (None, None, None)
    assert publish_whole(changed, V311) == encode(publish("b", b"x"), V311)


def test_properties_of_one_hop_are_not_passed_on() -> None:
    """[MQTT-3.3.2-7] [MQTT-3.3.4-6]"""
    message = Message("a", b"x", 0, False, ALL_PUBLISH | {"subscription_identifier": [4]})
    packet = accepted(publish_whole(message, V5), V5, server=False)
    assert isinstance(packet, Publish)
    assert packet.properties == {name: value for name, value in ALL_PUBLISH.items() if name != "topic_alias"}
    assert packet.properties["user_property"] == ALL_PUBLISH["user_property"]
    only = Message("a", b"x", 0, False, {"topic_alias": 4})
    assert publish_whole(only, V5) == encode(publish("a", b"x"), V5)


def test_properties_are_not_for_3() -> None:
    message = Message("a", b"x", 0, False, ALL_PUBLISH)
    assert publish_whole(message, V311) == encode(publish("a", b"x"), V311)
    assert encode_publish(message, V311, subscription_ids=(1,), topic_alias=2) == encode(publish("a", b"x"), V311)


def test_what_only_one_subscriber_gets() -> None:
    """[MQTT-3.3.4-3] [MQTT-3.3.4-4]"""
    message = Message("a", b"x", 2, False, {"message_expiry_interval": 60, "content_type": "t"})
    data = encode_publish(
        message, V5, qos=1, dup=True, packet_id=9, subscription_ids=(1, 300), topic_alias=2, expiry_interval=41
    )
    expected = publish(
        "a",
        b"x",
        1,
        packet_id=9,
        dup=True,
        properties={
            "message_expiry_interval": 41,
            "content_type": "t",
            "topic_alias": 2,
            "subscription_identifier": [1, 300],
        },
    )
    assert same(accepted(data, V5, server=False), expected)
    assert message.properties == {"message_expiry_interval": 60, "content_type": "t"}
    assert message.frames is None


def test_an_alias_instead_of_the_topic() -> None:
    message = Message("a/long/topic", b"x")
    data = encode_publish(message, V5, topic_alias=7, omit_topic=True)
    assert same(accepted(data, V5, server=False), publish("", b"x", properties={"topic_alias": 7}))


def test_an_expiry_that_nobody_set_is_not_made_up() -> None:
    message = Message("a", b"x")
    assert encode_publish(message, V5, expiry_interval=5) == encode(publish("a", b"x"), V5)


@pytest.mark.parametrize("options", [{"qos": 1}, {"packet_id": 1}, {"dup": True}])
def test_flags_that_do_not_go_together(options: dict[str, int]) -> None:
    """[MQTT-2.2.1-2] [MQTT-3.3.1-2]"""
    with pytest.raises(AssertionError):
        encode_publish(Message("a", b""), V311, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"payload": "text"}, "payload must be bytes, not str"),
        ({"payload": None}, "payload must be bytes, not NoneType"),
        ({"qos": 3}, "QoS must be 0, 1 or 2, not 3"),
        ({"topic": "a\0b"}, "U\\+0000"),
        ({"topic": "a\ud800b"}, "surrogate"),
        ({"properties": {"contents": "x"}}, "properties cannot be written: .*'contents'"),
        ({"properties": {"content_type": 5}}, "properties cannot be written"),
        ({"properties": {"user_property": [("a", 5)]}}, "properties cannot be written"),
        ({"properties": {"message_expiry_interval": -1}}, "properties cannot be written"),
    ],
)
def test_what_cannot_be_sent_is_told(change: dict[str, Any], told: str) -> None:
    message = Message("a/b", b"x", 1, False, {"content_type": "t", "user_property": [("a", "b")]})
    check_writable(message)
    with pytest.raises((TypeError, ValueError), match=told):
        check_writable(replace(message, **change))
