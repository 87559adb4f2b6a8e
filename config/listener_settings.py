"""The settings of a listener: its own keys, and a table for each part that a connection's bytes pass."""

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, Self, cast

from pydantic import model_validator
from pydantic.fields import FieldInfo

from trunkline.config.addresses import (
    ENCRYPTED,
    NATS,
    NATS_TLS,
    PORTS,
    WEBSOCKET,
    ListenerAddress,
    is_loopback,
    split_listener_url,
    split_query,
)
from trunkline.config.key_path import nearest
from trunkline.config.layer_settings import ProxyProtocolSettings, WebSocketSettings
from trunkline.config.section import Section, key
from trunkline.config.security_settings import CredentialFiles
from trunkline.config.tls_settings import TLS_PARAMETERS, TlsSettings
from trunkline.config.units import (
    AccessRule,
    FileMode,
    Flag,
    ListenerUrl,
    MountpointText,
    OptionalDurability,
    OptionalFlag,
    OptionalNames,
    OptionalOver,
    OptionalPath,
    OptionalRateText,
    RateText,
    Text,
    Whole,
    from_text,
    without_none,
)

#: Short names of parameters in a URL's query. Others are called like the key: `name`, or `tls.key` for one of a table.
PARAMETERS: Final[Mapping[str, tuple[str, ...]]] = {**TLS_PARAMETERS}


#: For each scheme: with TLS, and with WebSocket.
_ALIKE: Final = dict.fromkeys(PORTS, ("tls", "ws")) | {
    "tls": ("tls", "wss"),
    "ws": ("wss", "ws"),
    "nats": (NATS_TLS, "nats+ws"),
    NATS_TLS: (NATS_TLS, "nats+wss"),
    "nats+ws": ("nats+wss", "nats+ws"),
}
_VERSIONS: Final = ("3.1", "3.1.1", "5.0")


class ListenerRateSettings(Section):
    """Rates of one listener, as in `[rate]`, where the rates of the whole node are: those hold as well."""

    connections: RateText = key("0", "New connections at this listener. More are accepted later.")
    messages: RateText = key("0", "Messages from all clients of this listener together.")
    bytes: RateText = key("0", "Bytes from all clients of this listener together.")
    client_connections: OptionalRateText = key(None, "In place of `rate.client_connections`.")
    client_messages: OptionalRateText = key(None, "In place of `rate.client_messages`.")
    client_bytes: OptionalRateText = key(None, "In place of `rate.client_bytes`.")
    connection_messages: OptionalRateText = key(None, "In place of `rate.connection_messages`.")
    connection_bytes: OptionalRateText = key(None, "In place of `rate.connection_bytes`.")
    over: OptionalOver = key(None, "In place of `rate.over`, for all limits that concern clients of this listener.")


