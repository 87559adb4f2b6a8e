"""The options of the MQTT sink, as Spark hands them over: text by name. Every error names the option and its value."""

import difflib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple


class SinkError(ValueError):
    """An option, a column or a row that the sink cannot do with; the text says which and why."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The options, with their defaults. `timeout` is in seconds."""

    host: str = "127.0.0.1"
    port: int = 0
    tls: bool = False
    ca: str = ""
    cert: str = ""
    key: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    password_file: str = ""
    password_env: str = ""
    client_id_prefix: str = "trunkline-sink"
    #: A template over columns. Without it, the column `topic` has each row's topic.
    topic: str = ""
    #: The column that is the payload; without it and `columns`, the column `payload` if there is one, else JSON.
    payload: str = ""
    #: The columns that the JSON has; all if there are none.
    columns: tuple[str, ...] = ()
    qos: int = 1
    retain: bool = False
    #: A template over columns that tells a row from all others of its batch, in place of its number.
    id: str = ""
    #: Whether what a topic must not hold is written %2B instead.
    escape: bool = False
    #: What becomes of a row that cannot be a message.
    invalid: Literal["fail", "skip"] = "fail"
    max_inflight: int = 256
    timeout: float = 30.0
    retries: int = 5
    #: Stands for the query in the number of each message.
    query: str = ""

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port or (8883 if self.tls else 1883)

    def secret(self) -> bytes | None:
        """The password. It is looked for where it is used, so that files and variables are those of the machine that
        connects.

        Raises:
            SinkError: there is no such file or variable.
        """
        if self.password_file:
            try:
                return Path(self.password_file).read_bytes().rstrip(b"\r\n")
            except OSError as error:
                raise SinkError(f"passwordFile {self.password_file}: {error.strerror}") from None
        if self.password_env:
            found = os.environ.get(self.password_env)
            if found is None:
                raise SinkError(f"passwordEnv {self.password_env}: there is no such environment variable")
            return found.encode()
        return self.password.encode() if self.password else None


class Option(NamedTuple):
    name: str
    parse: Callable[[str], Any]
    #: What it takes, in words.
    accepts: str


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError
    return text


def _flag(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _word(*words: str) -> Callable[[str], str]:
    return {word: word for word in words}.__getitem__


def _between(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        number = int(text)
        if not low <= number <= high:
            raise ValueError
        return number

    return parse


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise ValueError
    return names


def _duration(text: str) -> float:
    from trunkline.config.units import parse_duration

    seconds = parse_duration(text)
    if not seconds:
        raise ValueError
    return seconds


_TEXT: Final = (_text, "text")
_FILE: Final = (_text, "a file's path")
_FLAG: Final = (_flag, "true or false")

#: In the order of the fields of `Settings`.
OPTIONS: Final = (
    Option("host", _text, "a name or an address"),
    Option("port", _between(1, 65_535), "a port, 1 to 65535"),
    Option("tls", *_FLAG),
    Option("ca", *_FILE),
    Option("cert", *_FILE),
    Option("key", *_FILE),
    Option("username", *_TEXT),
    Option("password", *_TEXT),
    Option("passwordFile", *_FILE),
    Option("passwordEnv", _text, "the name of an environment variable"),
    Option("clientIdPrefix", *_TEXT),
    Option("topic", _text, "a topic, with {column} where a column's value belongs"),
    Option("payload", _text, "the name of a column"),
    Option("columns", _names, "names of columns with commas between"),
    Option("qos", _between(0, 1), "0 or 1"),
    Option("retain", *_FLAG),
    Option("id", _text, "text with {column} where a column's value belongs"),
    Option("escape", *_FLAG),
    Option("invalid", _word("fail", "skip"), "fail or skip"),
    Option("maxInflight", _between(1, 65_535), "a number of messages, 1 to 65535"),
    Option("timeout", _duration, 'a duration, more than 0, such as "30s"'),
    Option("retries", _between(0, 1_000_000), "a whole number, 0 or more"),
    Option("query", *_TEXT),
)
#: By name in small letters, which is how Spark may hand it over; with the field of `Settings`.
_BY_NAME: Final = {
    option.name.lower(): (option, field.name) for option, field in zip(OPTIONS, fields(Settings), strict=True)
}
#: Spark's own, which it hands over as well.
_OF_SPARK: Final = frozenset(("path", "checkpointlocation", "queryname", "outputmode", "__default__"))


def parse(options: Mapping[str, str]) -> Settings:
    """What the options say.

    Raises:
        SinkError: there is no such option, it has a value that it cannot have, or two of them exclude each other.
    """
    found: dict[str, Any] = {}
    for name, text in options.items():
        known = _BY_NAME.get(name.lower())
        if known is None:
            if name.lower() in _OF_SPARK:
                continue
            near = difflib.get_close_matches(name.lower(), _BY_NAME, 1)
            hint = f", perhaps {_BY_NAME[near[0]][0].name}?" if near else ""
            raise SinkError(f"the MQTT sink has no option {name}{hint}")
        option, attribute = known
        try:
            found[attribute] = option.parse(text)
        except (ValueError, KeyError):
            # a password is text in any case, so none is shown here
            raise SinkError(f"option {option.name}: expected {option.accepts}, not {text!r}") from None
    settings = Settings(**found)
    _check(settings)
    return settings


def _check(settings: Settings) -> None:
    passwords = [name for name in ("password", "password_file", "password_env") if getattr(settings, name)]
    if len(passwords) > 1:
        raise SinkError("give one of the options password, passwordFile and passwordEnv")
    if settings.payload and settings.columns:
        raise SinkError("give one of the options payload and columns")
    if not settings.tls and (settings.ca or settings.cert or settings.key):
        raise SinkError("the options ca, cert and key are of use with tls=true only")
    if settings.key and not settings.cert:
        raise SinkError("option key: it belongs to a certificate, which option cert names")
