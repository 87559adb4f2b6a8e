"""What waits to be sent on a connection."""

from trunkline.client.link import MAX_OUTPUT, Link
from trunkline.client.server_limits import ServerLimits
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


def test_full() -> None:
    link = Link(Version.V5)
    link.write(bytes(MAX_OUTPUT - 1))
    assert not link.is_full
    link.write(b"x")
    assert link.is_full
