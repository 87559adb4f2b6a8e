"""`trunkline.mqtt.plain`."""

from math import inf

from trunkline.mqtt.message import Message
from trunkline.mqtt.plain import deadline_from, message_from_plain, message_to_plain, seconds_left
from trunkline.mqtt.properties import NO_PROPERTIES


def test_times_are_relative() -> None:
    assert seconds_left(inf, 5.0) is None
    assert seconds_left(7.5, 5.0) == 2.5
    assert deadline_from(None, 5.0) == inf
    assert deadline_from(2.5, 5.0) == 7.5


def test_only_plain_values() -> None:
    message = Message("t", b"p", properties={"user_property": (("a", "b"),), "subscription_identifier": (1, 2)})
    plain = message_to_plain(message, 0.0)
    assert plain["properties"] == {"user_property": [["a", "b"]], "subscription_identifier": [1, 2]}
    assert plain["guid"] == bytes(16)
    copy = message_from_plain(plain, 0.0)
    assert copy.properties == message.properties


def test_no_properties_are_the_shared_ones() -> None:
    copy = message_from_plain(message_to_plain(Message("t", b"p"), 0.0), 0.0)
    assert copy.properties is NO_PROPERTIES
