"""Where settings of a connection come from: a URL, the environment, a file. Each value keeps its source, which errors
name."""

import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from pydantic import BaseModel

from trunkline.config.errors import Problem
from trunkline.config.fields import based
from trunkline.config.files import read_text
from trunkline.config.key_path import nearest
from trunkline.config.units import from_text

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

#: Variables of this form set a key: TRUNKLINE_MQTT_HOST.
PREFIX: Final = "TRUNKLINE_MQTT_"
#: Variables of this form are the broker's.
BROKER_PREFIX: Final = "TRUNKLINE_MQTT__"
URL_VARIABLE: Final = f"{PREFIX}URL"

Transport = Literal["tcp", "tls", "ws", "wss", "unix"]

#: The scheme of a URL for each transport; and other names of schemes.
SCHEMES: Final[Mapping[str, Transport]] = {
    "mqtt": "tcp",
    "mqtts": "tls",
    "ws": "ws",
    "wss": "wss",
    "unix": "unix",
    "tcp": "tcp",
    "tls": "tls",
    "ssl": "tls",
}
#: Bytes of a settings file or of a password file.
MAX_FILE: Final = 1_048_576

#: Keys that a URL cannot have in its query: it has another place for them, or none because URLs are shown.
_NOT_IN_QUERY: Final = ("transport", "host", "port", "path", "username", "password", "will")
_FORM: Final = "the form is mqtt[s]|ws[s]://[USER[:PASSWORD]@]HOST[:PORT][/PATH][?KEY=VALUE&…], or unix:///PATH"
#: What stands behind the host may be the rest of a password.
_RESERVED: Final = "in a user name or password, % / ? # and @ are written %25 %2F %3F %23 %40"
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,15})://")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