class ListenerSettings(Section):
    """Where clients connect. With an empty list, the broker serves in-process connections only.

    A listener may be written as its URL alone: `listeners = ["tcp://127.0.0.1:1883"]`.
    """

    url: ListenerUrl = key(
        "tcp://127.0.0.1:1883",
        "Address and port to listen on: `SCHEME://HOST:PORT`, with `*` for all addresses of this machine. Schemes and "
        "default ports: `tcp` or `mqtt` 1883, `tls` or `mqtts` 8883, `ws` 8083, `wss` 8084; for "
        "[NATS](nats-listener.md), `nats` and `nats+tls` 4222, `nats+ws` 8080, `nats+wss` 8443; `unix:///PATH` is a "
        "Unix socket. A query sets keys of this table: `?name=plant&max_connections=10`.",
    )
    name: Text = key("", "Name in logs, metrics and hooks. The URL when it is empty.")
    max_connections: Whole = key(
        100_000, "Connections at the same time; further connections are closed.", "connections", ge=1
    )
    max_connections_per_address: Whole = key(
        0,
        "Connections from one address (IPv6: one /64) at the same time; further connections are closed. 0 means no "
        "limit.",
        "connections",
        ge=0,
    )
    access_rules: tuple[AccessRule, ...] = key(
        (),
        'Which addresses may connect: `["allow 10.0.0.0/8", "deny all"]`. The first rule that matches decides; an '
        "address that matches none may connect.",
    )
    allow_anonymous: OptionalFlag = key(
        None, "Whether clients may connect here without credentials. `auth.allow_anonymous` decides when it is not set."
    )
    authenticators: OptionalNames = key(
        None,
        "Which authenticators let clients in here, in the order in which they are asked: `passwords` for the files of "
        "user names and client ids, `scram`, and names of plugins. An empty list: none. All are asked when it is not "
        "set.",
    )
    password_file: OptionalPath = key(
        None, "User names and hashed passwords of clients that connect here, in place of `auth.password_file`."
    )
    client_id_file: OptionalPath = key(
        None, "Client ids and hashed passwords of clients that connect here, in place of `auth.client_id_file`."
    )
    scram_file: OptionalPath = key(
        None, "SCRAM credentials of clients that connect here, in place of `auth.scram_file`."
    )
    versions: tuple[Literal["3.1", "3.1.1", "5.0"], ...] = key(
        _VERSIONS,
        "MQTT versions that are accepted here. Clients with other versions are refused.",
        min_length=1,
    )
    zone: Text = key(
        "",
        "Name of the [zone](listeners.md#zones) whose settings hold for clients that connect here. Empty means none.",
    )
    mountpoint: MountpointText = key(
        "",
        "Prefix of all topics of clients that connect here, which do not see it: `plant/%c/`, with `%c` for the client "
        "id and `%u` for the user name.",
    )
    durability: OptionalDurability = key(
        None,
        "`memory`: what is acknowledged to clients that connect here waits for no store, and sessions that they begin "
        "end with the broker's process. Otherwise `store.durability` holds; no other level than that can stand here, "
        "because all sessions share one store and its commits.",
    )
    backlog: Whole = key(1024, "Connections that the system keeps waiting to be accepted.", "connections", ge=1)
    reuse_port: Flag = key(
        False,
        "Whether other processes with this setting may listen on the same address; the system spreads new connections "
        "over them.",
    )
    systemd_socket: Text = key(
        "",
        "Name of the socket that systemd passes (`FileDescriptorName=`, or else the unit's name, `trunkline.socket`), "
        "which is used in place of the host and port, or path, of the URL.",
    )
    socket_mode: FileMode = key("660", "Permissions of a Unix socket: who may write to it may connect.")
    proxy_protocol: ProxyProtocolSettings = key(ProxyProtocolSettings(), "Load balancers in front of this listener.")
    websocket: WebSocketSettings = key(WebSocketSettings(), "What listeners of WebSocket accept, `ws` and the others.")
    tls: TlsSettings | None = key(None, "TLS, for `tls://`, `wss://`, `nats+tls://` and `nats+wss://`.")
    rate: ListenerRateSettings = key(ListenerRateSettings(), "Rates; see the table below.")

    @model_validator(mode="before")
    @classmethod
    def _from_url(cls, value: object) -> object:
        return cls.expanded(value)

    @classmethod
    def expanded(cls, value: object) -> object:
        """Settings in the query of a URL become keys of the listener's table."""
        table = {"url": value} if isinstance(value, str) else value
        if not isinstance(table, Mapping):
            return value
        settings = dict(cast("Mapping[str, Any]", table))
        if not isinstance(settings.get("url"), str):
            return settings
        settings["url"], parameters = split_query(settings["url"])
        for name, text in parameters.items():
            path = PARAMETERS.get(name, tuple(name.split(".")))
            field = _field(cls, path)
            if field is None or path == ("url",):
                hint = nearest(name, [*PARAMETERS, *cls.model_fields.keys() - {"url"}])
                raise ValueError(f"{settings['url']} has an unknown parameter, {name}{hint}")
            inner = settings
            for depth, part in enumerate(path[:-1], 1):
                given = inner.get(part, {})
                if not isinstance(given, Mapping):
                    table = ".".join(path[:depth])
                    raise ValueError(f"{table} is not a table: {settings['url']} sets {name} in it")  # noqa: TRY004
                inner[part] = inner = dict(cast("Mapping[str, Any]", given))
            if path[-1] in inner:
                raise ValueError(f"{settings['url']} has the parameter {name}, which is a key of its table too")
            inner[path[-1]] = from_text(field, text)
        return settings

    @model_validator(mode="after")
    def _fits_its_scheme(self) -> Self:
        scheme = self.address.scheme
        if scheme == "unix" and (self.access_rules or self.max_connections_per_address):
            raise ValueError(
                f"{self.url}: access_rules and max_connections_per_address are about addresses, which clients of a "
                "Unix socket do not have: set socket_mode"
            )
        encrypted = scheme in ENCRYPTED
        if encrypted and self.tls is None:
            raise ValueError(f"{self.url} needs a certificate: tls.certificate, or ?cert=FILE&key=FILE in the URL")
        if not encrypted and self.tls is not None:
            raise ValueError(
                f"{self.url} has settings of TLS, and does not use it: its URL would be {_ALIKE[scheme][0]}://"
            )
        if scheme != NATS_TLS and self.tls is not None and self.tls.sets_greeting:
            raise ValueError(f"{self.url}: tls.handshake_first and handshake_wait are about nats+tls://")
        if scheme not in WEBSOCKET and self.websocket != WebSocketSettings():
            raise ValueError(
                f"{self.url} has settings of WebSocket, and does not use it: its URL would be {_ALIKE[scheme][1]}://"
            )
        if scheme in NATS and (self.mountpoint or len(self.versions) < len(_VERSIONS)):
            raise ValueError(f"{self.url}: mountpoint and versions are about MQTT, and NATS is spoken there")
        return self

    @model_validator(mode="after")
    def _knows_its_placeholders(self) -> Self:
        for found in re.findall("%[A-Za-z]", self.mountpoint):
            if found not in ("%c", "%u"):
                raise ValueError(f"mountpoint has an unknown placeholder, {found}: there are %c and %u")
        return self

    @property
    def address(self) -> ListenerAddress:
        return split_listener_url(self.url)

    @property
    def host(self) -> str:
        return self.address.host

    @property
    def port(self) -> int:
        return self.address.port

    @property
    def names_clients(self) -> bool:
        """Certificates or pre-shared keys give the user names of clients, which need no password then."""
        return bool(self.proxy_protocol.username_from or (self.tls is not None and self.tls.username_from))

    @property
    def label(self) -> str:
        return self.name or self.url

    @property
    def files(self) -> CredentialFiles:
        return CredentialFiles(self.password_file, self.client_id_file, self.scram_file)

    @property
    def loopback(self) -> bool:
        """Only this machine can reach it. Where systemd listens is not known before the start."""
        return self.address.scheme == "unix" or (not self.systemd_socket and is_loopback(self.host))

    @property
    def mode_bits(self) -> int:
        """The permissions of a Unix socket."""
        return int(self.socket_mode, 8)


def _field(model: type[Section], path: tuple[str, ...]) -> FieldInfo | None:
    """The key of a section, or of a table in it."""
    for part in path[:-1]:
        inner = without_none(model.model_fields[part].annotation) if part in model.model_fields else None
        if not isinstance(inner, type) or not issubclass(inner, Section):
            return None
        model = inner
    return model.model_fields.get(path[-1])
