"""The client's side of SCRAM-SHA-256: the vector of RFC 7677, servers that lie, and the broker's side."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trunkline.client.scram import MAX_ITERATIONS, ScramClient
from trunkline.hooks.client import ClientInfo
from trunkline.hooks.exchange import Continue, Exchange, Success
from trunkline.hooks.scram import ScramAuthenticator, ScramKeys, derive_keys
from trunkline.mqtt.scram import METHOD, ScramError

CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
NONCE = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CHALLENGE = f"r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
SIGNATURE = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def client_of(name: str = "user", password: str = "pencil") -> ScramClient:
    return ScramClient(name, password, nonce=lambda: CLIENT_NONCE)


def talk(client: ScramClient, keys: dict[str, ScramKeys]) -> bool:
    """The whole exchange with the broker's side: whether each believes the other."""
    exchange = Exchange(METHOD, client.begin())
    server = ScramAuthenticator(keys)
    challenge = server(ClientInfo("c"), exchange)
    assert isinstance(challenge, Continue)
    exchange.first, exchange.data = False, client.answer(challenge.data)
    outcome = server(ClientInfo("c"), exchange)
    if isinstance(outcome, Success):
        client.finish(outcome.data)
    return isinstance(outcome, Success)


def test_the_vector_of_rfc_7677() -> None:
    client = client_of()
    assert client.begin() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert client.answer(CHALLENGE.encode()) == (
        f"c=biws,r={NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    )
    client.finish(SIGNATURE + b",x=extension")


@pytest.mark.parametrize(
    "challenge",
    [
        "",
        "x",
        f"s=W22Z,r={NONCE},i=4096",
        f"m=x,r={NONCE},s=W22Z,i=4096",
        f"r={CLIENT_NONCE},s=W22Z,i=4096",
        f"r=another{NONCE},s=W22Z,i=4096",
        f"r={NONCE} ,s=W22Z,i=4096",
        f"r={NONCE},s=,i=4096",
        f"r={NONCE},s=***,i=4096",
        f"r={NONCE},s=W22Z,i=",
        f"r={NONCE},s=W22Z,i=4095",
        f"r={NONCE},s=W22Z,i={MAX_ITERATIONS + 1}",
        f"r={NONCE},s=W22Z,i={'9' * 10_000}",
        f"r={NONCE},s=W22Z,i=-4096",
    ],
)
def test_challenges_that_are_not_answered(challenge: str) -> None:
    client = client_of()
    client.begin()
    with pytest.raises((ScramError, ValueError)):
        client.answer(challenge.encode())


@pytest.mark.parametrize("last", [b"", b"v=", b"v=" + b"A" * 43 + b"=", b"e=invalid-proof", b"\xff", SIGNATURE[:-2]])
def test_a_server_that_does_not_know_the_user(last: bytes) -> None:
    client = client_of()
    client.begin()
    client.answer(CHALLENGE.encode())
    with pytest.raises(ScramError):
        client.finish(last)


def test_the_messages_of_an_exchange_come_once_and_in_order() -> None:
    client = client_of()
    client.begin()
    with pytest.raises(ScramError, match="prove"):
        client.finish(b"v=")  # it was never challenged
    client.answer(CHALLENGE.encode())
    with pytest.raises(ValueError, match="nonce|challenge"):
        client.answer(CHALLENGE.encode())
    client.begin()
    with pytest.raises(ScramError, match="prove"):
        client.finish(SIGNATURE)  # of the exchange before


def test_a_password_that_changes_is_asked_for_each_time() -> None:
    passwords = iter(["old", "new"])
    client = ScramClient("ada", lambda: next(passwords))
    assert talk(client, {"ada": derive_keys("old", iterations=4096)})
    assert talk(client, {"ada": derive_keys("new", iterations=4096)})


def test_no_secret_in_its_text() -> None:
    assert repr(ScramClient("ada", "secret")) == "<ScramClient ada>"


@settings(max_examples=30)
@given(
    name=st.text("ab,= é", min_size=1, max_size=5),
    password=st.text("pq,=ß", max_size=5),
    wrong=st.text("pq", max_size=3),
)
def test_any_name_and_password(name: str, password: str, wrong: str) -> None:
    keys = {name: derive_keys(password, iterations=4096)}
    assert talk(ScramClient(name, password), keys)
    assert talk(ScramClient(name, wrong), keys) is (wrong == password)


@given(challenge=st.binary(max_size=60), last=st.binary(max_size=60))
def test_noise_is_refused(challenge: bytes, last: bytes) -> None:
    client = client_of()
    client.begin()
    with pytest.raises((ScramError, ValueError)):
        client.answer(challenge)
    with pytest.raises(ScramError):
        client.finish(last)
