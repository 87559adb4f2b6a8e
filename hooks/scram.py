"""SCRAM-SHA-256 (RFC 5802, RFC 7677), the server's side, for enhanced authentication of MQTT 5.0.

The client proves that it knows the password without sending it, and the server proves that it knows the user's keys.
The file of keys holds no password and nothing that could be used instead of one. Channel binding is not offered.

A user that is not in the file gets a challenge as well, the same one each time, and fails at the end as with a wrong
password: an attempt does not reveal which users exist.
"""

import hmac
import secrets
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from trunkline.hooks.client import ClientInfo
from trunkline.hooks.credentials import parse_entries, replace_entry
from trunkline.hooks.decisions import Deny
from trunkline.hooks.exchange import Continue, Exchange, Success
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.saslprep import prepare
from trunkline.mqtt.scram import (
    DIGEST_SIZE,
    METHOD,
    MIN_ITERATIONS,
    ScramError,
    client_key,
    decode_base64,
    decode_message,
    digest,
    encode_base64,
    exclusive_or,
    is_nonce,
    salted_password,
    server_key,
    signed,
    stored_key,
    unescape_name,
)

#: Iterations for new keys. The client, often a small device, computes them at each login.
ITERATIONS: Final = 15_000
SALT_LENGTH: Final = 16

_FIELDS: Final = 4


@dataclass(frozen=True, slots=True)
class ScramKeys:
    """The keys that the server keeps in place of a password."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


def derive_keys(password: str, *, salt: bytes | None = None, iterations: int = ITERATIONS) -> ScramKeys:
    """Keys for a password; ValueError if it contains characters that SASLprep does not allow."""
    if salt is None:
        salt = secrets.token_bytes(SALT_LENGTH)
    salted = salted_password(password, salt, iterations)
    return ScramKeys(salt, iterations, stored_key(client_key(salted)), server_key(salted))


# The file: name:iterations:salt:stored key:server key, the last three in base64


def parse_scram(text: str, source: str = "SCRAM file") -> dict[str, ScramKeys]:
    """Names and keys of a file's text; `source` is its name, for the errors.

    Raises:
        CredentialsError: with all problems at once.
    """
    return parse_entries(text, source, _FIELDS, _read_keys)


def set_scram(text: str, name: str, password: str) -> str:
    """The file's text with new keys for the name; ValueError if the name or password cannot be used."""
    return replace_entry(text, prepare(name), _write_keys(derive_keys(password)), _FIELDS)


def delete_scram(text: str, name: str) -> str:
    """The file's text without the name; LookupError if it does not have the name."""
    return replace_entry(text, prepare(name), None, _FIELDS)


# The exchange


class ScramServer:
    """One exchange: `first` answers the client's first message, `final` its last one. Both raise ScramError."""

    __slots__ = ("_bare", "_gs2", "_keys", "_known", "_nonce", "_server_first", "name")

    def __init__(self) -> None:
        self.name = ""
        self._known = False

    def first(self, message: bytes, find: Callable[[str], tuple[ScramKeys, bool]], nonce: str) -> bytes:
        """`find` returns a name's keys and whether they are real; `nonce` is the server's part of the nonce."""
        text = decode_message(message)
        flag, _, rest = text.partition(",")
        authorize, comma, bare = rest.partition(",")
        if flag.startswith("p="):
            raise ScramError("channel-binding-not-supported")
        if flag not in {"n", "y"} or not comma:
            raise ScramError("other-error")
        attributes = bare.split(",")
        if attributes[0].startswith("m="):
            raise ScramError("extensions-not-supported")
        if len(attributes) < 2 or not attributes[0].startswith("n=") or not attributes[1].startswith("r="):
            raise ScramError("other-error")
        self.name = unescape_name(attributes[0][2:])
        client_nonce = attributes[1][2:]
        if not is_nonce(client_nonce):
            raise ScramError("other-error")
        # acting on behalf of another user is not supported
        if authorize and (not authorize.startswith("a=") or unescape_name(authorize[2:]) != self.name):
            raise ScramError("other-error")
        self._gs2 = f"{flag},{authorize},".encode()
        self._bare = bare
        self._nonce = client_nonce + nonce
        self._keys, self._known = find(self.name)
        self._server_first = f"r={self._nonce},s={encode_base64(self._keys.salt)},i={self._keys.iterations}"
        return self._server_first.encode()

    def final(self, message: bytes) -> bytes:
        without_proof, comma, proof_text = decode_message(message).rpartition(",p=")
        attributes = without_proof.split(",")
        if not comma or len(attributes) < 2 or attributes[0][:2] != "c=" or attributes[1][:2] != "r=":
            raise ScramError("other-error")
        if not hmac.compare_digest(decode_base64(attributes[0][2:]), self._gs2):
            raise ScramError("channel-bindings-dont-match")
        if not hmac.compare_digest(attributes[1][2:].encode(), self._nonce.encode()):
            raise ScramError("other-error")
        proof = decode_base64(proof_text)
        about = signed(self._bare, self._server_first, without_proof)
        if len(proof) != DIGEST_SIZE:
            raise ScramError("invalid-proof")
        key = exclusive_or(proof, digest(self._keys.stored_key, about))
        fits = hmac.compare_digest(stored_key(key), self._keys.stored_key)
        if not (fits and self._known):
            raise ScramError("invalid-proof")
        return b"v=" + encode_base64(digest(self._keys.server_key, about)).encode()


