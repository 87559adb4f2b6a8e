"""When a silent client is asked, and when it is given up."""

from typing import Any, cast

from trunkline.broker.nats.pings import Pings
from trunkline.config.nats_settings import NatsSettings

SETTINGS = NatsSettings(ping_interval=10, max_pings=2)


class Sent:
    def __init__(self) -> None:
        self.data = b""

    def send(self, data: bytes) -> None:
        self.data += data


def test_a_client_that_is_silent() -> None:
    sent = Sent()
    pings = Pings(cast("Any", sent))
    assert pings.next_at(5.0, SETTINGS) == 15.0
    assert not pings.is_stale(5.0, 14.0, SETTINGS)
    assert sent.data == b""
    for now in (15.0, 25.0):
        assert not pings.is_stale(5.0, now, SETTINGS)
        assert pings.next_at(5.0, SETTINGS) == now + 10
    assert sent.data == b"PING\r\n" * 2
    assert pings.unanswered == 2
    assert pings.is_stale(5.0, 35.0, SETTINGS)


def test_whatever_it_sends_is_a_sign_of_life() -> None:
    pings = Pings(cast("Any", Sent()))
    for now in (10.0, 20.0):
        assert not pings.is_stale(0.0, now, SETTINGS)
    assert not pings.is_stale(25.0, 30.0, SETTINGS)
    assert pings.unanswered == 0
    assert pings.next_at(25.0, SETTINGS) == 35.0
