from typing import Any

import pytest

from trunkline.nats.client.settings import Address, Settings, address_of


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("h", Address("h", 4222)),
        ("h:1", Address("h", 1)),
        ("nats://h", Address("h", 4222)),
        ("nats://h:7/", Address("h", 7)),
        ("tls://h", Address("h", 4222, is_encrypted=True)),
        ("nats://[::1]:9", Address("::1", 9)),
        ("nats://u:p%40@h", Address("h", 4222, user="u", password="p@")),
        ("nats://token@h", Address("h", 4222, password="token")),
    ],
)
def test_addresses(url: str, address: Address) -> None:
    assert address_of(url) == address
    assert address_of(address.url) == Address(address.host, address.port, address.is_encrypted)


@pytest.mark.parametrize(
    "url", ["", "nats://", "http://h", "nats://h:x", "nats://h:70000", "nats://u:secret@h/a", "h?x"]
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(ValueError, match=".") as caught:
        address_of(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"servers": ()}, "servers: none is named"),
        ({"ping_interval": -1}, "ping_interval: -1 is no number above 0"),
        ({"max_pending": "8MiB"}, "max_pending: '8MiB' is no number"),
        ({"max_messages": 0}, "max_messages: 0"),
        ({"max_pings": True}, "max_pings: True"),
        ({"connect_timeout": 0}, "connect_timeout"),
        ({"reconnect_wait": 0}, "reconnect_wait"),
        ({"reconnect_wait": 9.0}, "not above max_reconnect_wait"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Settings(**settings)


def test_a_port_that_is_none() -> None:
    with pytest.raises(ValueError, match="'nats://h:abc': Port could not be cast"):
        address_of("nats://u:secret@h:abc")


def test_secrets_are_not_shown() -> None:
    shown = repr(Settings(servers=(Address("h", 1, password="secret"),), password="secret", token="secret"))
    assert "secret" not in shown
