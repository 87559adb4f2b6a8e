"""An authority for development and tests, and the certificates that it signs: as the content of PEM files by their
names. The library trustme makes them, which an extra brings."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "::1")


class Authority:
    def __init__(self, days: int, certificate: bytes = b"", key: bytes = b"") -> None:
        """The certificates that it issues are valid for so many days. With its own certificate and key it is one that
        was made before.

        Raises:
            ImportError: trustme is not installed.
            ValueError: the certificate or the key is not valid PEM.
        """
        try:
            import trustme
        except ImportError as error:
            raise ImportError("this needs the library trustme: install trunkline[tls]", name="trustme") from error
        self._until = datetime.now(UTC) + timedelta(days=days)
        if certificate:
            self._authority = trustme.CA.from_pem(certificate, key)
        else:
            self._authority = trustme.CA(organization_name="Trunkline development", key_type=trustme.KeyType.ECDSA)

    def own_files(self) -> dict[str, bytes]:
        """`ca.pem` and `ca.key`"""
        return {"ca.pem": self._authority.cert_pem.bytes(), "ca.key": self._authority.private_key_pem.bytes()}

    def issue_server(self, *hosts: str) -> dict[str, bytes]:
        """`server.pem` and `server.key`, for these names and addresses, or else those of this machine.

        Raises:
            ValueError: no server can have one of them.
        """
        hosts = hosts or LOCAL_HOSTS
        try:
            return self._issue("server", hosts[0], hosts)
        except ValueError:
            for host in hosts:
                self._check_host(host)
            raise

    def issue_client(self, name: str) -> dict[str, bytes]:
        """`NAME.pem` and `NAME.key`, with this common name.

        Raises:
            ValueError: files cannot have this name.
        """
        if name in ("ca", "server") or not re.fullmatch(r"[\w-][\w.-]*", name):
            raise ValueError(f"{name!r} cannot be the name of a client's files")
        return self._issue(name, name, ())

    def _check_host(self, host: str) -> None:
        try:
            self._authority.issue_cert(host)
        except ValueError as error:
            raise ValueError(f"{host!r} is neither a host's name nor an address: {error}") from None

    def _issue(self, name: str, common_name: str, hosts: tuple[str, ...]) -> dict[str, bytes]:
        issued = self._authority.issue_cert(*hosts, common_name=common_name, not_after=self._until)
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        return {f"{name}.pem": chain, f"{name}.key": issued.private_key_pem.bytes()}
