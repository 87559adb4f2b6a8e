"""What it takes to connect: from keyword arguments, a URL, the environment, a file, or several of them.

Whatever may change while a client runs, as a password or a certificate, can stand in a file, which is read at each
attempt to connect.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Self, cast
from urllib.parse import quote

from pydantic import AfterValidator, BeforeValidator, ValidationError, model_validator
from pydantic_core import ErrorDetails

from trunkline.client.checks import check_properties, check_topic
from trunkline.client.settings_sources import MAX_FILE, SCHEMES, SettingsSources, Transport
from trunkline.config.errors import ConfigError, Problem
from trunkline.config.fields import field_at, wrong_value
from trunkline.config.files import read_text
from trunkline.config.key_path import dotted, nearest
from trunkline.config.section import Section
from trunkline.config.section import key as setting
from trunkline.config.units import (
    Accepts,
    Duration,
    Expiry,
    Flag,
    OptionalPath,
    Size,
    Text,
    Whole,
    WholeSeconds,
)
from trunkline.mqtt.packets import PacketType, Will
from trunkline.mqtt.strings import encode_string
from trunkline.mqtt.versions import Version

if TYPE_CHECKING:
    from trunkline.mqtt.properties import Properties

#: Ports of WebSocket are those of web servers, as everywhere else.
PORTS: Final[Mapping[str, int]] = {"tcp": 1883, "tls": 8883, "ws": 80, "wss": 443, "unix": 0}
#: The resource of a WebSocket whose URL has no path.
WEBSOCKET_PATH: Final = "/mqtt"
#: Messages on their way to a server. Some 3.x servers stall when they are sent more than they keep.
MAX_WINDOW: Final = 65_535
WINDOW_V3: Final = 20
_VERSIONS: Final = {"3.1": Version.V31, "3.1.1": Version.V311, "5": Version.V5, "5.0": Version.V5}


def parse_version(value: object) -> Version:
    if isinstance(value, Version):
        return value
    if str(value) in _VERSIONS:
        return _VERSIONS[str(value)]
    raise ValueError("not a version")


def check_text(value: str | None) -> str | None:
    """What MQTT can carry as text."""
    if value is not None:
        encode_string(value)
    return value


def check_will_topic(value: str) -> str:
    check_topic(value)
    return value


def check_optional_topic(value: str) -> str:
    if value:
        check_topic(value)
    return value


def check_will_properties(value: Mapping[str, Any]) -> Mapping[str, Any]:
    check_properties(cast("Properties", value), PacketType.WILL)
    return value


def check_text_or_bytes(value: object) -> object:
    if isinstance(value, str | bytes | None):
        return value
    raise ValueError("not a text")


AnyVersion = Annotated[Version, Accepts('"5.0", "3.1.1" or "3.1"'), BeforeValidator(parse_version)]


class _ClientSection(Section):
    if not TYPE_CHECKING:  # checkers see the keys

        def __init__(self, *others: object, **values: object) -> None:
            if others:
                raise TypeError(f"{type(self).__name__} takes keywords: {type(self).__name__}(KEY=VALUE, …)")
            try:
                super().__init__(**values)
            except ValidationError as error:
                raise ConfigError([_problem(type(self), detail) for detail in error.errors()]) from None

        # as a part of other settings it is made without this, so that the keys of its errors begin with its own
        __init__.__pydantic_base_init__ = True


class WillMessage(_ClientSection):
    """The message that the server publishes when the connection is lost."""

    topic: Annotated[str, Accepts("a topic name"), AfterValidator(check_will_topic)] = setting(..., "Its topic.")
    payload: Annotated[str | bytes, Accepts("text or bytes"), BeforeValidator(check_text_or_bytes)] = setting(
        b"", "Its payload."
    )
    qos: Whole = setting(0, "Its QoS.", ge=0, le=2)
    retain: Flag = setting(False, "Whether the server retains it.")
    delay: WholeSeconds = setting(0, "How long the server waits for the client to come back (5.0).", "seconds")
    properties: Annotated[Mapping[str, Any], Accepts("a table"), AfterValidator(check_will_properties)] = setting(
        {}, "Its other properties (5.0), by the names of `trunkline.mqtt.properties`."
    )

    @property
    def packet(self) -> Will:
        payload = self.payload.encode() if isinstance(self.payload, str) else self.payload
        properties = cast("Properties", {**self.properties})
        if self.delay:
            properties["will_delay_interval"] = self.delay
        return Will(self.topic, payload, self.qos, self.retain, properties)


class ConnectionSettings(_ClientSection):
    """Where and how to connect. Immutable; `changed` makes another one.

    Every way to make one raises `ConfigError` with all that is wrong, key by key.
    """

    transport: Transport = setting("tcp", "TCP, TLS, WebSocket, WebSocket over TLS, or a Unix socket.")
    host: Text = setting("localhost", "Name or address of the server.", min_length=1)
    port: Annotated[int | None, Accepts("a port")] = setting(
        None, "When it is not set: 1883 (tcp), 8883 (tls), 80 (ws), 443 (wss).", ge=1, le=65_535, strict=True
    )
    path: Text = setting("", "Path of the Unix socket, or the resource of the WebSocket, which is /mqtt when not set.")
    version: AnyVersion = setting(Version.V5, "Version of MQTT.")

    client_id: Annotated[str, Accepts("text"), AfterValidator(check_text)] = setting(
        "", "Empty: the server chooses one (5.0), which stays until the client is closed."
    )
    username: Annotated[str | None, Accepts("text"), AfterValidator(check_text)] = setting(None, "User name.")
    password: Annotated[str | bytes | None, Accepts("text"), BeforeValidator(check_text_or_bytes)] = setting(
        None, "Password or token.", repr=False
    )
    password_file: OptionalPath = setting(
        None, "File with the password, read at each attempt. A line break at its end is not part of it."
    )

    clean_start: Flag = setting(True, "Whether the first connection ends the session that the server may have.")
    session_expiry: Annotated[Expiry | None, Accepts('seconds, text such as "2h", or "never"')] = setting(
        None,
        "How long the server keeps the session without a connection (5.0). When it is not set: 0, and for a session "
        "client one hour.",
        "seconds",
    )
    keep_alive: WholeSeconds = setting(
        60, "The server is asked whether it is there when it was silent for this long. 0: never.", "seconds", le=65_535
    )
    ping_timeout: Duration = setting(10.0, "The connection is lost when the answer takes longer.", "seconds", gt=0)
    connect_timeout: Duration = setting(10.0, "Limit for one attempt, from the address to CONNACK.", "seconds", gt=0)

    receive_maximum: Whole = setting(
        1000, "QoS 1 and 2 messages that the server may send before they are acknowledged (5.0).", ge=1, le=65_535
    )
    max_inflight: Annotated[int | None, Accepts("a whole number")] = setting(
        None,
        "QoS 1 and 2 messages that the client sends before they are acknowledged, if the server allows as many. When "
        "it is not set: as many as a 5.0 server allows, and 20 for a 3.x server, which cannot say what it allows.",
        ge=1,
        le=65_535,
        strict=True,
    )
    max_packet_size: Size = setting(0, "Largest packet accepted; 0 means no limit.", "bytes", ge=0, le=268_435_460)
    topic_aliases_in: Whole = setting(0, "Topic aliases that the server may use (5.0).", ge=0, le=65_535)
    topic_aliases_out: Whole = setting(
        0,
        "Topic aliases that the client uses if the server allows them (5.0): shorter packets, more work.",
        ge=0,
        le=65_535,
    )
    request_problem_information: Flag = setting(True, "Whether the server may explain failures in words (5.0).")
    request_response_information: Flag = setting(False, "Whether the server is asked where responses may go (5.0).")
    response_topic: Annotated[str, Accepts("a topic name"), AfterValidator(check_optional_topic)] = setting(
        "",
        "Where responses to this client's requests come (5.0). When it is not set: `responses/CLIENT_ID`, or what "
        "the server says that responses begin with, if it is asked, and `/CLIENT_ID`.",
    )
    user_properties: tuple[tuple[str, str], ...] = setting((), "User properties of CONNECT (5.0).")
    will: WillMessage | None = setting(None, "Published by the server when the connection is lost.")

    ca_file: OptionalPath = setting(None, "Authorities that sign server certificates, as PEM. Default: the system's.")
    certificate: OptionalPath = setting(None, "The client's certificate, as PEM.")
    key: OptionalPath = setting(None, "Its private key, as PEM. Default: in the file of `certificate`.")
    key_password_file: OptionalPath = setting(None, "File with the password of the private key.")
    server_name: Text = setting("", "The name in the server's certificate. Default: `host`.")
    verify: Flag = setting(True, "False accepts any certificate: for tests alone.")
    verify_name: Flag = setting(True, "False accepts a trusted certificate of any server: for tests alone.")

    # Other ways to make one

    @classmethod
    def from_url(cls, url: str, **keywords: Any) -> Self:
        """`mqtt[s]|ws[s]://[USER[:PASSWORD]@]HOST[:PORT][/PATH][?KEY=VALUE&…]`, or `unix:///PATH`. Keywords win."""
        return cls.gather(url=url, **keywords)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None, **keywords: Any) -> Self:
        """TRUNKLINE_MQTT_URL, and one variable for each key: TRUNKLINE_MQTT_KEEP_ALIVE. Keywords win."""
        return cls.gather(environ=os.environ if environ is None else environ, **keywords)

    @classmethod
    def from_file(cls, path: Path | str, **keywords: Any) -> Self:
        """A TOML file with keys, and perhaps `url`. Relative paths in it start from its folder. Keywords win."""
        return cls.gather(file=path, **keywords)

    @classmethod
    def gather(
        cls,
        *,
        file: Path | str | None = None,
        environ: Mapping[str, str] | None = None,
        url: str | None = None,
        **keywords: Any,
    ) -> Self:
        """From several sources: of two values for a key, the one in the later source here.

        Raises:
            ConfigError: with all that is wrong.
        """
        sources = SettingsSources(cls)
        if file is not None:
            sources.take_file(Path(file))
        if environ is not None:
            sources.take_environment(environ)
        if url is not None:
            sources.take_url(url, "URL")
        for name, value in keywords.items():
            sources.take(name, value, "")
        return cls._made(sources)

    @classmethod
    def _made(cls, sources: SettingsSources) -> Self:
        problems = sources.problems
        try:
            settings = cls(**sources.values)
        except ConfigError as error:
            problems += [
                each._replace(source=sources.origin.get(each.key.partition(".")[0], "")) for each in error.problems
            ]
        else:
            if not problems:
                return settings
        raise ConfigError(problems)

    def changed(self, **keywords: Any) -> Self:
        """The same with other values for some keys."""
        values = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self)(**{**values, **keywords})

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.password is not None and self.password_file is not None:
            raise ValueError("password and password_file are both set")
        if any(char in "/@" or char.isspace() for char in self.host):
            raise ValueError("host is a name or an address, not a URL: that is for from_url")
        name, colon, port = self.host.rpartition(":")
        if colon and ":" not in name and port.isdecimal():
            raise ValueError(f"host and port are two keys: {name} and {port}")
        if self.transport == "unix" and not self.path:
            raise ValueError("a Unix socket needs a path")
        if self.transport in ("tcp", "tls") and self.path:
            raise ValueError(f"path {self.path} has no meaning for {self.transport}")
        if self.key is not None and self.certificate is None:
            raise ValueError("key needs certificate")
        if self.version is not Version.V5:
            has_password = self.password is not None or self.password_file is not None
            if has_password and self.username is None:
                raise ValueError(f"MQTT {self.version} has no password without a user name")  # [MQTT3-3.1.2-22]
            if self.client_id == "" and not self.clean_start:
                raise ValueError(f"MQTT {self.version} resumes no session without a client_id")  # [MQTT3-3.1.3-7]
        return self

    # What follows from them

    @property
    def actual_port(self) -> int:
        return PORTS[self.transport] if self.port is None else self.port

    @property
    def window(self) -> int:
        """The most messages that may wait for their acknowledgement, as far as this side is concerned."""
        if self.max_inflight is not None:
            return self.max_inflight
        return MAX_WINDOW if self.version is Version.V5 else WINDOW_V3

    @property
    def is_encrypted(self) -> bool:
        return self.transport in ("tls", "wss")

    @property
    def resource(self) -> str:
        """Of the WebSocket."""
        return self.path or WEBSOCKET_PATH

    @property
    def url(self) -> str:
        """The address, without any secret: for logs."""
        scheme = next(scheme for scheme, transport in SCHEMES.items() if transport == self.transport)
        user = "" if self.username is None else f"{quote(self.username, safe='')}@"
        if self.transport == "unix":
            return f"unix://{user}{quote(self.path)}"
        host = f"[{self.host.replace('%', '%25')}]" if ":" in self.host else self.host
        port = "" if self.actual_port == PORTS[self.transport] else f":{self.actual_port}"
        return f"{scheme}://{user}{host}{port}{self.path}"

    def read_password(self) -> bytes | None:
        """The password as it is now.

        Raises:
            OSError, UnicodeDecodeError: its file cannot be read.
        """
        if self.password_file is not None:
            return read_text(self.password_file, MAX_FILE).removesuffix("\n").removesuffix("\r").encode()
        return self.password.encode() if isinstance(self.password, str) else self.password


def _problem(model: type[Section], detail: ErrorDetails) -> Problem:
    """What pydantic found, in words."""
    within = tuple(part for part in detail["loc"] if part != "[key]")
    if not within:  # a contradiction between keys
        return Problem("", "", wrong_value(None, detail))
    holder, field = field_at(model, within)
    if detail["type"] == "extra_forbidden":
        return Problem("", dotted(within), f"unknown key{nearest(str(within[-1]), holder.model_fields)}")
    return Problem("", dotted(within), wrong_value(field, detail))
