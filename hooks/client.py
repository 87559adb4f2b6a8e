"""The client that a hook is called for."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from trunkline.mqtt.describing import shown_username
from trunkline.mqtt.explanations import shortened
from trunkline.mqtt.versions import Version

#: What an attribute may be to be kept with the client.
_PLAIN: Final = (str, bytes, bool, int, float, type(None))


@dataclass(slots=True, eq=False)
class ClientInfo:
    """What the broker knows of one connection's client.

    An authenticator may fill in `username`, `superuser` and `attributes`; nobody else changes it. It never holds the
    password. The node's own messages are published by a client whose id is empty.
    """

    client_id: str
    username: str | None = None
    #: Address and port of the other side; None for an in-process connection.
    peer: tuple[str, int] | None = None
    #: Name of the listener it came in by.
    listener: str = ""
    version: Version = Version.V5
    keep_alive: int = 0
    clean_start: bool = True
    #: Seconds since the epoch.
    connected_at: float = 0.0
    node: str = ""
    #: It connects another broker, and its CONNECT says so, which only 3.x allows.
    bridge: bool = False
    #: Access rules are not asked for it.
    superuser: bool = False
    #: For authenticators and plugins: what was learned of the client, for callbacks that run later.
    attributes: dict[str, object] = field(default_factory=dict[str, object])

    @property
    def address(self) -> str:
        """Where it is, for people to read."""
        if self.peer is None:
            return "this process"
        host, port = self.peer
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def log_fields(self) -> dict[str, object]:
        """What log records about it have as `extra`."""
        return {
            "client": shortened(self.client_id),
            "username": shown_username(self.username),
            "peer": self.address,
            "listener": self.listener,
        }


def client_to_plain(client: ClientInfo) -> dict[str, Any]:
    """As values that msgpack knows, without attributes that are none."""
    attributes = {name: value for name, value in client.attributes.items() if isinstance(value, _PLAIN)}
    return {**asdict(replace(client, attributes={})), "version": int(client.version), "attributes": attributes}


def client_from_plain(plain: Mapping[str, Any]) -> ClientInfo:
    values: dict[str, Any] = {**plain, "version": Version(plain["version"]), "attributes": dict(plain["attributes"])}
    if values["peer"] is not None:
        values["peer"] = tuple(values["peer"])
    return ClientInfo(**values)
