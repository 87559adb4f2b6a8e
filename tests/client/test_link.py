"""What waits to be sent on a connection."""

import pytest

from trunkline.client.link import MAX_OUTPUT, Link
from trunkline.client.server_limits import ServerLimits
from trunkline.mqtt.message import Message
from trunkline.mqtt.packets import Disconnect, Pingreq, Subscribe, SubscriptionRequest
from trunkline.mqtt.versions import Version


def test_it_is_sent_together() -> None:
    link = Link(Version.V5)
    link.send(Pingreq())
    link.send(Disconnect())
    assert len(link) == 4
    assert link.take() == b"\xc0\0\xe0\0"
    assert (len(link), link.take()) == (0, b"")


def test_explanations_are_left_out_where_they_are_too_much() -> None:
    link = Link(Version.V5)
    link.open(ServerLimits(max_packet_size=20))
    assert link.send(Disconnect(0x80, {"reason_string": "x" * 50}))
    assert link.take() == b"\xe0\1\x80"
    assert not link.send(Subscribe(1, [SubscriptionRequest("x" * 50)]))
    assert link.take() == b""


@pytest.mark.parametrize("topic", ["t", "a/longer/topic"])
def test_an_alias_never_makes_a_packet_too_large(topic: str) -> None:
    message = Message(topic, b"x" * 50, 1)
    plain = Link(Version.V5)
    plain.publish(message, range(1, 2))
    size = len(plain.take())
    link = Link(Version.V5)
    link.open(ServerLimits(max_packet_size=size, topic_aliases=5), 5)
    for packet_id in (1, 2):
        link.publish(message, range(packet_id, packet_id + 1))
        assert len(link.take()) <= size
    small = Message(topic, b"", 1)
    link.publish(small, range(3, 4))
    link.publish(message, range(4, 5))
    assert len(link.take()) <= 2 * size


def test_full() -> None:
    link = Link(Version.V5)
    link.write(bytes(MAX_OUTPUT - 1))
    assert not link.is_full
    link.write(b"x")
    assert link.is_full
