"""What it takes to connect to NATS."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from trunkline.nats.client.events import Event

#: By the scheme of a server's URL: its port, and whether TLS is asked for.
_SCHEMES: Final[Mapping[str, tuple[int, bool]]] = {"nats": (4222, False), "tls": (4222, True)}


@dataclass(frozen=True, slots=True)
class Address:
    """Of one server."""

    host: str
    port: int
    is_encrypted: bool = False
    user: str = ""
    #: A token has no user.
    password: str = field(default="", repr=False)
    #: Of its certificate, where that is another one.
    tls_name: str = ""

    @property
    def url(self) -> str:
        """Without secrets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'tls' if self.is_encrypted else 'nats'}://{host}:{self.port}"


def address_of(url: str) -> Address:
    """From a URL, or `HOST:PORT`.

    Raises:
        ValueError: it is none.
    """
    text = url if "://" in url else f"nats://{url}"
    parts = urlsplit(text)
    shown = text.replace(parts.netloc, parts.netloc.rpartition("@")[2])
    try:
        own_port = parts.port
    except ValueError as error:
        raise ValueError(f"{shown!r}: {error}") from None
    if parts.scheme not in _SCHEMES or not parts.hostname or parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError(f"{shown!r} is no address of a NATS server: nats://HOST:PORT, or tls")
    port, is_encrypted = _SCHEMES[parts.scheme]
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    if parts.password is None:
        user, password = "", user  # a token
    return Address(parts.hostname, own_port or port, is_encrypted, user, password)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Durations are seconds, sizes bytes."""

    servers: tuple[Address, ...] = (Address("127.0.0.1", 4222),)
    #: Shown in the server's lists of connections.
    name: str = ""
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    #: A file with a JWT and a seed, as `nsc` writes it; or a file with a seed alone. Both are read at each attempt.
    credentials: Path | str | None = None
    nkey_seed: Path | str | None = None
    #: For `tls://`, and for servers that ask for TLS. None: the system's authorities, and no certificate of the client.
    tls: ssl.SSLContext | None = None
    #: TLS before the server has said anything.
    tls_first: bool = False
    #: Whether the client gets what it has published itself.
    echo: bool = True
    connect_timeout: float = 5.0
    #: A server that leaves `max_pings` PINGs unanswered is given up.
    ping_interval: float = 20.0
    max_pings: int = 2
    #: Between two attempts at all servers: doubled from the first to the largest, and shortened at random by up to
    #: half, so that the clients of a restarted server do not come back all at once.
    reconnect_wait: float = 0.1
    max_reconnect_wait: float = 8.0
    #: Rounds of attempts until the client gives up; None is no limit, and 0 never tries again.
    max_reconnects: int | None = None
    #: Whether servers are taken into the list that a server tells of.
    discover: bool = True
    #: What waits to be sent, without a connection or because the server is slow.
    max_pending: int = 8 << 20
    #: The messages of one subscription that wait to be taken, and their bytes.
    max_messages: int = 65_536
    max_bytes: int = 64 << 20
    inbox_prefix: str = "_INBOX"
    #: Called with whatever happens to the connection, in the client's task. None: it is logged.
    on_event: Callable[[Event], None] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """
        Raises:
            ValueError: a setting cannot be.
        """
        if not self.servers:
            raise ValueError("servers: none is named")
        for name in ("connect_timeout", "ping_interval", "max_pings", "max_pending", "max_messages", "max_bytes"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
                raise ValueError(f"{name}: {value!r} is no number above 0")
        if not 0 < self.reconnect_wait <= self.max_reconnect_wait:
            raise ValueError("reconnect_wait is above 0, and not above max_reconnect_wait")
