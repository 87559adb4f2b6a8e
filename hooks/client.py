"""The client that a hook is called for."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, Final

from trunkline.hooks.identity import Certificate, Identity
from trunkline.mqtt.describing import shown_username
from trunkline.mqtt.explanations import shortened
from trunkline.mqtt.packing import pack
from trunkline.mqtt.versions import Version

#: Stands in for a listener's name where connections have no socket.
IN_PROCESS: Final = "in-process"

#: What an attribute may be to be kept with the client.
_PLAIN: Final = (str, bytes, bool, int, float, type(None))
#: Leading bits of an IPv6 address that identify one customer of a provider.
_IPV6_PREFIX: Final = 64


@dataclass(slots=True, eq=False)
class ClientInfo:
    """The broker's knowledge of one connection's client. An authenticator may fill in `username`, `superuser`,
    `durable` and `attributes`; nothing else changes it. It never holds the password. The node's own messages are
    published by a client whose id is empty.
    """

    client_id: str
    username: str | None = None
    #: Address and port of the other side; None for an in-process connection.
    peer: tuple[str, int] | None = None
    #: Name of the listener that accepted it.
    listener: str = ""
    version: Version = Version.V5
    keep_alive: int = 0
    clean_start: bool = True
    #: Seconds since the epoch.
    connected_at: float = 0.0
    node: str = ""
    #: It is a bridge of another broker, and its CONNECT says so, which only 3.x allows.
    bridge: bool = False
    #: Its client id has a password, which it has sent.
    proved_id: bool = False
    #: Access rules do not apply to it.
    superuser: bool = False
    #: Whether what it gets acknowledged, and its session if that outlives the connection, is stored as the broker's
    #: `store.durability` says. False: as with "memory".
    durable: bool = True
    #: What the layers below MQTT have learned: the TLS connection and its certificate. None without such a layer, and
    #: when the connection is gone and the broker has restarted.
    identity: Identity | None = None
    #: The authenticators that its listener asks, in order; None if it asks all.
    authenticators: tuple[str, ...] | None = None
    #: For authenticators and plugins: data about the client, for callbacks that run later.
    attributes: dict[str, object] = field(default_factory=lambda: {})

    @property
    def certificate(self) -> Certificate | None:
        """The verified certificate; None without one."""
        return None if self.identity is None else self.identity.certificate

    @property
    def certified(self) -> bool:
        """Its user name comes from its certificate or its pre-shared key, and it needs no password."""
        return self.identity is not None and bool(self.identity.username)

    @property
    def address(self) -> str:
        """The client's address in readable form."""
        if self.peer is None:
            return "this process" if self.listener in ("", IN_PROCESS) else "a Unix socket"
        host, port = self.peer
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def log_fields(self) -> dict[str, object]:
        """The `extra` of log records about this client."""
        return {
            "client": shortened(self.client_id),
            "username": shown_username(self.username),
            "peer": self.address,
            "listener": self.listener,
        }


#: A client is stored for each new session and will, so nothing of it is copied.
_STORED: Final = tuple([each.name for each in fields(ClientInfo) if each.name not in ("identity", "authenticators")])


def client_to_plain(client: ClientInfo) -> dict[str, Any]:
    """As values that msgpack knows, without attributes that are none, and without what its connection alone has."""
    about = {name: getattr(client, name) for name in _STORED}
    return {**about, "version": int(client.version), "attributes": plain_attributes(client)}


def plain_attributes(client: ClientInfo) -> dict[str, Any]:
    return {
        name: value for name, value in client.attributes.items() if isinstance(value, _PLAIN) and _can_be_packed(value)
    }


def _can_be_packed(value: object) -> bool:
    """Not an integer of more than 64 bits, nor text that has half a character."""
    try:
        pack(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def client_from_plain(plain: Mapping[str, Any]) -> ClientInfo:
    values: dict[str, Any] = {**plain, "version": Version(plain["version"]), "attributes": dict(plain["attributes"])}
    if values["peer"] is not None:
        values["peer"] = tuple(values["peer"])
    return ClientInfo(**values)


def read_address(host: str) -> IPv4Address | IPv6Address | None:
    """A host as a socket gives it, without its zone, and as IPv4 if it stands for that; None if it is not an
    address."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def counted_address(host: str) -> str:
    """What limits of an address count: an IPv4 address, or all IPv6 addresses that one customer of a provider has."""
    address = read_address(host)
    if address is None:
        return host
    return str(address if address.version == 4 else ip_network((address, _IPV6_PREFIX), strict=False))
