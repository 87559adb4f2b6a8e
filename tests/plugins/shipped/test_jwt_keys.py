"""Keys are for what they were made for, and for nothing else."""

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa, x25519

from tests.plugins.shipped.certificates import authority
from tests.plugins.shipped.tokens import KINDS, SECRET, jwk, jwks, pem, private_key
from trunkline.plugins.shipped.jwt_keys import (
    ALGORITHMS,
    MAX_KEYS,
    KeyProblem,
    KeySet,
    from_jwks,
    from_pem,
    from_secret,
)


def algorithms(keys: KeySet) -> set[str]:
    (key,) = keys.keys
    return set(key.algorithms)


@pytest.mark.parametrize(
    ("size", "expected"),
    [(32, {"HS256"}), (47, {"HS256"}), (48, {"HS256", "HS384"}), (64, {"HS256", "HS384", "HS512"})],
)
def test_a_secret_is_for_what_it_is_long_enough_for(size: int, expected: set[str]) -> None:
    assert algorithms(from_secret("x" * size, base64_encoded=False)) == expected


def test_a_secret_in_base64() -> None:
    (key,) = from_secret("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", base64_encoded=True).keys
    assert key.material == bytes(range(32))
    with pytest.raises(KeyProblem, match="not Base64"):
        from_secret("###", base64_encoded=True)


def test_a_secret_that_is_too_short() -> None:
    with pytest.raises(KeyProblem, match="has 10 bytes; HS256 needs 32"):
        from_secret("emqxsecret", base64_encoded=False)


@pytest.mark.parametrize("kind", KINDS)
def test_a_public_key(kind: str) -> None:
    assert algorithms(from_pem(pem(private_key(kind)))) == set(KINDS[kind])
    assert algorithms(from_jwks(jwks(jwk(kind)))) == set(KINDS[kind])


def test_all_that_can_be_configured_exists() -> None:
    assert {name for names in KINDS.values() for name in names} | {"HS256", "HS384", "HS512", "ES256K"} == set(
        ALGORITHMS
    )
    assert "none" not in ALGORITHMS


def test_a_certificate(tmp_path: Path) -> None:
    authority(tmp_path)
    assert algorithms(from_pem((tmp_path / "server.pem").read_bytes())) == {"ES256"}


def _private() -> bytes:
    return private_key("P-256").private_bytes(  # type: ignore[no-any-return]
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is not a public key in PEM form"),
        (SECRET.encode(), "is not a public key in PEM form"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "is not a public key in PEM form"),
        (_private(), "is a private key"),
        (pem(rsa.generate_private_key(65537, 1024)), "RSA key of 1024 bits; at least 2048 are required"),
        (pem(ec.generate_private_key(ec.BrainpoolP256R1())), "a type that tokens are not signed with"),
        (pem(x25519.X25519PrivateKey.generate()), "a type that tokens are not signed with"),
    ],
)
def test_what_is_no_public_key(data: bytes, words: str) -> None:
    with pytest.raises(KeyProblem, match=words):
        from_pem(data)


def test_keys_of_a_set_are_found_by_name_and_algorithm() -> None:
    keys = from_jwks(
        jwks(jwk("RSA", kid="a"), jwk("RSA", 1, kid="b", alg="RS256"), jwk("P-256", kid="a"), jwk("P-256", 1))
    )
    assert [key.kid for key in keys.candidates("RS256", None)] == ["a", "b"]
    assert [key.kid for key in keys.candidates("RS512", None)] == ["a"]
    assert [key.kid for key in keys.candidates("RS256", "b")] == ["b"]
    assert [key.kid for key in keys.candidates("ES256", "a")] == ["a", ""]
    assert [key.kid for key in keys.candidates("ES256", "zz")] == [""]
    assert keys.candidates("HS256", "a") == []
    assert keys.candidates("none", None) == []


def test_what_is_not_for_signatures_is_left_out() -> None:
    secret = {"kty": "oct", "k": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8", "kid": "s"}
    (key,) = from_jwks(
        jwks(
            secret,
            jwk("RSA", kid="enc", use="enc"),
            {"kty": "EC", "crv": "P-256", "x": "?", "y": "?"},
            {"kty": "RSA"},
            {"kty": "RSA", "n": 3, "e": []},
            "no key",
            jwk("P-256", alg="HS256"),
            jwk("P-256", alg=7),
            jwk("P-384", kid="good", use="sig"),
        )
    ).keys
    assert key.kid == "good"


def test_a_private_key_in_a_set_verifies_as_its_public_part() -> None:
    private = json.loads(_as_jwk(private_key("P-256")))
    assert "d" in private
    (key,) = from_jwks(jwks(private)).keys
    assert isinstance(key.material, ec.EllipticCurvePublicKey)


def _as_jwk(key: ec.EllipticCurvePrivateKey) -> str:
    from jwt.algorithms import ECAlgorithm

    return ECAlgorithm.to_jwk(key)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"{", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"[]", 'no list "keys"'),
        (b'{"keys": {}}', 'no list "keys"'),
        (b'{"keys": []}', "has no key for verifying signatures"),
        (jwks({"kty": "oct", "k": "AAAA"}), "has no key for verifying signatures"),
        (jwks(*[{}] * MAX_KEYS, jwk("P-256")), "has no key for verifying signatures"),
    ],
)
def test_what_is_no_set_of_keys(data: bytes, words: str) -> None:
    with pytest.raises(KeyProblem, match=words):
        from_jwks(data)


def test_algorithms_can_be_limited() -> None:
    keys = from_jwks(jwks(jwk("RSA", kid="r"), jwk("P-256", kid="e")))
    limited = keys.limited(["RS256", "HS256"])
    assert [(key.kid, set(key.algorithms)) for key in limited.keys] == [("r", {"RS256"})]
    with pytest.raises(KeyProblem, match="no key is for HS256, HS512; they are for ES256, PS256, "):
        keys.limited(["HS512", "HS256"])
