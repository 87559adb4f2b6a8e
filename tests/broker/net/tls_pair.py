"""A TLS layer and a client in memory, with certificates of one authority."""

import ssl
from pathlib import Path
from typing import Any

import pytest

from tests.broker.net.below import Below
from trunkline.actors import Scheduler
from trunkline.broker.metrics import Metrics
from trunkline.broker.net.tls import TlsLayer, TlsServer
from trunkline.broker.net.tls_context import TlsContext
from trunkline.config.tls_settings import TlsSettings

trustme = pytest.importorskip("trustme")
AUTHORITY = trustme.CA()
SERVER = AUTHORITY.issue_cert("localhost", "127.0.0.1", common_name="broker")
CLIENT = AUTHORITY.issue_cert("device.example", common_name="device-1", organization_name="Plant, 3")


def write_files(folder: Path) -> Path:
    """The certificates of the authority, the broker and a client; the latter two with their keys."""
    AUTHORITY.cert_pem.write_to_path(str(folder / "ca.pem"))
    SERVER.private_key_and_cert_chain_pem.write_to_path(str(folder / "server.pem"))
    CLIENT.private_key_and_cert_chain_pem.write_to_path(str(folder / "client.pem"))
    return folder


def settings(files: Path, **more: Any) -> TlsSettings:
    return TlsSettings(certificate=files / "server.pem", **more)


def mutual(files: Path, **more: Any) -> TlsSettings:
    return settings(files, client_certificates="required", client_ca=files / "ca.pem", **more)


def client_context(*, certificate: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    if certificate:
        CLIENT.configure_cert(context)
    return context


class Pair:
    """A layer, and a client without a socket."""

    def __init__(
        self,
        settings: TlsSettings,
        context: ssl.SSLContext | None = None,
        split: int = 0,
        before: "Pair | None" = None,
        server_name: str = "localhost",
        layer: type[TlsLayer] = TlsLayer,
    ) -> None:
        """`before` was connected to the same server; the client resumes its session, if it can."""
        self.scheduler = Scheduler() if before is None else before.scheduler
        self.metrics = Metrics()
        if before is None:
            self.server = TlsServer(TlsContext(settings, "secure"), self.scheduler, self.metrics)
        else:
            self.server = before.server
        self.below = Below(scheduler=self.scheduler)
        self.layer = layer(self.below, self.server)
        self.got = self.below.got
        self.below.put(self.layer)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = context or client_context()
        self.client = context.wrap_bio(
            self.incoming,
            self.outgoing,
            server_hostname=server_name,
            session=None if before is None else before.client.session,
        )
        self._split = split

    def exchange(self) -> None:
        """Each side gets what the other has sent."""
        data = self.outgoing.read()
        size = self._split or max(len(data), 1)
        for start in range(0, len(data), size):
            self.below.receive(data[start : start + size])
        self.incoming.write(self.below.taken())

    def handshake(self, first: bytes = b"") -> None:
        for _ in range(4):
            try:
                self.client.do_handshake()
            except ssl.SSLWantReadError:
                self.exchange()
            else:
                if first:
                    self.client.write(first)
                self.exchange()
                return

    @property
    def data(self) -> bytes:
        return self.below.data

    @property
    def failed(self) -> str | None:
        return None if self.below.failed is None else self.below.failed.problem

    @property
    def ended(self) -> str | None:
        return self.below.ended
