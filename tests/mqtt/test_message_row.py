from dataclasses import replace
from math import inf

import pytest

from trunkline.mqtt.message import Message
from trunkline.mqtt.message_row import message_from_row, message_to_row
from trunkline.mqtt.packing import pack, unpack
from trunkline.mqtt.properties import NO_PROPERTIES
from trunkline.mqtt.property_codec import encode_properties
from trunkline.mqtt.user_properties import UserProperties

PLAIN = Message("a/ü", b"\x00\xff", guid=1 << 127 | 5, timestamp=123.5)


@pytest.mark.parametrize(
    "message",
    [
        PLAIN,
        replace(PLAIN, qos=2, retain=True, publisher="p", username="u", expires_at=50.0),
        replace(PLAIN, properties={"user_property": (("k", "v"), ("k", "\x01")), "correlation_data": b"c"}),
        replace(PLAIN, properties={"user_property": UserProperties(b"&\0\1k\0\1v"), "message_expiry_interval": 5}),
        replace(PLAIN, properties={"payload_format_indicator": 1, "content_type": "t", "response_topic": "r"}),
    ],
)
def test_a_message_is_the_same_after_it_was_stored(message: Message) -> None:
    stored = unpack(pack(message_to_row(message, 1e9)))
    copy = message_from_row(stored, 1e9)
    for name in ("topic", "payload", "qos", "retain", "publisher", "username", "guid", "timestamp", "expires_at"):
        assert getattr(copy, name) == getattr(message, name)
    assert encode_properties(copy.properties) == encode_properties(message.properties)


def test_another_process_has_another_clock() -> None:
    never, later = Message("a", b"x"), Message("a", b"x", expires_at=50.0)
    assert message_to_row(never, 1000.0)[-1] is None, "not every format of numbers knows infinity"
    assert message_from_row(message_to_row(never, 1000.0), 1030.0).expires_at == inf
    assert message_from_row(message_to_row(later, 1000.0), 1030.0).expires_at == 20.0


def test_a_message_without_properties_shares_the_empty_ones() -> None:
    assert message_from_row(message_to_row(PLAIN, 0.0), 0.0).properties is NO_PROPERTIES