class ScramAuthenticator:
    """A callback for `client.enhanced_authenticate`; it answers for SCRAM-SHA-256 and passes on every other method."""

    def __init__(
        self,
        keys: Mapping[str, ScramKeys],
        *,
        secret: bytes | None = None,
        nonce: Callable[[], str] = lambda: secrets.token_urlsafe(18),
    ) -> None:
        """`secret` makes the challenges of users that do not exist. By default it is derived from the keys, so that it
        survives a restart."""
        self._keys = keys
        self._nonce = nonce
        if keys:
            reference = keys[min(keys)]
            self._salt_length = len(reference.salt)
            self._iterations = Counter(entry.iterations for entry in keys.values()).most_common(1)[0][0]
            self._secret = secret or digest(reference.server_key, b"challenges for nobody")
        else:
            self._salt_length, self._iterations = SALT_LENGTH, ITERATIONS
            self._secret = secret or secrets.token_bytes(DIGEST_SIZE)

    def __call__(self, client: ClientInfo, exchange: Exchange) -> Continue | Success | Deny | None:
        if exchange.method != METHOD:
            return None
        try:
            if exchange.first:
                begun = ScramServer()
                challenge = begun.first(exchange.data, self._find, self._nonce())
                exchange.state = begun
                return Continue(challenge)
            server, exchange.state = exchange.state, None  # each challenge can be answered once
            if not isinstance(server, ScramServer):
                raise ScramError("other-error")
            data = server.final(exchange.data)
        except ScramError as error:
            return Deny(Reason.NOT_AUTHORIZED, error.value)
        if exchange.again and client.username != server.name:
            return Deny(Reason.NOT_AUTHORIZED, "other-error")  # a connection's user does not change
        return Success(data, username=server.name)

    def _find(self, name: str) -> tuple[ScramKeys, bool]:
        keys = self._keys.get(name)
        if keys is not None:
            return keys, True
        salt = digest(self._secret, name.encode())
        salt = (salt * (self._salt_length // len(salt) + 1))[: self._salt_length]
        return ScramKeys(salt, self._iterations, bytes(DIGEST_SIZE), bytes(DIGEST_SIZE)), False


def _write_keys(keys: ScramKeys) -> str:
    return ":".join((str(keys.iterations), *map(encode_base64, (keys.salt, keys.stored_key, keys.server_key))))


def _read_keys(text: str) -> ScramKeys:
    iterations, *encoded = text.split(":")
    try:
        salt, stored_key, server_key = (b64decode(part, validate=True) for part in encoded)
    except ValueError:
        raise ValueError("salt and keys are base64; write the file with `trunkline passwd --scram`") from None
    if not (iterations.isascii() and iterations.isdigit()) or int(iterations) < MIN_ITERATIONS:
        raise ValueError(f"found {iterations!r} iterations; accepted: {MIN_ITERATIONS} or more")
    if not salt or len(stored_key) != DIGEST_SIZE or len(server_key) != DIGEST_SIZE:
        raise ValueError(f"the salt must not be empty, and keys must have {DIGEST_SIZE} bytes")
    return ScramKeys(salt, int(iterations), stored_key, server_key)
