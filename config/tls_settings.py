"""The settings of TLS on a listener."""

from collections.abc import Mapping
from math import inf
from typing import Final, Literal, Self

from pydantic import model_validator

from trunkline.config.section import Section
from trunkline.config.section import key as setting
from trunkline.config.units import Duration, Flag, OptionalPath, Text, Whole

#: Seconds, as a NATS server waits.
DEFAULT_WAIT: Final = 0.05
#: Fields of a client's certificate that may name the client.
NameSource = Literal["", "cn", "san", "dn", "serial", "psk"]


class ServerCertificate(Section):
    """A certificate for some of the names under which clients reach the broker, which is one of `tls.certificates`."""

    certificate: OptionalPath = setting(None, "The certificate, followed by its intermediate ones, as PEM.")
    key: OptionalPath = setting(
        None, "Its private key as PEM. When it is not set, it stands in the file of `certificate`."
    )
    key_password_file: OptionalPath = setting(None, "File with the password of an encrypted private key.")


class TlsSettings(ServerCertificate):
    """TLS on a listener whose URL begins with `tls://`, `wss://`, `nats+tls://` or `nats+wss://`. All files are read
    again at a reload."""

    certificates: tuple[ServerCertificate, ...] = setting(
        (),
        "More certificates, each a table with `certificate`, `key` and `key_password_file`. A client that asks for a "
        "name (SNI) that one of them holds gets that one, all others get `certificate`.",
    )
    min_version: Literal["1.2", "1.3"] = setting("1.2", "Lowest TLS version. Those below 1.2 are never spoken.")
    max_version: Literal["1.2", "1.3"] = setting("1.3", "Highest TLS version.")
    ciphers: Text = setting(
        "ECDHE+AESGCM:ECDHE+CHACHA20",
        "Cipher suites of TLS 1.2, as an OpenSSL cipher list. Those of TLS 1.3 are all good, and all on.",
        min_length=1,
    )
    client_certificates: Literal["none", "optional", "required"] = setting(
        "none", "Whether clients are asked for a certificate, and whether those without one are refused."
    )
    client_ca: OptionalPath = setting(None, "The authorities that sign clients' certificates, as PEM.")
    crl: OptionalPath = setting(
        None, "The list of revoked client certificates (CRL) of each authority in `client_ca`, as PEM."
    )
    username_from: NameSource = setting(
        "",
        "What the user name of a client with a certificate is: the common name (`cn`), the subject alternative "
        "name (`san`), the whole subject (`dn`, as `CN=a,O=b`), the serial number (`serial`), or, without a "
        "certificate, the identity of a pre-shared key (`psk`). Such a client needs no password. Empty: "
        "it has the user name of its CONNECT.",
    )
    client_id_from: NameSource = setting(
        "", "What the client id of a client with a certificate is, in place of the one of its CONNECT."
    )
    alpn: tuple[Text, ...] = setting(("mqtt",), "Protocols that are offered by ALPN. Clients need not ask for one.")
    resumption: Flag = setting(
        True,
        "Whether clients may resume an earlier TLS session, without a full handshake. False turns tickets off, which "
        "is all that TLS 1.3 has; by session ids clients of TLS 1.2 still can, because Python has no switch for them: "
        "set `min_version` to 1.3, too.",
    )
    psk_file: OptionalPath = setting(
        None,
        "Pre-shared keys, one `IDENTITY:KEY` a line with the key in hexadecimal. Clients with one need no "
        "certificates. Needs Python 3.13 or later; it turns `resumption` off.",
    )
    handshake_timeout: Duration = setting(
        10.0, "A client whose TLS handshake takes longer is disconnected.", "seconds", gt=0
    )
    max_handshakes: Whole = setting(
        2000,
        "Handshakes that may wait for their client at the same time. When there are more, the one that has waited "
        "longest is given up.",
        "connections",
        ge=1,
    )
    handshake_first: Literal["auto", "always", "never"] = setting(
        "auto",
        "Whether clients at `nats+tls://` begin with the handshake, or get INFO in clear before it, as most of them "
        "expect. `auto`: INFO is sent to those that have not begun within `handshake_wait`. `always`: nothing is ever "
        "said in clear. `never`: INFO is sent at once.",
    )
    handshake_wait: Duration = setting(
        DEFAULT_WAIT, "How long a client may take to begin with the handshake, where that is `auto`.", "seconds", gt=0
    )
    expiry_warning: Duration = setting(
        30 * 86_400.0, "An alarm is raised when a certificate expires within this time.", "seconds"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.min_version > self.max_version:
            raise ValueError(f"min_version {self.min_version} is above max_version {self.max_version}")
        if self.certificate is None and self.psk_file is None:
            raise ValueError("TLS needs a certificate, or a psk_file")
        if any(each.certificate is None for each in self.certificates):
            raise ValueError("an entry of certificates has no certificate")
        if self.client_certificates != "none" and self.client_ca is None:
            raise ValueError("client_certificates needs client_ca")
        if self.crl is not None and self.client_certificates == "none":
            raise ValueError("crl needs client_certificates")
        sources = {self.username_from, self.client_id_from} - {"", "psk"}
        if sources and self.client_certificates == "none":
            raise ValueError("username_from and client_id_from need client_certificates")
        if "psk" in (self.username_from, self.client_id_from) and self.psk_file is None:
            raise ValueError('"psk" needs psk_file')
        if self.handshake_first != "auto" and self.handshake_wait != DEFAULT_WAIT:
            raise ValueError('handshake_wait is for handshake_first = "auto"')
        if self.handshake_wait != DEFAULT_WAIT and self.handshake_wait >= self.handshake_timeout:
            raise ValueError("handshake_wait must be below handshake_timeout, in which the whole handshake has to fit")
        return self

    @property
    def sets_greeting(self) -> bool:
        """Something is said about what comes before the handshake."""
        return self.handshake_first != "auto" or self.handshake_wait != DEFAULT_WAIT

    @property
    def greets_after(self) -> float:
        """Seconds after which a client that has not begun with the handshake is greeted in clear; may be infinite."""
        return {"auto": self.handshake_wait, "always": inf, "never": 0.0}[self.handshake_first]

    @property
    def server_certificates(self) -> tuple[ServerCertificate, ...]:
        """The default one first."""
        return self.certificates if self.certificate is None else (self, *self.certificates)


#: Short names in the query of a listener's URL.
TLS_PARAMETERS: Final[Mapping[str, tuple[str, ...]]] = {
    "cert": ("tls", "certificate"),
    "key": ("tls", "key"),
    "ca": ("tls", "client_ca"),
}
