from pathlib import Path

import pytest

from tests.broker.net.tls_pair import mutual, write_files
from trunkline.broker.net.tls_context import TlsContext
from trunkline.config.errors import SecurityError
from trunkline.config.tls_settings import TlsSettings


@pytest.mark.parametrize(
    ("certificate", "key", "problem"),
    [
        ("empty.pem", "server.pem", "empty.pem holds no certificate as PEM"),
        ("ca.pem", None, "ca.pem holds no private key as PEM: set tls.key"),
        ("server.pem", "ca.pem", "ca.pem holds no private key as PEM"),
        ("server.pem", "locked.pem", "the key in locked.pem is encrypted: set tls.key_password_file"),
        ("server.pem", "broken.pem", "server.pem and the key in broken.pem cannot be used: "),
    ],
)
def test_what_is_wrong_with_a_certificate_or_its_key_is_named(
    certificate: str, key: str | None, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    Path("empty.pem").touch()
    Path("locked.pem").write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----\n")
    Path("broken.pem").write_text("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
    chosen = TlsSettings(certificate=Path(certificate), key=None if key is None else Path(key))
    with pytest.raises(SecurityError) as caught:
        TlsContext(chosen, "secure")
    (found,) = caught.value.problems
    assert found.startswith(f"secure: {problem}")


def test_a_certificate_in_place_of_a_revocation_list_is_refused(tmp_path: Path) -> None:
    files = write_files(tmp_path)
    with pytest.raises(SecurityError, match=r"ca\.pem holds no revocation list"):
        TlsContext(mutual(files, crl=files / "ca.pem"), "secure")
