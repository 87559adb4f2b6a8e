"""Keys that tokens are verified with. Each is bound to the algorithms that it was made for. So a token cannot choose
how it is verified: a public key is never used as a secret, and `none` is not an algorithm.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from collections.abc import Iterable

_HMAC: Final = {"HS256": 32, "HS384": 48, "HS512": 64}
_RSA: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_CURVES: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512", "secp256k1": "ES256K"}
#: All algorithms that may be configured.
ALGORITHMS: Final = (*_HMAC, *sorted(_RSA), *sorted(_CURVES.values()), "EdDSA")

#: Keys of one set that are read at most.
MAX_KEYS: Final = 100
#: The shortest RSA key, in bits.
_MIN_RSA: Final = 2048


class KeyProblem(Exception):
    """This cannot be used as a key. The text contains nothing of it."""


@dataclass(frozen=True, slots=True)
class Key:
    #: The key in the library's form.
    material: Any
    algorithms: frozenset[str]
    #: Its name within a set; empty when it has none.
    kid: str = ""


@dataclass(frozen=True, slots=True)
class KeySet:
    keys: tuple[Key, ...]

    def candidates(self, algorithm: str, kid: str | None) -> list[Key]:
        """The keys that may have signed a token with this header. If it names a key, it is not verified with keys of
        other names."""
        return [
            key for key in self.keys if algorithm in key.algorithms and (kid is None or not key.kid or key.kid == kid)
        ]

    def limited(self, algorithms: Iterable[str]) -> KeySet:
        """Raises KeyProblem if no key is left."""
        allowed = frozenset(algorithms)
        keys = tuple(
            Key(key.material, key.algorithms & allowed, key.kid) for key in self.keys if key.algorithms & allowed
        )
        if not keys:
            can = sorted(frozenset[str]().union(*(key.algorithms for key in self.keys)))
            raise KeyProblem(f"no key is for {', '.join(sorted(allowed))}; they are for {', '.join(can)}")
        return KeySet(keys)


def from_secret(secret: str, *, base64_encoded: bool) -> KeySet:
    """Raises KeyProblem if it is too short, or not Base64."""
    material = secret.encode()
    if base64_encoded:
        try:
            material = base64.b64decode(material, validate=True)
        except binascii.Error:
            raise KeyProblem("the secret is not Base64") from None
    algorithms = frozenset(name for name, size in _HMAC.items() if len(material) >= size)
    if not algorithms:
        raise KeyProblem(f"the secret has {len(material)} bytes; HS256 needs 32, HS384 needs 48, HS512 needs 64")
    return KeySet((Key(material, algorithms),))


def from_pem(data: bytes) -> KeySet:
    """A public key, or the certificate of one.

    Raises:
        KeyProblem: it is neither.
    """
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from cryptography.x509 import load_pem_x509_certificate

    if b"PRIVATE KEY" in data:
        raise KeyProblem("is a private key; the broker needs the public key only")
    try:
        if b"BEGIN CERTIFICATE" in data:
            material: Any = load_pem_x509_certificate(data).public_key()
        else:
            material = load_pem_public_key(data)
    except Exception as error:  # noqa: BLE001 the library raises its own errors, ValueError, and those of its parsers
        raise KeyProblem(f"is not a public key in PEM form: {type(error).__name__}") from None
    return KeySet((Key(material, _algorithms(material)),))


def _algorithms(material: Any) -> frozenset[str]:
    from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa

    if isinstance(material, rsa.RSAPublicKey):
        if material.key_size < _MIN_RSA:
            raise KeyProblem(f"is an RSA key of {material.key_size} bits; at least {_MIN_RSA} are required")
        return _RSA
    if isinstance(material, ec.EllipticCurvePublicKey) and material.curve.name in _CURVES:
        return frozenset({_CURVES[material.curve.name]})
    if isinstance(material, ed25519.Ed25519PublicKey | ed448.Ed448PublicKey):
        return frozenset({"EdDSA"})
    raise KeyProblem("is a key of a type that tokens are not signed with")


def from_jwks(data: bytes) -> KeySet:
    """The keys of a JSON Web Key Set that are for verifying signatures. Other keys and unknown types are left out; so
    are secrets, which do not belong in such a set.

    Raises:
        KeyProblem: it is not such a set, or no key is left.
    """
    from jwt import PyJWK
    from jwt.exceptions import PyJWTError

    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        raise KeyProblem("is not JSON") from None
    entries = cast("dict[str, object]", content).get("keys") if isinstance(content, dict) else None
    if not isinstance(entries, list):
        raise KeyProblem('is not a set of keys: it has no list "keys"')
    keys = list[Key]()
    for entry in cast("list[object]", entries)[:MAX_KEYS]:
        if not isinstance(entry, dict):
            continue
        fields = cast("dict[str, Any]", entry)
        if fields.get("kty") not in ("RSA", "EC", "OKP") or fields.get("use", "sig") != "sig":
            continue
        try:
            # the library treats a key with its private part as a private one, and does not check its `alg`
            public = {name: value for name, value in fields.items() if name not in ("d", "alg")}
            material = PyJWK(public, "EdDSA" if fields["kty"] == "OKP" else None).key
            algorithms = _algorithms(material)
        except (PyJWTError, KeyProblem, ValueError, TypeError, KeyError, AttributeError):
            continue
        if "alg" in fields:
            algorithms &= {fields["alg"]} if isinstance(fields["alg"], str) else frozenset()
        kid = fields.get("kid")
        if algorithms:
            keys.append(Key(material, algorithms, kid if isinstance(kid, str) else ""))
    if not keys:
        raise KeyProblem("has no key for verifying signatures")
    return KeySet(tuple(keys))
