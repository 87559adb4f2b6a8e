"""SCRAM-SHA-256 (RFC 5802, RFC 7677), the client's side: an authenticator that proves that it knows the password
without sending it, and makes the server prove that it knows the user."""

from __future__ import annotations

import hmac
import secrets
from typing import TYPE_CHECKING, Final

from trunkline.mqtt.scram import (
    METHOD,
    MIN_ITERATIONS,
    ScramError,
    client_key,
    decode_base64,
    decode_message,
    digest,
    encode_base64,
    escape_name,
    exclusive_or,
    is_nonce,
    salted_password,
    server_key,
    signed,
    stored_key,
)

if TYPE_CHECKING:
    from collections.abc import Callable

#: A server that asks for more would keep the processor busy: these take about half a second.
MAX_ITERATIONS: Final = 1_000_000
#: Without channel binding, and for nobody else.
_HEADER: Final = "n,,"


class ScramClient:
    """An `Authenticator`. The same one serves any number of connections, one after another."""

    method = METHOD

    def __init__(
        self,
        username: str,
        password: str | Callable[[], str],
        *,
        nonce: Callable[[], str] = lambda: secrets.token_urlsafe(18),
    ) -> None:
        """A `password` that may change is a function, which is called for each authentication.

        Raises:
            ValueError: this cannot be a user name.
        """
        self._name = escape_name(username)
        self._password = password
        self._make_nonce = nonce
        #: Of the exchange that goes on: the nonce until the challenge is answered, then the server's signature.
        self._nonce = ""
        self._signature = b""
        #: The last password, salt and iterations, and what was made of them: it takes long.
        self._salted: tuple[tuple[str, bytes, int], bytes] | None = None

    def __repr__(self) -> str:
        return f"<ScramClient {self._name}>"

    @property
    def _bare(self) -> str:
        return f"n={self._name},r={self._nonce}"

    def begin(self) -> bytes:
        self._signature = b""
        self._nonce = self._make_nonce()
        return f"{_HEADER}{self._bare}".encode()

    def answer(self, challenge: bytes) -> bytes:
        """
        Raises:
            ValueError, ScramError: this is not a challenge that can be answered, or the password cannot be one.
        """
        server_first = decode_message(challenge)
        nonce, salt, iterations = self._read(server_first)
        without_proof = f"c={encode_base64(_HEADER.encode())},r={nonce}"
        about = signed(self._bare, server_first, without_proof)
        salted = self._salt(salt, iterations)
        key = client_key(salted)
        proof = exclusive_or(key, digest(stored_key(key), about))
        self._nonce = ""
        self._signature = digest(server_key(salted), about)
        return f"{without_proof},p={encode_base64(proof)}".encode()

    def _read(self, server_first: str) -> tuple[str, bytes, int]:
        """Nonce, salt and iterations."""
        attributes = server_first.split(",")
        if [each[:2] for each in attributes[:3]] != ["r=", "s=", "i="] or not self._nonce:
            raise ValueError("the server's challenge is none of SCRAM, or needs an extension")
        nonce, salt, iterations = (each[2:] for each in attributes[:3])
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce) or not is_nonce(nonce):
            raise ValueError("the server's nonce does not continue the one of this exchange")
        # few would make the password easy to guess from the proof
        is_number = iterations.isascii() and iterations.isdigit() and len(iterations) <= len(str(MAX_ITERATIONS))
        if not is_number or not MIN_ITERATIONS <= int(iterations) <= MAX_ITERATIONS:
            raise ValueError(f"the server's challenge has not {MIN_ITERATIONS} to {MAX_ITERATIONS} iterations")
        if not (decoded := decode_base64(salt)):
            raise ValueError("the server's challenge has no salt")
        return nonce, decoded, int(iterations)

    def _salt(self, salt: bytes, iterations: int) -> bytes:
        password = self._password if isinstance(self._password, str) else self._password()
        made_of = password, salt, iterations
        if self._salted is None or self._salted[0] != made_of:
            self._salted = made_of, salted_password(*made_of)
        return self._salted[1]

    def finish(self, data: bytes) -> None:
        """
        Raises:
            ScramError: the server did not prove that it knows the user, or refuses the proof.
        """
        signature, self._signature = self._signature, b""
        text = decode_message(data)
        if text.startswith("e="):
            raise ScramError(text[2:])
        # extensions may follow
        proof, _, _ = text.partition(",")
        expected = f"v={encode_base64(signature)}"
        if not signature or not hmac.compare_digest(proof.encode(), expected.encode()):
            raise ScramError("the server did not prove that it knows the user")
