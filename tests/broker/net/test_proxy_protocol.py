from typing import Any

import pytest
import trio.testing

from tests.broker.net import proxied
from tests.broker.net.below import Below
from trunkline.broker.metrics import Metrics
from trunkline.broker.net.admission import Admission
from trunkline.broker.net.proxy_protocol import ProxyProtocolLayer
from trunkline.broker.net.transport import BLOCKED, Ended
from trunkline.config.layer_settings import ProxyProtocolSettings
from trunkline.config.listener_settings import ListenerSettings

CLIENT = ("203.0.113.9", 40_000)


def admission(**settings: Any) -> Admission:
    table = {"proxy_protocol": {"trusted": ["192.0.2.0/24", "2001:db8::/32"], "timeout": 3}, **settings}
    return Admission(ListenerSettings.model_validate(table), 0, lambda: 0, Metrics().limited)


def layer(below: Below, admission: Admission = admission(), **more: Any) -> ProxyProtocolLayer:  # noqa: B008
    table = {"trusted": ["192.0.2.0/24", "2001:db8::/32"], "timeout": 3, **more}
    settings = ProxyProtocolSettings.model_validate(table)
    made = ProxyProtocolLayer(below, settings, admission)
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
    layer(below, admission(access_rules=[f"deny {CLIENT[0]}"]))
    below.receive(proxied.v2(CLIENT) + b"\x10\0")
    assert below.failed is not None
    assert below.failed.problem == "the address is not allowed"
    assert below.data == b""


async def test_connections_of_a_client_are_counted_and_not_the_load_balancers() -> None:
    limited = admission(max_connections_per_address=1)
    assert not limited.refusal(("192.0.2.1", 1), 5)
    first, second, third = Below(), Below(), Below()
    made = layer(first, limited)
    first.receive(proxied.v2(CLIENT))
    refused = layer(second, limited)
    second.receive(proxied.v2(CLIENT))
    assert second.failed is not None
    assert second.failed.problem == "max_connections_per_address is 1"
    refused.close()
    made.close()
    layer(third, limited)
    third.receive(proxied.v2(CLIENT) + b"\x10\0")
    assert third.data == b"\x10\0"


async def test_the_load_balancers_own_connection_is_not_refused() -> None:
    below = Below()
    layer(below, admission(access_rules=["deny all"]))
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


async def test_the_identity_is_the_load_balancers_knowledge() -> None:
    below = Below()
    made = layer(below)
    assert made.identity is None
    values = proxied.value(1, b"mqtt") + proxied.value(2, b"broker.example") + proxied.ssl("Sensor 7")
    below.receive(proxied.v2(CLIENT, values))
    identity = made.identity
    assert identity is not None
    assert identity.certificate is not None
    assert identity.certificate.common_name == "Sensor 7"
    assert (identity.server_name, identity.protocol, identity.username) == ("broker.example", "mqtt", "")


@pytest.mark.parametrize(("verify", "username"), [(0, "Sensor 7"), (1, "")])
async def test_a_certificate_that_the_load_balancer_has_verified_names_the_client(verify: int, username: str) -> None:
    below = Below()
    made = layer(below, username_from="cn")
    below.receive(proxied.v2(CLIENT, proxied.value(1, b"mqtt") + proxied.ssl("Sensor 7", verify=verify)))
    assert made.identity is not None
    assert made.identity.username == username
