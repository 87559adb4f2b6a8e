"""What the layers below MQTT have learned of a client: its certificate, and the terms of its TLS connection."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Certificate:
    """A client's certificate, which was verified."""

    common_name: str = ""
    #: The whole subject, as `CN=a,O=b`.
    subject: str = ""
    #: In hexadecimal.
    serial: str = ""
    #: Subject alternative names: kind and value, as ("DNS", "device.example").
    names: tuple[tuple[str, str], ...] = ()
    #: SHA-256 of the certificate, in hexadecimal.
    fingerprint: str = ""
    #: Seconds since the epoch.
    not_after: float = 0.0
    #: More than one is nobody's name. `common_name` is the last one, which is the most specific.
    common_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Identity:
    """What is known of a client before its CONNECT."""

    certificate: Certificate | None = None
    #: The identity of its pre-shared key.
    psk: str = ""
    #: User name and client id that its listener takes from these; empty if it takes none.
    username: str = ""
    client_id: str = ""
    #: As "TLSv1.3" and "TLS_AES_256_GCM_SHA384"; empty without TLS.
    tls_version: str = ""
    cipher: str = ""
    #: The name of the server that the client asked for (SNI), and the protocol that it negotiated (ALPN).
    server_name: str = ""
    protocol: str = ""
    #: The handshake resumed an earlier TLS session.
    resumed: bool = False

    def is_ambiguous(self, source: str) -> bool:
        """Whether its certificate has several names where one is asked for."""
        if self.certificate is None or source not in ("cn", "san"):
            return False
        names = self.certificate.common_names if source == "cn" else self.certificate.names
        return len(set(names)) > 1

    def named(self, source: str) -> str:
        """The name of the client by "cn", "san", "dn", "serial" or "psk"; empty if it has none."""
        if source == "psk":
            return self.psk
        certificate = self.certificate
        if certificate is None:
            return ""
        if source == "san":
            return certificate.names[0][1] if certificate.names else ""
        return {"cn": certificate.common_name, "dn": certificate.subject, "serial": certificate.serial}.get(source, "")
