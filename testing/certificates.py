"""Certificates for brokers of tests that are reached over TLS: made once a process, when one needs them."""

from __future__ import annotations

import atexit
import ssl
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from trunkline.config.listener_settings import ListenerSettings
from trunkline.management.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Far beyond the time to which a test moves its clock: an alarm is raised when a certificate expires.
_DAYS: Final = 36_500


class ClientCertificate(NamedTuple):
    """A client's files, as PEM."""

    certificate: Path
    key: Path


class Certificates:
    """An authority, the certificate of brokers on this machine, and those of clients."""

    def __init__(self, folder: Path) -> None:
        """
        Raises:
            ImportError: trustme is not installed.
        """
        self._folder = folder
        self._made_by = Authority(_DAYS)
        self._clients: dict[str, ClientCertificate] = {}
        self._lock = Lock()
        #: The authority's certificate, which clients trust, as PEM.
        self.authority = folder / "ca.pem"
        self.server = folder / "server.pem"
        self.server_key = folder / "server.key"
        self._write(self._made_by.own_files() | self._made_by.issue_server())

    def _write(self, files: Mapping[str, bytes]) -> None:
        for name, content in files.items():
            (self._folder / name).write_bytes(content)

    def client(self, name: str = "client") -> ClientCertificate:
        """The files of a client with this common name.

        Raises:
            ValueError: files cannot have this name.
        """
        with self._lock:
            if name not in self._clients:
                self._write(self._made_by.issue_client(name))
                self._clients[name] = ClientCertificate(self._folder / f"{name}.pem", self._folder / f"{name}.key")
            return self._clients[name]

    def context(self, client: str | None = None) -> ssl.SSLContext:
        """What a client needs to reach the broker, with the certificate of this common name if one is given.

        Raises:
            ValueError: files cannot have this name.
        """
        context = ssl.create_default_context(cafile=self.authority)
        if client is not None:
            context.load_cert_chain(*self.client(client))
        return context


_lock = Lock()
_made: list[Certificates] = []


def certificates() -> Certificates:
    """Those of this process.

    Raises:
        ImportError: trustme is not installed.
    """
    with _lock:
        if not _made:
            folder = TemporaryDirectory(prefix="trunkline-")
            atexit.register(folder.cleanup)
            _made.append(Certificates(Path(folder.name)))
        return _made[0]


def with_certificates(listener: object) -> object:
    """The settings of a TLS listener, with the files that it does not name."""
    try:
        table = ListenerSettings.expanded(listener)
    except ValueError:
        return listener  # the configuration names what is wrong
    tls = cast("Mapping[str, Any]", table).get("tls", {}) if isinstance(table, dict) else None
    if not isinstance(tls, dict):
        return listener
    own = cast("dict[str, Any]", tls)
    files: dict[str, str] = {}
    if own.keys().isdisjoint(("certificate", "psk_file")):
        files |= {"certificate": str(certificates().server), "key": str(certificates().server_key)}
    if own.get("client_certificates", "none") != "none" and "client_ca" not in own:
        files["client_ca"] = str(certificates().authority)
    return {**cast("dict[str, Any]", table), "tls": {**files, **own}}
