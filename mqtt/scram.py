"""SCRAM-SHA-256 (RFC 5802, RFC 7677) as far as both sides compute and write the same: the data of enhanced
authentication of MQTT 5.0. Each side's exchange is elsewhere. Channel binding is not offered."""

import binascii
import hashlib
import hmac
from base64 import b64decode, b64encode
from typing import Final

from trunkline.mqtt.saslprep import prepare

METHOD: Final = "SCRAM-SHA-256"
#: The minimum of RFC 7677.
MIN_ITERATIONS: Final = 4096
DIGEST_SIZE: Final = 32


class ScramError(Exception):
    """The exchange failed. `value` is the error's name in RFC 5802, section 7."""

    def __init__(self, value: str) -> None:
        super().__init__(value)
        self.value = value


# Keys


def salted_password(password: str, salt: bytes, iterations: int) -> bytes:
    """What both keys are made from; ValueError if the password contains characters that SASLprep does not allow."""
    return hashlib.pbkdf2_hmac("sha256", prepare(password).encode(), salt, iterations)


def client_key(salted: bytes) -> bytes:
    return digest(salted, b"Client Key")


def stored_key(key: bytes) -> bytes:
    """Of a client key: what the server keeps."""
    return hashlib.sha256(key).digest()


def server_key(salted: bytes) -> bytes:
    return digest(salted, b"Server Key")


def digest(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, "sha256")


def exclusive_or(left: bytes, right: bytes) -> bytes:
    """Turns the client's key into its proof, and back."""
    return bytes(one ^ other for one, other in zip(left, right, strict=True))


# Messages: attributes `a=…`, separated by commas


def signed(client_first: str, server_first: str, without_proof: str) -> bytes:
    """What proof and signature are about: the messages of the exchange, the first without its header."""
    return f"{client_first},{server_first},{without_proof}".encode()


def encode_base64(data: bytes) -> str:
    return b64encode(data).decode()


def decode_base64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ScramError("invalid-encoding") from None


def decode_message(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ScramError("invalid-encoding") from None


def is_nonce(text: str) -> bool:
    """Whether it consists of characters that a nonce may have."""
    return text != "" and all("!" <= char <= "~" and char != "," for char in text)


def escape_name(name: str) -> str:
    """A name as it stands in a message; ValueError if it contains characters that SASLprep does not allow."""
    return prepare(name).replace("=", "=3D").replace(",", "=2C")


def unescape_name(text: str) -> str:
    """The name that stands in a message."""
    for escape in text.split("=")[1:]:
        if escape[:2] not in {"2C", "3D"}:
            raise ScramError("invalid-username-encoding")
    try:
        name = prepare(text.replace("=2C", ",").replace("=3D", "="))
    except ValueError:
        raise ScramError("invalid-username-encoding") from None
    if not name:
        raise ScramError("invalid-username-encoding")
    return name
