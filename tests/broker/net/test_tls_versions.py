"""Versions and cipher suites: what a listener with these settings and a client with those agree on, if they do."""

import ssl
from pathlib import Path
from typing import Any

import pytest

from tests.broker.net.tls_pair import AUTHORITY, Pair, client_context
from trunkline.config.tls_settings import TlsSettings

trustme = pytest.importorskip("trustme")

V1_0, V1_1, V1_2, V1_3 = (ssl.TLSVersion[name] for name in ("TLSv1", "TLSv1_1", "TLSv1_2", "TLSv1_3"))
#: All that OpenSSL has; otherwise it refuses by itself what is weak.
ALL = "ALL:@SECLEVEL=0"
VERSION = "no TLS version"
CIPHER = "no cipher suite"
LEGACY = {"ciphers": ALL}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With an RSA key, which the old cipher suites need."""
    file: Path = tmp_path_factory.mktemp("rsa") / "server.pem"
    issued = AUTHORITY.issue_cert("localhost", key_type=trustme.KeyType.RSA)
    issued.private_key_and_cert_chain_pem.write_to_path(file)
    return file


def agreed(certificate: Path, table: dict[str, Any], version: ssl.TLSVersion, ciphers: str) -> str:
    """The version and the cipher suite, or the listener's reason to refuse."""
    context = client_context()
    context.set_ciphers(ciphers)
    context.minimum_version = context.maximum_version = version
    pair = Pair(TlsSettings(certificate=certificate, **table), context)
    try:
        pair.handshake(b"x")
    except ssl.SSLError:
        assert pair.failed is not None
        return pair.failed
    assert pair.data == b"x"
    assert pair.layer.identity is not None
    cipher = pair.client.cipher()
    assert cipher is not None
    assert (pair.layer.identity.tls_version, pair.layer.identity.cipher) == (pair.client.version(), cipher[0])
    return f"{pair.client.version()} {cipher[0]}"


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize(
    ("table", "version", "outcome"),
    [
        ({}, V1_0, VERSION),
        ({}, V1_1, VERSION),
        ({}, V1_2, "TLSv1.2 ECDHE-RSA-"),
        ({}, V1_3, "TLSv1.3 TLS_"),
        ({"min_version": "1.3"}, V1_2, VERSION),
        ({"min_version": "1.3"}, V1_3, "TLSv1.3 TLS_"),
        ({"max_version": "1.2"}, V1_2, "TLSv1.2 ECDHE-RSA-"),
        ({"max_version": "1.2"}, V1_3, VERSION),
        (LEGACY, V1_0, VERSION),
        (LEGACY, V1_1, VERSION),
    ],
)
async def test_versions(certificate: Path, table: dict[str, Any], version: ssl.TLSVersion, outcome: str) -> None:
    assert outcome in agreed(certificate, table, version, ALL)


#: No forward secrecy, no authenticated encryption, no authentication or no encryption at all.
WEAK = (
    *("AES128-SHA", "AES256-SHA256", "AES128-GCM-SHA256", "AES256-GCM-SHA384", "CAMELLIA128-SHA"),
    *("ECDHE-RSA-AES128-SHA", "ECDHE-RSA-AES256-SHA384", "ECDHE-RSA-AES128-SHA256", "DHE-RSA-AES128-SHA"),
    *("AECDH-AES128-SHA", "NULL-SHA256", "ECDHE-RSA-NULL-SHA"),
)


@pytest.mark.parametrize("cipher", WEAK)
async def test_weak_ciphers_are_refused(certificate: Path, cipher: str) -> None:
    weak = f"{cipher}:@SECLEVEL=0"
    try:
        client_context().set_ciphers(weak)
    except ssl.SSLError:
        pytest.skip("this OpenSSL does not have it")
    assert CIPHER in agreed(certificate, {}, V1_2, weak)
    if cipher != "DHE-RSA-AES128-SHA" and "AECDH" not in cipher:  # those need parameters, or no certificate
        assert agreed(certificate, {"ciphers": weak}, V1_2, weak) == f"TLSv1.2 {cipher}", "it is refused by the setting"


@pytest.mark.parametrize(
    ("ciphers", "offered", "outcome"),
    [
        ("ECDHE+CHACHA20", ALL, "TLSv1.2 ECDHE-RSA-CHACHA20-POLY1305"),
        ("ECDHE+CHACHA20", "ECDHE+AESGCM", CIPHER),
        ("ECDHE+AES256", "ECDHE-RSA-AES256-GCM-SHA384", "TLSv1.2 ECDHE-RSA-AES256-GCM-SHA384"),
        # the order is the listener's
        (
            "ECDHE-RSA-AES256-GCM-SHA384:ECDHE-RSA-AES128-GCM-SHA256",
            "ECDHE-RSA-AES128-GCM-SHA256:ECDHE-RSA-AES256-GCM-SHA384",
            "TLSv1.2 ECDHE-RSA-AES256-GCM-SHA384",
        ),
    ],
)
async def test_the_list_of_ciphers_decides(certificate: Path, ciphers: str, offered: str, outcome: str) -> None:
    assert outcome in agreed(certificate, {"ciphers": ciphers}, V1_2, offered)
