"""A message as a user gets it."""

import pytest

from trunkline.client.received import Origin, ReceivedMessage
from trunkline.mqtt.properties import NO_PROPERTIES, Properties


def test_it_is_acknowledged_once() -> None:
    numbers: list[int] = []
    message = ReceivedMessage("t", b"x", Origin(1, False, False, NO_PROPERTIES), True, 5, numbers.append)
    assert not message.is_acknowledged
    message.ack()
    message.ack()
    message.ack_in_run()
    assert message.is_acknowledged
    assert numbers == [5]
    message = ReceivedMessage("t", b"x", Origin(1, False, False, NO_PROPERTIES), True, 6, numbers.append)
    message.ack_in_run()
    message.ack_in_run()
    message.ack()
    assert message.is_acknowledged
    assert numbers == [5, 6]


def test_at_qos_0_there_is_nothing_to_acknowledge() -> None:
    message = ReceivedMessage("t", b"x", Origin(0, True, False, NO_PROPERTIES), True)
    message.ack()
    assert message.is_acknowledged
    assert repr(message) == "<t b'x' QoS 0 retained>"


def message(payload: bytes, properties: Properties = NO_PROPERTIES) -> ReceivedMessage:
    return ReceivedMessage("t", payload, Origin(0, False, False, properties), True)


def test_a_payload_in_other_forms() -> None:
    assert message("grün".encode()).text == "grün"
    assert message(b'{"on": [1, null]}').json() == {"on": [1, None]}
    for wrong in (b"\xff", b"{"):
        with pytest.raises(ValueError, match="decode|Expecting"):
            message(wrong).json()
    with pytest.raises(UnicodeDecodeError):
        _ = message(b"\xff").text


def test_user_properties_by_name() -> None:
    assert message(b"").user_properties == {}
    several = message(b"", {"user_property": [("a", "1"), ("b", "2"), ("a", "3")]})
    assert several.user_properties == {"a": "3", "b": "2"}
    assert several.properties.get("user_property") == [("a", "1"), ("b", "2"), ("a", "3")]
