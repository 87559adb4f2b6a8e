"""The options that pub, sub and rr share: how to connect, under the letters of Mosquitto's commands."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import unquote

import click

from trunkline.client.client import Client
from trunkline.client.retry import ExponentialBackoff
from trunkline.client.session_client import SessionClient
from trunkline.client.settings import ConnectionSettings
from trunkline.client.settings_sources import SCHEMES, Transport
from trunkline.config.errors import ConfigError
from trunkline.config.units import NEVER
from trunkline.management.client_commands.ending import Reports, end_by
from trunkline.management.client_commands.property_options import join_properties
from trunkline.management.command_line import BAD_USAGE, fail
from trunkline.management.meant import HintingCommand
from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.topics import validate_filter, validate_name
from trunkline.mqtt.versions import Version

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trunkline.client.block import BlockClient
    from trunkline.client.errors import ClientError
    from trunkline.config.errors import Problem
    from trunkline.management.client_commands.property_options import GivenProperties
    from trunkline.mqtt.packets import Connack

#: A port that means TLS when nothing else says so, as to Mosquitto's commands.
TLS_PORT: Final = 8883
_ENCRYPTED: Final[dict[str, Transport]] = {"tcp": "tls", "tls": "tls", "ws": "wss", "wss": "wss"}
#: Seconds that the server keeps the session of a command that was lost: enough to restart a server. Should the command
#: be killed, messages gather in it for no longer.
SESSION_EXPIRY: Final = 300
#: After a lost connection: somebody waits in front of a terminal.
RETRY: Final = ExponentialBackoff(largest=5.0)
#: Options that are keys of `ConnectionSettings` under the same name.
_KEYS: Final = (
    "host",
    "port",
    "username",
    "password",
    "password_file",
    "client_id",
    "keep_alive",
    "session_expiry",
    "version",
    "max_inflight",
    "connect_timeout",
    "ca_file",
    "certificate",
    "key",
    "key_password_file",
    "server_name",
)
_TLS_KEYS: Final = ("ca_file", "certificate", "key", "server_name")
#: Properties of CONNECT that are keys under another name.
_CONNECT_KEYS: Final = {
    "maximum_packet_size": "max_packet_size",
    "session_expiry_interval": "session_expiry",
    "topic_alias_maximum": "topic_aliases_in",
    "user_property": "user_properties",
}

_FILE: Final = click.Path(path_type=Path)
_OPTIONS: Final = (
    click.option("-L", "--url", metavar="URL", help="mqtt[s]|ws[s]://[USER[:PASSWORD]@]HOST[:PORT], or unix:///PATH."),
    click.option("--settings", "file", type=_FILE, metavar="FILE", help="Connection settings (TOML)."),
    click.option("-h", "--host", metavar="HOST", help="The server. [default: localhost]"),
    click.option("-p", "--port", type=int, metavar="PORT", help="Its port. [default: 1883, or 8883 with TLS]"),
    click.option("--unix", metavar="PATH", help="Connect to this Unix socket."),
    click.option("-u", "--username", metavar="NAME", help="User name."),
    click.option("-P", "--pw", "password", metavar="PASSWORD", help="Password; others on this machine can see it."),
    click.option("--password-file", type=_FILE, metavar="FILE", help="File with the password."),
    click.option("-i", "--id", "client_id", metavar="ID", help="Client id. [default: the server chooses one]"),
    click.option("-I", "--id-prefix", metavar="PREFIX", help="Client id: this and the process id."),
    click.option("-k", "--keepalive", "keep_alive", metavar="SECONDS", help="Keep alive. [default: 60]"),
    click.option(
        "-c", "--disable-clean-session", "resume", is_flag=True, help="Resume the session of -i, and leave it there."
    ),
    click.option(
        "-x",
        "--session-expiry-interval",
        "session_expiry",
        metavar="SECONDS",
        help="How long the server keeps the session afterwards; -1: for ever. [default with -c: -1]",
    ),
    click.option("-V", "--protocol-version", "version", metavar="VERSION", help="5, 311 or 31. [default: 5]"),
    click.option("-M", "max_inflight", type=int, metavar="COUNT", help="Messages sent and not acknowledged, at most."),
    click.option("--connect-timeout", metavar="SECONDS", help="Limit for connecting. [default: 10]"),
    click.option("--tls", "--tls-use-os-certs", is_flag=True, help="Use TLS, with the system's authorities."),
    click.option("--cafile", "ca_file", type=_FILE, metavar="FILE", help="Authorities to trust (PEM); means TLS."),
    click.option("--cert", "certificate", type=_FILE, metavar="FILE", help="The client's certificate (PEM)."),
    click.option("--key", type=_FILE, metavar="FILE", help="Its private key (PEM)."),
    click.option("--key-password-file", type=_FILE, metavar="FILE", help="File with the key's password."),
    click.option("--server-name", metavar="NAME", help="Name in the server's certificate. [default: the host]"),
    click.option("--insecure", is_flag=True, help="Accept a trusted certificate of another server: for tests."),
    click.option("--no-verify", is_flag=True, help="Accept any certificate: for tests."),
    click.option("--will-topic", metavar="TOPIC", help="The server publishes a will there when this client is lost."),
    click.option("--will-payload", metavar="TEXT", help="Its payload."),
    click.option("--will-qos", type=click.IntRange(0, 2), help="Its QoS."),
    click.option("--will-retain", is_flag=True, help="Retain it."),
    click.option("-d", "--debug", is_flag=True, help="Report connections and subscriptions on standard error."),
    click.option("--quiet", is_flag=True, help="Print neither errors nor warnings."),
)


class ClientCommand(HintingCommand):
    """-h is the host, and -D takes as many words as it needs."""

    hints: ClassVar[Mapping[str, str]] = {
        "Got unexpected extra argument": "topics and messages are options: -t TOPIC, -m TEXT"
    }

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.context_settings = {**self.context_settings, "help_option_names": ["--help"]}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        with_value = frozenset(
            word
            for option in self.params
            if isinstance(option, click.Option) and not option.is_flag and not option.count
            for word in option.opts
        )
        return super().parse_args(ctx, join_properties(args, with_value))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # before there is a client: while a payload is read, say
            end_by(signal.SIGINT)


def connection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def read_topic(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        _check(validate_name, value, context, parameter)
    return value


def read_filters(context: click.Context, parameter: click.Parameter, values: Sequence[str]) -> Sequence[str]:
    for value in values:
        _check(validate_filter, value, context, parameter)
    return values


def _check(validate: Callable[[str], object], value: str, context: click.Context, parameter: click.Parameter) -> None:
    try:
        validate(value)
    except ProtocolError as error:
        raise click.BadParameter(str(error), context, parameter) from None


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """What the shared options say."""

    settings: ConnectionSettings
    #: The session of before is resumed, and none is ended.
    keeps_session: bool
    #: The topic in a URL such as mqtt://HOST/TOPIC.
    topic: str | None
    properties: GivenProperties
    reports: Reports
    quiet: bool

    def client(self) -> BlockClient:
        """One that survives lost connections, if the server keeps the session for that long."""
        settings, reports = self.settings, self.reports
        if settings.session_expiry == 0 or (settings.version is not Version.V5 and settings.clean_start):
            return Client(settings)
        was_lost = False

        def connected(connack: Connack) -> None:
            if was_lost:
                reports.warn(f"connected to {settings.url} again")

        def disconnected(error: ClientError) -> None:
            nonlocal was_lost
            was_lost = True
            if error.transient:
                reports.warn(f"{error}; connecting again")

        return SessionClient(
            settings, retry=RETRY, keep_session=self.keeps_session, on_connected=connected, on_disconnected=disconnected
        )

    def opened(self, client: BlockClient) -> None:
        """There is a connection."""
        present = ", which has the session" if client.connack.session_present else ""
        self.reports.debug(f"connected to {self.settings.url} as {client.client_id}{present}")

    async def close(self, client: BlockClient) -> None:
        """With the properties that the user has given."""
        if ending := self.properties["disconnect"]:
            await client.disconnect(properties=ending)


def connecting(
    options: dict[str, Any], properties: GivenProperties, *, survives: bool = True, **defaults: Any
) -> ConnectionOptions:
    """From the values of `connection_options`. Ends the command when they cannot be used. A command that `survives` a
    lost connection asks for a session, unless the user does."""
    keywords = {**defaults, **{key: options[key] for key in _KEYS if options[key] is not None}}
    keywords |= {_CONNECT_KEYS.get(name, name): value for name, value in properties["connect"].items()}
    url, topic = _split_topic(options["url"])
    _own_forms(keywords, options, properties)
    try:
        settings = ConnectionSettings.gather(file=options["file"], environ=os.environ, url=url, **keywords)
        settings = _with_tls(settings, options)
    except ConfigError as error:
        fail(map(_in_words, error.problems), BAD_USAGE)
    resumes = not settings.clean_start
    if resumes and not settings.client_id:
        raise click.UsageError("-c needs a client id: -i")
    if resumes and settings.version is Version.V5 and settings.session_expiry is None:
        settings = settings.changed(session_expiry=NEVER)
    if settings.version is not Version.V5 and any(properties.values()):
        raise click.UsageError(f"-D needs MQTT 5.0, not {settings.version}")
    reports = Reports(quiet=options["quiet"], debug=options["debug"])
    keeps = resumes or settings.session_expiry is not None
    if settings.version is Version.V5 and not keeps:
        settings = settings.changed(session_expiry=SESSION_EXPIRY if survives else 0)
    return ConnectionOptions(settings, keeps, topic, properties, reports, options["quiet"])


def _own_forms(keywords: dict[str, Any], options: dict[str, Any], properties: GivenProperties) -> None:
    """What the settings have in another form than the options."""
    if options["unix"] is not None:
        keywords |= {"transport": "unix", "path": options["unix"]}
    if "password" in keywords and "password_file" not in keywords:
        keywords["password_file"] = None
    elif "password_file" in keywords and "password" not in keywords:
        keywords["password"] = None
    if "version" in keywords:
        digits = str(keywords["version"]).removeprefix("mqttv")
        keywords["version"] = {"31": "3.1", "311": "3.1.1"}.get(digits, digits)
    if options["id_prefix"] is not None:
        if options["client_id"] is not None:
            raise click.UsageError("-i and -I exclude each other")
        keywords["client_id"] = f"{options['id_prefix']}{os.getpid()}"
    if keywords.get("version") == "3.1":  # which needs a client id
        keywords.setdefault("client_id", f"trunkline-{token_hex(4)}")
    if keywords.get("session_expiry") in ("-1", "∞"):
        keywords["session_expiry"] = NEVER
    for name in ("request_problem_information", "request_response_information"):
        if name in keywords:
            keywords[name] = bool(keywords[name])
    if options["resume"]:
        keywords["clean_start"] = False
    for option, key in (("insecure", "verify_name"), ("no_verify", "verify")):
        if options[option]:
            keywords[key] = False
    will = {key: options[f"will_{key}"] for key in ("topic", "payload", "qos", "retain") if options[f"will_{key}"]}
    given: dict[str, Any] = {**properties["will"]}
    if will or given:
        if "topic" not in will:
            raise click.UsageError("a will needs --will-topic")
        delay = given.pop("will_delay_interval", 0)
        keywords["will"] = {**will, "delay": delay, "properties": given}


def _with_tls(settings: ConnectionSettings, options: dict[str, Any]) -> ConnectionSettings:
    asked = [key for key in (*_TLS_KEYS, "tls", "insecure", "no_verify") if options[key]]
    if settings.is_encrypted or not (asked or (settings.transport == "tcp" and settings.port == TLS_PORT)):
        return settings
    if settings.transport not in _ENCRYPTED:
        raise click.UsageError("a Unix socket has no TLS")
    return settings.changed(transport=_ENCRYPTED[settings.transport])


def _split_topic(url: str | None) -> tuple[str | None, str | None]:
    """mqtt://HOST/TOPIC, as Mosquitto's commands take it."""
    scheme, separator, rest = (url or "").partition("://")
    address, mark, query = rest.partition("?")
    address, _, topic = address.partition("/")
    if not topic or SCHEMES.get(scheme) not in ("tcp", "tls"):
        return url, None
    return f"{scheme}{separator}{address}{mark}{query}", unquote(topic)


def _in_words(problem: Problem) -> str:
    """With the option instead of the key."""
    source, key = problem.source, problem.key
    if source == "URL":
        source, key = "--url", "" if key == "url" else key
    elif not source and key:
        name = key.replace(".", "_")
        options = {option.name: "/".join(option.opts) for option in click.get_current_context().command.params}
        own = next((own for own, setting in _CONNECT_KEYS.items() if setting == key), key).replace("_", "-")
        key = options.get(name, f"-D connect {own}")
    return ": ".join(part for part in (source, key, problem.text) if part)
