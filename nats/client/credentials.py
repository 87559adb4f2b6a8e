"""Who a client is, to a server: a user and password, a token, or a key that signs what the server asks.

A key ("nkey") is a seed in base32, with what it is for in front and a checksum behind. A JWT says who may do what, and
stands in a file with the seed of its user.
"""

from __future__ import annotations

import re
from base64 import b32decode, b32encode, urlsafe_b64encode
from binascii import Error as NotBase32
from binascii import crc_hqx
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from trunkline.nats.errors import BadCredentials

if TYPE_CHECKING:
    from trunkline.nats.client.settings import Address, Settings
    from trunkline.nats.protocol.operations import Json

#: The first five bits of a seed, and of the key of a user.
_SEED: Final = 18 << 3
_USER: Final = 20 << 3
_BLOCK: Final = re.compile(r"-{3,}\s*BEGIN ([A-Z ]+?)\s*-{3,}\s*([^\s-][^\s]*)\s*-{3,}\s*END")
MAX_FILE: Final = 1 << 16


class Key:
    """Of a user, from its seed."""

    def __init__(self, seed: str) -> None:
        """
        Raises:
            BadCredentials: it is none.
        """
        # an extra brings it, and few connect in this way
        try:
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        except ImportError:
            raise BadCredentials("keys need cryptography: pip install 'trunkline[nats]'") from None

        try:
            raw = b32decode(seed.strip() + "=" * (-len(seed.strip()) % 8))
        except (NotBase32, ValueError):
            raise BadCredentials("the seed is not base32") from None
        if len(raw) != 36 or _checksum(raw[:-2]) != raw[-2:]:
            raise BadCredentials("the seed is not whole: its checksum is another one")
        if raw[0] & 0xF8 != _SEED or (raw[0] & 7) << 5 | raw[1] >> 3 != _USER:
            raise BadCredentials("it is not the seed of a user, which begins with SU")
        self._key = Ed25519PrivateKey.from_private_bytes(raw[2:-2])

    @property
    def public(self) -> str:
        raw = bytes([_USER]) + self._key.public_key().public_bytes_raw()
        return b32encode(raw + _checksum(raw)).decode().rstrip("=")

    def sign(self, nonce: str) -> str:
        return urlsafe_b64encode(self._key.sign(nonce.encode())).decode().rstrip("=")


def _checksum(raw: bytes) -> bytes:
    return crc_hqx(raw, 0).to_bytes(2, "little")


def seed_of(raw: bytes) -> str:
    """The seed of a user that has this private key of 32 bytes."""
    whole = bytes([_SEED | _USER >> 5, (_USER & 31) << 3]) + raw
    return b32encode(whole + _checksum(whole)).decode().rstrip("=")


class Identity:
    """What of CONNECT says who the client is. Files are read at each attempt: they may change."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def options(self, server: Json, address: Address) -> dict[str, Any]:
        """
        Raises:
            BadCredentials: a file cannot be read, or is none of credentials.
        """
        settings, nonce = self._settings, str(server.get("nonce") or "")
        if settings.credentials is not None:
            jwt, seed = parts_of(_read(settings.credentials), settings.credentials)
            found: dict[str, Any] = {"jwt": jwt}
            return found | ({"sig": Key(seed).sign(nonce)} if nonce else {})
        if settings.nkey_seed is not None:
            key = Key(_read(settings.nkey_seed))
            return {"nkey": key.public, "sig": key.sign(nonce)} if nonce else {"nkey": key.public}
        if settings.token:
            return {"auth_token": settings.token}
        if settings.user:
            return {"user": settings.user, "pass": settings.password}
        if address.user:
            return {"user": address.user, "pass": address.password}
        return {"auth_token": address.password} if address.password else {}


def parts_of(text: str, file: Path | str) -> tuple[str, str]:
    """The JWT and the seed of a file.

    Raises:
        BadCredentials: one is not there.
    """
    blocks = {name: content for name, content in _BLOCK.findall(text)}
    jwt, seed = blocks.get("NATS USER JWT"), blocks.get("USER NKEY SEED")
    if not jwt or not seed:
        raise BadCredentials(f"{file} has no {'JWT' if not jwt else 'seed'} of a user")
    return jwt, seed


def _read(file: Path | str) -> str:
    try:
        with Path(file).open(encoding="utf-8") as opened:
            return opened.read(MAX_FILE)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise BadCredentials(f"{file}: {reason or error}") from error
