"""A relay passes bytes, pressure and ends on, in both directions, and keeps nothing."""

from typing import Any

import pytest

from tests.broker.net.below import Below
from trunkline.broker.connection.relay import Relay
from trunkline.broker.net.transport import BLOCKED, DRAINED, Ended, Failed


class Between:
    """A relay between two transports that record."""

    def __init__(self) -> None:
        self.client, self.home = Below(), Below()
        self.said: list[str] = []
        client: Any = self.client
        home: Any = self.home
        self.relay = Relay(client, home, lambda: self.said.append("linger"), lambda: self.said.append("over"))
        self.client.start(self.relay.from_client, self.client.owner)
        self.home.start(self.relay.from_home, self.home.owner)


@pytest.fixture
def between() -> Between:
    return Between()


async def test_bytes_go_both_ways(between: Between) -> None:
    between.client.receive(b"CONNECT", b"more")
    between.home.receive(b"CONNACK")
    assert between.home.sent == b"CONNECTmore"
    assert between.client.sent == b"CONNACK"


@pytest.mark.parametrize("slow", ["client", "home"])
async def test_who_is_slow_slows_the_other(between: Between, slow: str) -> None:
    one, other = (between.client, between.home) if slow == "client" else (between.home, between.client)
    one.receive(BLOCKED)
    assert other.calls == ["pause"]
    one.receive(DRAINED)
    assert other.calls == ["pause", "resume"]
    assert one.calls == []


async def test_a_client_that_leaves_gets_what_its_home_still_says(between: Between) -> None:
    between.client.receive(b"DISCONNECT", Ended("lost"))
    assert between.home.sent == b"DISCONNECT"
    assert between.home.calls == ["resume", "finish"]
    between.home.receive(b"late")
    assert between.client.sent == b"late"
    assert between.said == []
    between.home.receive(Ended(""))
    assert between.said == ["over"]


async def test_a_client_whose_home_ends_has_time_to_read(between: Between) -> None:
    between.home.receive(b"DISCONNECT", Ended(""))
    assert between.client.sent == b"DISCONNECT"
    assert between.client.calls == ["resume", "finish"]
    assert between.said == ["linger"]
    between.client.receive(b"too late")
    assert between.home.sent == b""
    between.home.receive(Ended("again"))
    assert between.said == ["linger"]
    between.client.receive(Ended(""))
    assert between.said == ["linger", "over"]


async def test_a_client_that_breaks_a_layer_ends_for_its_home(between: Between) -> None:
    between.client.receive(Failed("TLS: bad record mac"))
    assert between.home.calls == ["resume", "finish"]
    between.home.receive(Ended(""))
    assert between.said == ["linger"], "the client may read the alert"
    between.client.receive(Ended(""))
    assert between.said == ["linger", "over"]


async def test_it_closes_its_own_end(between: Between) -> None:
    between.relay.close()
    assert between.home.calls == ["close"]
    assert between.client.calls == []