class SettingsSources:
    """Values by key, where each came from, and what is wrong with the sources themselves."""

    def __init__(self, model: type[BaseModel]) -> None:
        self._fields: Mapping[str, FieldInfo] = model.model_fields
        self.values: dict[str, Any] = {}
        self.origin: dict[str, str] = {}
        self.problems: list[Problem] = []

    def take(self, name: str, value: object, source: str) -> None:
        self.values[name], self.origin[name] = value, source

    def take_file(self, path: Path) -> None:
        source = str(path)
        try:
            table = tomllib.loads(read_text(path, MAX_FILE))
        except OSError as error:
            self._complain(source, f"cannot be read: {error.strerror or error}")
        except UnicodeDecodeError:
            self._complain(source, "is not UTF-8 text")
        except (ValueError, RecursionError) as error:
            self._complain(source, f"is not TOML: {error}")
        else:
            if "url" in table:
                self.take_url(table.pop("url"), source)
            for name, value in table.items():
                field = self._fields.get(name)
                self.take(name, value if field is None else based(field.annotation, value, path.parent), source)

    def take_environment(self, environ: Mapping[str, str]) -> None:
        if URL_VARIABLE in environ:
            self.take_url(environ[URL_VARIABLE], f"variable {URL_VARIABLE}")
        for name, text in environ.items():
            if name.startswith(BROKER_PREFIX):
                self._check_variable_of_the_broker(name)
            elif name.startswith(PREFIX) and name != URL_VARIABLE:
                self._take_variable(name, text)

    def _take_variable(self, name: str, text: str) -> None:
        source, key = f"variable {name}", name.removeprefix(PREFIX).lower()
        if key not in self._fields or key == "will":
            known = nearest(name, [URL_VARIABLE, *(PREFIX + each.upper() for each in self._fields if each != "will")])
            self._complain(source, f"sets nothing{known}")
        elif os.fsencode(text).decode(errors="replace") != text:
            self._complain(source, "is not UTF-8 text")
        else:
            self.take(key, from_text(self._fields[key], text), source)

    def _check_variable_of_the_broker(self, name: str) -> None:
        """One underscore too many makes a variable of the broker, which does not have the keys of the client."""
        key = name.removeprefix(BROKER_PREFIX)
        if key == "URL" or key.lower() in self._fields:
            from trunkline.config.mqtt_settings import MqttSettings  # seldom needed

            if key.lower() not in MqttSettings.model_fields:
                self._complain(f"variable {name}", f"sets nothing; did you mean {PREFIX}{key}?")

    def take_url(self, url: object, source: str) -> None:
        try:
            values = self._split(url)
        except ValueError as error:
            self.problems.append(Problem(source, "url", str(error)))
        else:
            for name, value in values.items():
                self.take(name, value, source)

    def _split(self, url: object) -> dict[str, object]:
        """The keys that a URL sets.

        Raises:
            ValueError: this is not a URL of a server. The error shows only parts that cannot be those of a password.
        """
        if not isinstance(url, str) or (scheme := _SCHEME.match(url)) is None:
            raise ValueError(f"has no scheme: {_FORM}")
        transport = SCHEMES.get(scheme[1].lower())
        if transport is None:
            raise ValueError(f"{scheme[1]} is not a scheme{nearest(scheme[1].lower(), SCHEMES)}: {_FORM}")
        if any(char <= " " or char == "\x7f" for char in url):
            raise ValueError("has a space or a control character, which is written as %20 and so on")
        if _BAD_ESCAPE.search(url):
            raise ValueError(f"has a % without two hexadecimal digits behind it: {_RESERVED}")
        try:
            parts = urlsplit(url)
        except ValueError:
            raise ValueError(f"its host is invalid (an IPv6 address stands in brackets): {_FORM}") from None
        values = {"transport": transport, **_authority(parts, transport), **self._query(parts)}
        if parts.fragment or "#" in url:
            raise ValueError(f"has a #: {_RESERVED}")
        return values

    def _query(self, parts: SplitResult) -> dict[str, object]:
        values: dict[str, object] = {}
        # of user:12?secret@host, this is a part of the password
        is_secret = "@" in parts.query and "@" not in parts.netloc
        try:
            pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query), errors="strict")
        except UnicodeDecodeError:
            raise ValueError("its query is not UTF-8 text") from None
        except ValueError:
            raise ValueError("its query is not of the form ?KEY=VALUE&KEY=VALUE") from None
        for name, text in pairs:
            if name not in self._fields and is_secret:
                raise ValueError(f"unknown key in its query: {_RESERVED}")
            if name not in self._fields:
                shown = name if name.isidentifier() else json.dumps(name, ensure_ascii=False)
                raise ValueError(f"{shown} in its query: unknown key{nearest(name, self._fields)}")
            if name in _NOT_IN_QUERY:
                raise ValueError(f"{name} cannot stand in its query")
            if name in values:
                raise ValueError(f"{name} stands twice in its query")
            values[name] = from_text(self._fields[name], text)
        return values

    def _complain(self, source: str, text: str) -> None:
        self.problems.append(Problem(source, "", text))


def _authority(parts: SplitResult, transport: Transport) -> dict[str, object]:
    """All but scheme and query.

    Raises:
        ValueError: as `SettingsSources._split`.
    """
    try:
        port = parts.port
    except ValueError:
        raise ValueError(f"its port is not a number from 1 to 65535 ({_RESERVED})") from None
    if "@" in parts.path and "@" not in parts.netloc:
        raise ValueError(f"has an @ behind its host: {_RESERVED}")
    user, password, host = (_decoded(part) for part in (parts.username, parts.password, parts.hostname))
    path = parts.path.rstrip("/")
    if transport == "unix":
        path = _decoded(parts.path) or ""
        if host or port is not None or not path.startswith("/"):
            raise ValueError("a Unix socket has a path and no host: unix:///PATH")
    elif not host:
        raise ValueError(f"has no host: {_FORM}")
    elif path and transport in ("tcp", "tls"):
        raise ValueError(f"{parts.scheme} has no path ({_RESERVED})")
    found = {"host": host, "username": user, "password": password}
    return {"port": port, "path": path, **{name: value for name, value in found.items() if value is not None}}


def _decoded(part: str | None) -> str | None:
    try:
        return None if part is None else unquote(part, errors="strict")
    except UnicodeDecodeError:
        raise ValueError("a part of it is not UTF-8 text where % is decoded") from None
