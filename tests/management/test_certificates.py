"""What the files hold. That clients accept them is shown where a broker uses them."""

import re
import sys
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

import pytest

from trunkline.management.certificates import Authority

x509 = pytest.importorskip("cryptography.x509")
pytest.importorskip("trustme")


def test_names_and_validity() -> None:
    authority = Authority(30)
    assert sorted(authority.own_files()) == ["ca.key", "ca.pem"]
    server = authority.issue_server()
    assert sorted(server) == ["server.key", "server.pem"]
    certificate = x509.load_pem_x509_certificate(server["server.pem"])
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert names.get_values_for_type(x509.IPAddress) == [ip_address("127.0.0.1"), ip_address("::1")]
    assert abs(certificate.not_valid_after_utc - datetime.now(UTC) - timedelta(days=30)) < timedelta(hours=1)
    client = x509.load_pem_x509_certificate(authority.issue_client("pump-7")["pump-7.pem"])
    (common_name,) = client.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    assert common_name.value == "pump-7"
    assert client.issuer == certificate.issuer


@pytest.mark.parametrize("name", ["ca", "server", "", ".", "a/b", "a\n", "-/"])
def test_a_name_that_files_cannot_have(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be the name"):
        Authority(1).issue_client(name)


@pytest.mark.parametrize("host", ["a b", "", "10.0.0.1:8883", "a/b"])
def test_a_host_that_no_server_can_have(host: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"{host!r} is neither a host's name nor an address: ")):
        Authority(1).issue_server("localhost", host)


def test_without_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trustme", None)
    with pytest.raises(ImportError, match=r"trunkline\[tls\]"):
        Authority(1)
