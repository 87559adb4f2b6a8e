import pytest
import trio.testing

from tests.broker.connection import proxied
from tests.broker.connection.below import Below
from trunkline.broker.connection.proxy_protocol import ProxyProtocolLayer
from trunkline.broker.connection.transport import BLOCKED, Ended
from trunkline.config.layer_settings import ProxyProtocolSettings

CLIENT = ("203.0.113.9", 40_000)


def layer(below: Below, refusal: str = "") -> ProxyProtocolLayer:
    settings = ProxyProtocolSettings.model_validate({"trusted": ["192.0.2.0/24", "2001:db8::/32"], "timeout": 3})
    made = ProxyProtocolLayer(below, settings, lambda peer: f"{refusal} {peer[0]}" if refusal else "")
    below.put(made)
    return made


@pytest.mark.parametrize("header", [proxied.v1(CLIENT), proxied.v2(CLIENT)])
async def test_the_peer_is_the_client_of_the_header(header: bytes) -> None:
    data = header + b"\x10\0"
    for at in range(1, len(data)):
        below = Below()
        made = layer(below)
        below.receive(data[:at])
        assert made.peer == (below.peer if at < len(header) else CLIENT)
        below.receive(data[at:], b"more")
        assert made.peer == CLIENT
        assert below.data == b"\x10\0more"
        assert below.failed is None


@pytest.mark.parametrize("header", [b"PROXY UNKNOWN\r\n", proxied.v2(None), proxied.v2(CLIENT, command=0x20)])
async def test_without_an_address_it_is_the_load_balancer(header: bytes) -> None:
    below = Below()
    made = layer(below)
    below.receive(header)
    assert made.peer == below.peer
    assert not below.got


@pytest.mark.parametrize("address", ["198.51.100.1", "2001:db9::1"])
async def test_other_addresses_are_refused(address: str) -> None:
    below = Below((address, 1))
    made = layer(below)
    assert below.failed is not None
    assert "not accepted from this address" in below.failed.problem
    below.receive(proxied.v2(CLIENT) + b"\x10\0")
    assert below.data == b""
    assert made.peer == (address, 1)
    assert below.scheduler.timers == 0


@pytest.mark.parametrize("peer", [("::ffff:192.0.2.1", 1), ("2001:db8::1", 1), None])
async def test_addresses_that_may_send_a_header(peer: tuple[str, int] | None) -> None:
    below = Below(peer)
    made = layer(below)
    below.receive(proxied.v1(CLIENT))
    assert made.peer == CLIENT


async def test_the_client_may_be_refused() -> None:
    below = Below()
    layer(below, "no room for")
    below.receive(proxied.v2(CLIENT) + b"\x10\0")
    assert below.failed is not None
    assert below.failed.problem == "no room for 203.0.113.9"
    assert below.data == b""


async def test_the_load_balancers_own_connection_is_not_refused() -> None:
    below = Below()
    layer(below, "no room for")
    below.receive(proxied.v2(None, command=0x20) + b"\x10\0")
    assert below.data == b"\x10\0"


async def test_what_is_no_header_is_refused() -> None:
    below = Below()
    layer(below)
    below.receive(b"PROXY TCP5\r\n", b"more")
    assert below.failed is not None
    assert "line is not valid" in below.failed.detail
    below.receive(Ended(""))
    assert below.ended == ""


async def test_the_header_has_a_time_limit(mock_clock: trio.testing.MockClock) -> None:
    below = Below()
    layer(below)
    below.receive(b"PROXY")
    mock_clock.jump(3)
    below.turn()
    assert below.failed is not None
    assert "in time" in below.failed.problem


async def test_the_time_limit_ends_with_the_header(mock_clock: trio.testing.MockClock) -> None:
    below = Below()
    made = layer(below)
    below.receive(proxied.v1(CLIENT))
    mock_clock.jump(100)
    below.receive(BLOCKED)
    assert below.got == [BLOCKED]
    made.send(b"out")
    made.close()
    assert below.sent == b"out"
    assert below.calls == ["close"]
    assert below.scheduler.timers == 0
