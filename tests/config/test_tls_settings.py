from math import inf
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from trunkline.config.tls_settings import ServerCertificate, TlsSettings

OWN: dict[str, Any] = {"certificate": "server.pem"}
ASKS: dict[str, Any] = {**OWN, "client_certificates": "optional", "client_ca": "ca.pem"}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "TLS needs a certificate, or a psk_file"),
        ({**OWN, "min_version": "1.3", "max_version": "1.2"}, "min_version 1.3 is above max_version 1.2"),
        ({**OWN, "certificates": [{"key": "a.key"}]}, "an entry of certificates has no certificate"),
        ({**OWN, "client_certificates": "required"}, "client_certificates needs client_ca"),
        ({**OWN, "crl": "revoked.pem"}, "crl needs client_certificates"),
        ({**OWN, "username_from": "cn"}, "username_from and client_id_from need client_certificates"),
        ({**OWN, "client_id_from": "san"}, "username_from and client_id_from need client_certificates"),
        ({**ASKS, "username_from": "psk"}, '"psk" needs psk_file'),
        ({**OWN, "handshake_first": "never", "handshake_wait": "1s"}, "handshake_wait is for"),
        ({**OWN, "handshake_timeout": "1s", "handshake_wait": "1s"}, "handshake_wait must be below handshake_timeout"),
        ({**OWN, "handshake_wait": 0}, "greater than 0"),
    ],
)
def test_what_does_not_fit_together_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        TlsSettings.model_validate(settings)


@pytest.mark.parametrize(
    "settings",
    [
        OWN,
        {"psk_file": "keys"},
        {"psk_file": "keys", "username_from": "psk"},
        {**ASKS, "crl": "revoked.pem", "username_from": "cn", "client_id_from": "serial"},
        {**OWN, "min_version": "1.3", "max_version": "1.3"},
    ],
)
def test_what_fits_together_is_taken(settings: dict[str, Any]) -> None:
    assert TlsSettings.model_validate(settings)


def test_the_default_certificate_is_the_first_one() -> None:
    more = (ServerCertificate(certificate=Path("b")), ServerCertificate(certificate=Path("c")))
    settings = TlsSettings(certificate=Path("a"), certificates=more)
    assert [each.certificate for each in settings.server_certificates] == [Path("a"), Path("b"), Path("c")]
    assert TlsSettings(psk_file=Path("keys"), certificates=more).server_certificates == more


@pytest.mark.parametrize(
    ("settings", "seconds"),
    [
        ({}, 0.05),
        ({"handshake_wait": "300ms"}, 0.3),
        ({"handshake_first": "always"}, inf),
        ({"handshake_first": "never"}, 0),
        ({"handshake_timeout": "10ms"}, 0.05),
    ],
)
def test_who_begins_at_a_nats_listener(settings: dict[str, Any], seconds: float) -> None:
    found = TlsSettings.model_validate(OWN | settings)
    assert found.greets_after == seconds
    assert found.sets_greeting is bool(settings.keys() - {"handshake_timeout"})
