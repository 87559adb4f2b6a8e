"""One key, and one that can be used: what is wrong shows when the configuration is read."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from tests.plugins.shipped.tokens import SECRET, jwk, jwks, pem, private_key
from trunkline.config.errors import ConfigError
from trunkline.config.reader import from_mapping
from trunkline.plugins.finding import settings_model
from trunkline.plugins.shipped.jwt_keys import KeyProblem
from trunkline.plugins.shipped.jwt_settings import JwtSettings


def test_each_source_of_keys(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(pem(private_key("P-256")))
    (tmp_path / "set").write_bytes(jwks(jwk("RSA", kid="a"), jwk("Ed25519", kid="b")))
    assert len(JwtSettings(secret=SecretStr(SECRET)).keys().keys) == 1
    assert len(JwtSettings(public_key_file=tmp_path / "key").keys().keys) == 1
    assert [key.kid for key in JwtSettings(jwks_file=tmp_path / "set").keys().keys] == ["a", "b"]
    assert [key.kid for key in JwtSettings(jwks_file=tmp_path / "set", algorithms=("EdDSA",)).keys().keys] == ["b"]


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    settings = JwtSettings(public_key_file=tmp_path / "key")
    with pytest.raises(KeyProblem, match="key: No such file"):
        settings.keys()


def test_what_does_not_run_needs_no_key() -> None:
    assert not JwtSettings(enabled=False).authenticates
    assert JwtSettings(secret=SecretStr(SECRET)).authenticates


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "jwt: has no key: set one of secret, public_key_file, jwks_file, jwks_url"),
        ({"secret": SECRET, "jwks_url": "http://h/"}, "has secret and jwks_url: set one of"),
        ({"secret": "emqxsecret"}, "the secret has 10 bytes"),
        ({"secret": SECRET, "algorithms": ["none"]}, "algorithms: 'none' is unknown; there are HS256, "),
        ({"secret": SECRET, "algorithms": ["RS256"]}, "algorithms: no key is for RS256; they are for HS256, "),
        ({"public_key_file": "nowhere"}, "public_key_file: no file nowhere"),
        ({"public_key_file": __file__}, r"test_jwt_settings.py is not a public key in PEM form"),
        ({"jwks_file": __file__}, r"test_jwt_settings.py is not JSON"),
        ({"jwks_url": "keys"}, 'jwks_url: "keys": accepted is a URL'),
        ({"secret": 5}, "secret: what it holds: accepted is text"),
        ({"secret": SECRET, "token_in": "payload"}, 'token_in: "payload": accepted is "password" or "username"'),
    ],
)
def test_what_cannot_be_configured(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        from_mapping({"plugins": {"jwt": settings}}, settings_model)
