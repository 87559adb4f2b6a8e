import pytest

from trunkline.hooks.client import ClientInfo, read_address


@pytest.mark.parametrize(
    ("peer", "text"),
    [(("10.0.0.1", 1883), "10.0.0.1:1883"), (("::1", 1883), "[::1]:1883"), (None, "this process")],
)
def test_the_address_is_for_people(peer: tuple[str, int] | None, text: str) -> None:
    assert ClientInfo("c", peer=peer).address == text


def test_a_client_of_a_unix_socket_has_no_address() -> None:
    assert ClientInfo("c", listener="sock").address == "a Unix socket"


def test_log_records_about_a_client_name_it() -> None:
    client = ClientInfo("c", "ann", ("10.0.0.1", 5), "tcp")
    assert client.log_fields == {"client": "c", "username": "ann", "peer": "10.0.0.1:5", "listener": "tcp"}


def test_a_token_in_place_of_a_user_name_is_not_logged() -> None:
    shown = ClientInfo("c", "eyJ" + "x" * 300).log_fields["username"]
    assert isinstance(shown, str)
    assert len(shown) < 70


def test_addresses_as_sockets_give_them() -> None:
    assert str(read_address("::ffff:1.2.3.4")) == "1.2.3.4"
    assert str(read_address("fe80::1%eth0")) == "fe80::1"
    assert read_address("nowhere") is None
