"""A message as a user gets it."""

from trunkline.client.received import Origin, ReceivedMessage
from trunkline.mqtt.properties import NO_PROPERTIES


def test_it_is_acknowledged_once() -> None:
    numbers: list[int] = []
    message = ReceivedMessage("t", b"x", Origin(1, False, False, NO_PROPERTIES), True, 5, numbers.append)
    assert not message.is_acknowledged
    message.ack()
    message.ack()
    assert message.is_acknowledged
    assert numbers == [5]


def test_at_qos_0_there_is_nothing_to_acknowledge() -> None:
    message = ReceivedMessage("t", b"x", Origin(0, True, False, NO_PROPERTIES), True)
    message.ack()
    assert message.is_acknowledged
    assert repr(message) == "<t b'x' QoS 0 retained>"
