"""What both sides of SCRAM-SHA-256 compute, with the vector of RFC 7677; their exchanges are tested with each side."""

from base64 import b64decode, b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.mqtt.scram import (
    ScramError,
    client_key,
    decode_base64,
    decode_message,
    digest,
    escape_name,
    exclusive_or,
    is_nonce,
    salted_password,
    server_key,
    signed,
    stored_key,
    unescape_name,
)

NONCE = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"


def test_the_vector_of_rfc_7677() -> None:
    salted = salted_password("pencil", b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096)
    about = signed("n=user,r=rOprNGfwEbeRWgbNEkqO", f"r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", f"c=biws,r={NONCE}")
    key = client_key(salted)
    proof = exclusive_or(key, digest(stored_key(key), about))
    assert b64encode(proof) == b"dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert b64encode(digest(server_key(salted), about)) == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@given(st.text("ab,= =2C", min_size=1))
def test_names(name: str) -> None:
    escaped = escape_name(name)
    assert "," not in escaped
    assert unescape_name(escaped) == name


@pytest.mark.parametrize("text", ["", "=", "a=2", "=2D", "a\0"])
def test_what_is_no_name(text: str) -> None:
    with pytest.raises(ScramError, match="invalid-username-encoding"):
        unescape_name(text)


@pytest.mark.parametrize(
    ("text", "valid"), [("abc+/", True), ("", False), ("a b", False), ("a,b", False), ("é", False)]
)
def test_nonces(text: str, valid: bool) -> None:
    assert is_nonce(text) is valid


def test_what_is_not_encoded_as_it_should() -> None:
    for text in ("***", "a", "é"):
        with pytest.raises(ScramError, match="invalid-encoding"):
            decode_base64(text)
    with pytest.raises(ScramError, match="invalid-encoding"):
        decode_message(b"\xff")
