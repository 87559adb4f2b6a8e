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


def test_secrets_are_not_shown() -> None:
    shown = repr(Settings(servers=(Address("h", 1, password="secret"),), password="secret", token="secret"))
    assert "secret" not in shown
