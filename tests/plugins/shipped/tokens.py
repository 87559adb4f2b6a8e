"""Keys, sets of keys and tokens, as their issuers make them."""

import json
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

SECRET = "0123456789abcdef" * 4

KINDS = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "P-256": ("ES256",),
    "P-384": ("ES384",),
    "P-521": ("ES512",),
    "Ed25519": ("EdDSA",),
    "Ed448": ("EdDSA",),
}


def private_key(kind: str, number: int = 0) -> Any:
    """The same for the same number."""
    return _made(kind, number)


@cache
def _made(kind: str, number: int) -> Any:
    if kind == "RSA":
        return rsa.generate_private_key(65537, 2048)
    if kind == "Ed25519":
        return ed25519.Ed25519PrivateKey.generate()
    if kind == "Ed448":
        return ed448.Ed448PrivateKey.generate()
    curves: dict[str, ec.EllipticCurve] = {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}
    return ec.generate_private_key(curves[kind])


def pem(key: Any) -> bytes:
    public: bytes = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return public


def jwk(kind: str, number: int = 0, **fields: Any) -> dict[str, Any]:
    public = private_key(kind, number).public_key()
    algorithm: Any = RSAAlgorithm if kind == "RSA" else ECAlgorithm if kind.startswith("P-") else OKPAlgorithm
    fields = {name: value for name, value in fields.items() if value is not None}
    return {**algorithm.to_jwk(public, as_dict=True), **fields}


def jwks(*keys: object) -> bytes:
    return json.dumps({"keys": keys}).encode()


def signed(claims: dict[str, Any], key: Any = SECRET, algorithm: str = "HS256", **header: Any) -> str:
    return jwt.encode(claims, key, algorithm, headers=header)
