"""An operator of NATS, with its accounts and users: keys, JWTs, credentials files, and the server's configuration."""

import json
import time
from base64 import b32encode, urlsafe_b64encode
from binascii import crc_hqx
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from trunkline.nats.client.credentials import seed_of

#: The first byte of a public key, by what it is of.
_KINDS = {"operator": 14 << 3, "account": 0, "user": 20 << 3}
_NO_LIMITS = {"subs": -1, "data": -1, "payload": -1}
_NO_ACCOUNT_LIMITS = {"imports": -1, "exports": -1, "wildcards": True, "conn": -1, "leaf": -1}


class Signer:
    """A key of an operator, an account or a user."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._key = Ed25519PrivateKey.generate()
        raw = bytes([_KINDS[kind]]) + self._key.public_key().public_bytes_raw()
        self.public = b32encode(raw + crc_hqx(raw, 0).to_bytes(2, "little")).decode().rstrip("=")

    @property
    def seed(self) -> str:
        """Of a user."""
        assert self._kind == "user"
        return seed_of(self._key.private_bytes_raw())

    def issue(self, subject: "Signer", *, expires: int = 0, **said: Any) -> str:
        """A JWT about another one, or itself. `expires` is in seconds since 1970."""
        claims: dict[str, Any] = {
            "iat": int(time.time()),
            "iss": self.public,
            "name": subject._kind,
            "sub": subject.public,
            "nats": {**said, "type": subject._kind, "version": 2},
        }
        if expires:
            claims["exp"] = expires
        claims["jti"] = b32encode(sha256(json.dumps(claims).encode()).digest()).decode().rstrip("=")
        signed = f"{_text({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{_text(claims)}"
        return f"{signed}.{_base64(self._key.sign(signed.encode()))}"


class Operator:
    """Its accounts are known to the server of the configuration; a stranger's are not."""

    def __init__(self) -> None:
        self._signer = Signer("operator")
        self._accounts: dict[str, str] = {}
        #: JetStream is not there without one.
        self._system = self.account()

    def account(self) -> Signer:
        account = Signer("account")
        self.publish(account)
        return account

    def publish(self, account: Signer, *, tiers: dict[str, Any] | None = None, **said: Any) -> None:
        """What is said of the account, with tiers of JetStream. It stands in a configuration that is written later."""
        limits: dict[str, Any] = _NO_LIMITS | _NO_ACCOUNT_LIMITS | ({"tiered_limits": tiers} if tiers else {})
        self._accounts[account.public] = self._signer.issue(account, limits=limits, **said)

    def write(self, folder: Path) -> Path:
        file = folder / "operator.conf"
        accounts = "\n".join(f"  {public}: {jwt}" for public, jwt in self._accounts.items())
        operator = self._signer.issue(self._signer)
        file.write_text(
            f"operator: {operator}\nsystem_account: {self._system.public}\n"
            f"resolver: MEMORY\nresolver_preload: {{\n{accounts}\n}}\n"
        )
        return file


def user_jwt(account: Signer, user: Signer, *, expires: int = 0, **permissions: Any) -> str:
    return account.issue(user, expires=expires, **_NO_LIMITS, **permissions)


def write_credentials(file: Path, jwt: str, user: Signer) -> Path:
    """As `nsc` does."""
    file.write_text(
        f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed}\n------END USER NKEY SEED------\n"
    )
    return file


def _text(value: dict[str, Any]) -> str:
    return _base64(json.dumps(value, separators=(",", ":")).encode())


def _base64(raw: bytes) -> str:
    return urlsafe_b64encode(raw).decode().rstrip("=")
