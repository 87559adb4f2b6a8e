"""The TLS contexts of a listener, made from its files: anew at each reload, for connections that come after it."""

from __future__ import annotations

import ssl
import sys
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from trunkline.config.errors import SecurityError
from trunkline.config.files import read_text
from trunkline.hooks.identity import Certificate, Identity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from trunkline.config.tls_settings import ServerCertificate, TlsSettings

_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
#: The names of attributes in RFC 4514 and those that OpenSSL gives them.
_SHORT: Final = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}


class Expiry(NamedTuple):
    """When a certificate of the broker ends."""

    at: float
    file: str


class Ambiguous(Exception):
    """A name that has to be one is several."""


class TlsContext:
    """What the TLS connections of a listener begin with."""

    def __init__(self, settings: TlsSettings, listener: str) -> None:
        """`listener` is the name of the listener, for messages.

        Raises:
            SecurityError: with all problems.
        """
        _ignore_names_that_are_not_text()
        self.settings = settings
        self.listener = listener
        #: When the broker's certificates end, in seconds since the epoch.
        self.expiries: list[Expiry] = []
        self._by_name: dict[str, ssl.SSLContext] = {}
        self._problems: list[str] = []
        #: The identity of the pre-shared key in the handshake step that runs now.
        self._psk = ""
        keys: Mapping[str, bytes] = {}
        if settings.psk_file is not None:
            if getattr(ssl, "HAS_PSK", False):
                keys = self._read(settings.psk_file, parse_keys) or {}
            else:
                self._problems.append("tls.psk_file needs Python 3.13 or later, with an OpenSSL that has PSK")
        contexts = [self._context(each, keys) for each in settings.server_certificates or (None,)]
        if self._problems:
            raise SecurityError([f"{listener}: {problem}" for problem in self._problems])
        self._default = contexts[0]
        self._default.sni_callback = self._choose

    def wrap(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> ssl.SSLObject:
        return self._default.wrap_bio(incoming, outgoing, server_side=True)

    def handshake(self, tls: ssl.SSLObject) -> tuple[bool, str]:
        """Go on with a handshake. Returns whether it is complete, and the identity whose pre-shared key it asked for.

        Raises:
            ssl.SSLError: it has failed.
        """
        self._psk = ""
        complete = False
        with suppress(ssl.SSLWantReadError):
            tls.do_handshake()
            complete = True
        return complete, self._psk

    def identity(self, tls: ssl.SSLObject, psk: str) -> Identity:
        """What a handshake has shown. `psk` is the identity that the client offered, which it may not have proven: TLS
        1.3 falls back to certificates.

        Raises:
            Ambiguous: the certificate does not say who the client is.
        """
        cipher = tls.cipher()
        if not (tls.session_reused if tls.version() == "TLSv1.3" else cipher and "PSK" in cipher[0]):
            psk = ""
        settings = self.settings
        certificate: Certificate | None = None
        if settings.client_certificates != "none" and (decoded := tls.getpeercert()):
            certificate = certificate_of(decoded, tls.getpeercert(binary_form=True) or b"")
        known = Identity(certificate, psk)
        for source in (settings.username_from, settings.client_id_from):
            if known.is_ambiguous(source):
                raise Ambiguous(f"the client's certificate has several names where one is meant (`{source}`)")
        return Identity(
            certificate,
            psk,
            known.named(settings.username_from),
            known.named(settings.client_id_from),
            tls.version() or "",
            cipher[0] if cipher else "",
            getattr(tls, "requested_name", ""),
            tls.selected_alpn_protocol() or "",
            tls.session_reused is True,
        )

    def _context(self, certificate: ServerCertificate | None, keys: Mapping[str, bytes]) -> ssl.SSLContext:
        settings = self.settings
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = _VERSIONS[settings.min_version]
        context.maximum_version = _VERSIONS[settings.max_version]
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
        context.num_tickets = 1
        if not settings.resumption or keys:
            context.options |= ssl.OP_NO_TICKET
            context.num_tickets = 0
        if settings.alpn:
            context.set_alpn_protocols(list(settings.alpn))
        try:
            context.set_ciphers(settings.ciphers + ":ECDHE+PSK:PSK+AESGCM" * bool(keys))
        except ssl.SSLError:
            self._problems.append(f"tls.ciphers: OpenSSL knows no such cipher suites: {settings.ciphers}")
        if keys:
            context.set_psk_server_callback(self._key_finder(keys))  # type: ignore[attr-defined,unused-ignore]
        if certificate is not None and certificate.certificate is not None:
            self._load(context, certificate, certificate.certificate)
        if settings.client_certificates != "none":
            required = settings.client_certificates == "required"
            context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
            self._trust(context, settings.client_ca)
            if settings.crl is not None:
                self._trust(context, settings.crl)
                if not (self._problems or context.cert_store_stats()["crl"]):
                    self._problems.append(f"{settings.crl} holds no revocation list")
                context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        return context

    def _load(self, context: ssl.SSLContext, certificate: ServerCertificate, file: Path) -> None:
        key = certificate.key or file
        secret = certificate.key_password_file
        # an empty one, or OpenSSL would ask for it at the terminal
        password: str = "" if secret is None else self._read(secret, lambda text: text.rstrip("\r\n")) or ""
        key_text: str | None = self._read(key, str)
        if self._read(file, bool) is None or key_text is None:
            return
        try:
            decoded = decode_file(file)
        except ssl.SSLError:
            self._problems.append(f"{file} holds no certificate as PEM")
            return
        encrypted = "ENCRYPTED" in key_text
        if "PRIVATE KEY-----" not in key_text:
            hint = ": set tls.key" if certificate.key is None else ""
            self._problems.append(f"{key} holds no private key as PEM{hint}")
        elif encrypted and secret is None:
            self._problems.append(f"the key in {key} is encrypted: set tls.key_password_file")
        else:
            try:
                context.load_cert_chain(file, key, password)
            except (ssl.SSLError, OSError) as error:
                reason = getattr(error, "reason", None) or str(error)
                if reason in ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED"):
                    why = f"{file} is not the certificate of the key in {key}"
                elif encrypted:
                    why = f"the password in {secret} does not open the key in {key}"
                else:
                    why = f"{file} and the key in {key} cannot be used: {reason.lower().replace('_', ' ')}"
                self._problems.append(why)
                return
            self._note(context, decoded, file)

    def _note(self, context: ssl.SSLContext, decoded: Mapping[str, Any], file: Path) -> None:
        """Remember when a certificate ends, and its names."""
        self.expiries.append(Expiry(ssl.cert_time_to_seconds(decoded["notAfter"]), str(file)))
        for kind, name in decoded.get("subjectAltName", ()):
            if kind == "DNS":
                self._by_name.setdefault(name.lower(), context)

    def _trust(self, context: ssl.SSLContext, file: Path | None) -> None:
        if file is not None and self._read(file, bool) is not None:
            try:
                context.load_verify_locations(file)
            except (ssl.SSLError, OSError):
                self._problems.append(f"{file} holds neither certificates nor revocation lists as PEM")

    def _read(self, file: Path, parse: Callable[[str], Any]) -> Any:
        """What a file holds; None if it cannot be read."""
        try:
            return parse(read_text(file))
        except OSError as error:
            self._problems.append(f"{file}: {error.strerror or error}")
        except ValueError as error:
            self._problems.append(f"{file}: {error}")
        return None

    def _choose(self, tls: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> None:
        if name:
            name = name.lower()
            tls.requested_name = name  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
            found = self._by_name.get(name) or self._by_name.get("*." + name.partition(".")[2])
            if found is not None and found is not self._default:
                tls.context = found

    def _key_finder(self, keys: Mapping[str, bytes]) -> Callable[[str | None], bytes]:
        def find(identity: str | None) -> bytes:
            found = keys.get(identity or "", b"")
            if found:
                self._psk = identity or ""
            return found

        return find


@cache
def _ignore_names_that_are_not_text() -> None:
    """The name that a client asks for, or the identity of its key, may be any bytes. `ssl` ends such a handshake, and
    also reports the error as one that nobody handles, with a traceback: clients could fill the log with these."""
    report = sys.unraisablehook

    def report_others(unraisable: sys.UnraisableHookArgs) -> None:
        trace = unraisable.exc_traceback
        in_handshake = trace is not None and trace.tb_frame.f_code is ssl.SSLObject.do_handshake.__code__
        if not (in_handshake and isinstance(unraisable.exc_value, UnicodeDecodeError)):
            report(unraisable)

    sys.unraisablehook = report_others


def parse_keys(text: str) -> dict[str, bytes]:
    """The keys of a `psk_file` by identity.

    Raises:
        ValueError: a line is not of the form IDENTITY:KEY, or an identity occurs twice.
    """
    keys: dict[str, bytes] = {}
    for number, line in enumerate(text.splitlines(), 1):
        identity, _, digits = line.strip().rpartition(":")
        if not line.strip() or line.startswith("#"):
            continue
        try:
            key = bytes.fromhex(digits)
        except ValueError:
            key = b""
        if not identity or len(key) < 16:
            raise ValueError(f"line {number} is not IDENTITY:KEY with a key of 32 or more hexadecimal digits")
        if identity in keys:
            raise ValueError(f"line {number}: {identity!r} occurs twice")
        keys[identity] = key
    return keys


def decode_file(file: Path) -> dict[str, Any]:
    """The first certificate of a PEM file, as `getpeercert` returns it.

    Raises:
        ssl.SSLError: it holds none.
    """
    # there is no public function for a certificate that is not a peer's; this one is in every Python since 2.6
    module: Any = import_module("_ssl")
    decoded: dict[str, Any] = module._test_decode_cert(str(file))
    return decoded


def certificate_of(decoded: Mapping[str, Any], der: bytes) -> Certificate:
    """A verified certificate, from what `getpeercert` returns."""
    parts = [pair for part in decoded.get("subject", ()) for pair in part]
    common_names = tuple(value for name, value in parts if name == "commonName")
    # RFC 4514: the last part comes first
    subject = ",".join(
        "+".join(f"{_SHORT.get(name, name)}={_escaped(value)}" for name, value in part)
        for part in reversed(decoded.get("subject", ()))
    )
    return Certificate(
        common_names[-1] if common_names else "",
        subject,
        decoded.get("serialNumber", ""),
        tuple((kind, value) for kind, value in decoded.get("subjectAltName", ()) if isinstance(value, str)),
        sha256(der).hexdigest(),
        float(ssl.cert_time_to_seconds(decoded["notAfter"])),
        common_names,
    )


def _escaped(value: str) -> str:
    text = "".join("\\" + char if char in ',+"\\<>;' else char for char in value)
    if text.startswith(("#", " ")):
        text = "\\" + text
    return text[:-1] + "\\ " if text.endswith(" ") and len(text) > 2 else text
