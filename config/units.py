"""The types of values in a configuration: what each accepts, and how it is converted."""

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias, Union, cast, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, SecretStr, Strict
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from trunkline.config.addresses import split_listener_url
from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.strings import decode_string, encode_string
from trunkline.mqtt.topics import validate_filter, validate_name

#: The session expiry interval that means "never" in MQTT.
NEVER = 0xFFFF_FFFF

_DURATIONS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_SIZES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_PERIODS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_FLAGS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*")
_RATE = re.compile(r"([^/]+?)\s*(?:/\s*([a-z]*)\s*)?(?:burst\s+(.+)|(shaped))?", re.IGNORECASE)


class Accepts(NamedTuple):
    """Describes the values that a key accepts. The values may be written as plain text in every source."""

    text: str


def parse_duration(value: object) -> float:
    """Seconds: from a number, or from text such as "15s", "1.5h" or "200ms"."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _finite(value)
    if isinstance(value, str) and (found := _QUANTITY.fullmatch(value)):
        factor = _DURATIONS.get(found[2].lower())
        if factor is not None:
            return _finite(float(found[1]) * factor)
    raise ValueError("not a duration")


def _finite(seconds: float) -> float:
    if not 0 <= seconds < 1e12:
        raise ValueError("not a duration")
    return float(seconds)


def parse_whole_seconds(value: object) -> int:
    """A duration that MQTT counts in whole seconds."""
    seconds = parse_duration(value)
    if seconds != int(seconds):
        raise ValueError("not a whole number of seconds")
    return int(seconds)


def parse_expiry(value: object) -> int:
    """Whole seconds, or "never"."""
    return NEVER if value == "never" else parse_whole_seconds(value)


def parse_size(value: object) -> int:
    """Bytes: from a whole number, or from text such as "64KiB" or "1MB"."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and (found := _QUANTITY.fullmatch(value)):
        factor = _SIZES.get(found[2].lower())
        if factor is not None and (size := float(found[1]) * factor) == int(size):
            return int(size)
    raise ValueError("not a size")


class Rate(NamedTuple):
    """Events per second, and how many may come at once."""

    per_second: float
    burst: float


def parse_rate(value: object) -> Rate | None:
    """A number per second, or text such as "100/s", "5MB/s" or "1000/m burst 200"; None for 0, which is no limit.
    Without a burst, as many may come at once as come in a second; "shaped" lets them come one by one."""
    if isinstance(value, str) and not value.strip():
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if isinstance(value, str) and (found := _RATE.fullmatch(value.strip())):
        period = _PERIODS.get((found[2] or "").lower())
        if period is not None:
            with suppress(ValueError):
                rate = parse_size(found[1]) / period
                burst = max(1.0, rate) if found[3] is None else float(parse_size(found[3]))
                if rate == 0:
                    return None
                if found[4]:
                    return Rate(rate, 1.0)
                if burst >= 1:
                    return Rate(rate, burst)
    raise ValueError("not a rate")


class Mark(NamedTuple):
    """An amount, or a share of what there is."""

    amount: float
    is_share: bool


def parse_mark(value: object) -> Mark:
    """A share such as "80%", or a size."""
    if isinstance(value, str) and (found := re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", value)):
        if float(found[1]) <= 100:
            return Mark(float(found[1]) / 100, True)
        raise ValueError(f'"{value}": a share is 100% at most')
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value)
    return Mark(parse_size(value), False)


#: The most shards of a node: a part of all client ids, of which there are 256, cannot be divided.
MAX_WORKERS: Final = 256


def parse_workers(value: object) -> int | Literal["auto"]:
    """A number of processes, or "auto"."""
    if value == "auto":
        return "auto"
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_WORKERS:
        return value
    raise ValueError("not a number of workers")


def check_mark(value: object) -> str:
    parse_mark(value)
    return str(value)


def check_rate(value: object) -> str:
    parse_rate(value)
    return str(value)


def parse_path(value: object) -> Path | None:
    """A file's path; empty text means no file."""
    if value is None or value == "":
        return None
    if isinstance(value, str | Path) and "\0" not in str(value):
        return Path(value)
    raise ValueError("not a path")


def parse_folder(value: object) -> Path:
    """A folder's path."""
    path = parse_path(value)
    if path is None:
        raise ValueError("not a path")
    return path


def parse_network(value: object) -> IPv4Network | IPv6Network:
    """An address or a CIDR block; bits past the prefix are dropped."""
    if isinstance(value, IPv4Network | IPv6Network):
        return value
    if isinstance(value, str):
        with suppress(ValueError):
            return ip_network(value, strict=False)
    raise ValueError("not an address or CIDR block")


def parse_access_rule(value: object) -> tuple[bool, IPv4Network | IPv6Network | None]:
    """Whether the rule allows, and whom; None stands for all."""
    verb, _, whom = value.strip().partition(" ") if isinstance(value, str) else ("", "", "")
    if verb not in ("allow", "deny"):
        raise ValueError("not an access rule")
    return verb == "allow", None if whom.strip() == "all" else parse_network(whom.strip())


def check_access_rule(value: object) -> object:
    parse_access_rule(value)
    return value


def check_mode(value: object) -> object:
    """The permissions of a file, as chmod(1) takes them."""
    if not (isinstance(value, str) and re.fullmatch("0?[0-7]{3}", value)):
        raise ValueError("not a file mode")
    return value


_LISTENER_URL: Final = (
    '"tcp://HOST:PORT", tls, ws, wss and nats likewise, "unix:///PATH"; '
    "an IPv6 address in brackets, port 0 for any free port"
)


def check_listener_url(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("not a listener URL")  # noqa: TRY004 - pydantic takes a TypeError for a fault of ours
    try:
        split_listener_url(value)
    except ValueError as error:
        raise ValueError(f'"{value}": {error}; accepted is {_LISTENER_URL}') from None
    return value


def check_zone_name(value: object) -> str:
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_-]+", value):
        return value
    raise ValueError("the name of a zone has letters, digits, _ and - only")


def check_topic_filter(value: object) -> str:
    if isinstance(value, str):
        try:
            validate_filter(value)
        except ProtocolError as error:
            raise ValueError(str(error)) from None
        return value
    raise ValueError("not a topic filter")


def check_mountpoint(value: object) -> str:
    if isinstance(value, str):
        if not value:
            return value
        with suppress(ProtocolError):
            validate_name(value)
            if value.endswith("/") and not value.startswith("$"):
                return value
    raise ValueError("not a mountpoint")


def check_origin(value: object) -> str:
    """The origin of a web page, as browsers send it."""
    if isinstance(value, str) and (value == "null" or re.fullmatch(r"[A-Za-z][\w+.-]*://[^/?#\s]+", value)):
        return value
    raise ValueError("not an origin")


def check_wire_text(value: object) -> str:
    """Text that goes to clients."""
    if isinstance(value, str):
        try:
            decode_string(encode_string(value)[2:])
        except (ProtocolError, ValueError) as error:
            raise ValueError(f"{shown(value)}: {error}") from None
        return value
    raise ValueError("not text")


def _parsed(parse: Callable[[object], object], accepts: str) -> tuple[Accepts, BeforeValidator]:
    return Accepts(accepts), BeforeValidator(parse)


def _parsed_if_set(parse: Callable[[object], object], accepts: str) -> tuple[Accepts, BeforeValidator]:
    return _parsed(lambda value: None if value is None else parse(value), accepts)


Whole = Annotated[int, Strict()]
Number = Annotated[float, Strict()]
Flag = Annotated[bool, Strict()]
OptionalFlag = Annotated[bool | None, Strict()]
Text = Annotated[str, Accepts("text")]
OptionalNames = Annotated[tuple[Text, ...] | None, Accepts("a list of names")]
WireText = Annotated[str, *_parsed(check_wire_text, "printable text")]
#: Text that is shown as stars wherever settings are shown; `get_secret_value()` is the text.
Secret = Annotated[SecretStr, Accepts("text")]
Duration = Annotated[float, *_parsed(parse_duration, 'seconds, or text such as "15s", "2h"')]
OptionalDuration = Annotated[float | None, *_parsed_if_set(parse_duration, 'seconds, or text such as "15s", "2h"')]
Durability: TypeAlias = Literal["fsync", "os", "memory"]
OptionalDurability = Annotated[Durability | None, Accepts('"fsync" or "os" or "memory"')]
WholeSeconds = Annotated[int, *_parsed(parse_whole_seconds, 'whole seconds, or text such as "60s", "2h"')]
OptionalWholeSeconds = Annotated[
    int | None, *_parsed_if_set(parse_whole_seconds, 'whole seconds, or text such as "60s", "2h"')
]
Expiry = Annotated[int, *_parsed(parse_expiry, 'whole seconds, text such as "2h" or "7d", or "never"')]
Size = Annotated[int, *_parsed(parse_size, 'bytes, or text such as "64KiB", "1MiB"')]
OptionalSize = Annotated[int | None, *_parsed_if_set(parse_size, 'bytes, or text such as "64KiB", "1MiB"')]
_RATE_WORDS: Final = 'a number per second, or text such as "100/s", "5MB/s", "1000/m burst 200", "10/s shaped"'
Over: TypeAlias = Literal["pause", "refuse"]
OptionalOver = Annotated[Over | None, Accepts('"pause" or "refuse"')]
#: Kept as text; `parse_rate` reads it.
RateText = Annotated[str, *_parsed(check_rate, _RATE_WORDS)]
OptionalRateText = Annotated[str | None, *_parsed_if_set(check_rate, _RATE_WORDS)]
#: Kept as text; `parse_mark` reads it.
MarkText = Annotated[str, *_parsed(check_mark, 'a share such as "80%", bytes, or text such as "2GiB"')]
FileMarkText = Annotated[str, *_parsed(check_mark, 'a share such as "90%", or a number')]
Workers = Annotated[int | Literal["auto"], *_parsed(parse_workers, f'a number from 1 to {MAX_WORKERS}, or "auto"')]
OptionalPath = Annotated[Path | None, *_parsed(parse_path, "a file's path")]
#: A folder, which is created when it is missing.
Folder = Annotated[Path, *_parsed(parse_folder, "a folder's path")]
TopicFilter = Annotated[str, *_parsed(check_topic_filter, "a topic filter")]
Network = Annotated[
    IPv4Network | IPv6Network, *_parsed(parse_network, 'an address or CIDR block such as "10.0.0.0/8", "::1"')
]
AccessRule = Annotated[
    str, *_parsed(check_access_rule, '"allow ADDRESS" or "deny ADDRESS": an address, a CIDR block or "all"')
]
MountpointText = Annotated[
    str, *_parsed(check_mountpoint, 'a topic that ends with "/", without wildcards, not beginning with "$"')
]
Origin = Annotated[
    str,
    *_parsed(check_origin, 'an origin such as "https://app.example.com" or "http://localhost:8000", without a path'),
]
ZoneName = Annotated[str, *_parsed(check_zone_name, "a name")]
FileMode = Annotated[str, *_parsed(check_mode, 'three octal digits such as "660"')]
ListenerUrl = Annotated[
    str,
    *_parsed(check_listener_url, _LISTENER_URL),
]


def accepted(field: FieldInfo, *, entry: bool = False) -> str:
    """The values that a key takes, or those of an entry of its list, in words."""
    annotation = without_none(field.annotation)
    if get_origin(annotation) is tuple and not any(isinstance(each, Accepts) for each in field.metadata):
        if entry:
            return _each(annotation)
        return f"a list{_limits(field.metadata, 'entries')}, each {_each(annotation)}"
    kind = _kind(annotation, field.metadata)
    return kind + _limits(field.metadata, "characters" if kind in ("text", "printable text") else "")


def without_none(annotation: Any) -> Any:
    """The type of an optional value."""
    kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
    return kinds[0] if get_origin(annotation) in (UnionType, Union) and len(kinds) == 1 else annotation


def _kind(annotation: Any, metadata: list[Any]) -> str:
    for entry in metadata:
        if isinstance(entry, Accepts):
            return entry.text
    arguments = get_args(annotation)
    origin = get_origin(annotation)
    if origin is Literal:
        return " or ".join(map(json.dumps, arguments))
    if origin in (tuple, list):
        return f"a list, each {_each(annotation)}"
    if origin in (Mapping, dict):
        inner, limits = _unwrapped(arguments[1])
        limits = [limit for entry in limits for limit in getattr(entry, "metadata", [entry])]
        key = _kind(*_unwrapped(arguments[0]))
        return f"a table, each key {key}, each value {_kind(inner, limits)}{_limits(limits)}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"a table with {', '.join(annotation.model_fields)}"
    return _WORDS.get(cast("object", annotation), "a number")


_WORDS: Final[dict[object, str]] = {str: "text", bytes: "bytes", bool: "true or false", int: "a whole number"}


def _each(annotation: object) -> str:
    return _kind(*_unwrapped(get_args(annotation)[0]))


def _unwrapped(annotation: Any) -> tuple[object, list[Any]]:
    if get_origin(annotation) is not Annotated:
        return annotation, []
    return annotation.__origin__, list(annotation.__metadata__)


def _limits(metadata: list[Any], things: str = "characters") -> str:
    least = next((entry.ge for entry in metadata if hasattr(entry, "ge")), None)
    most = next((entry.le for entry in metadata if hasattr(entry, "le")), None)
    over = next((entry.gt for entry in metadata if hasattr(entry, "gt")), None)
    if least is not None and most is not None:
        return f", {least} to {most}"
    words = [] if over is None else [f"more than {over}"]
    words += [] if least is None else [f"{least} or more"]
    words += [] if most is None else [f"{most} at most"]
    if words:
        return "".join(f", {each}" for each in words)
    if not things:  # of another form than text: it says what is accepted
        return ""
    shortest = next((entry.min_length for entry in metadata if hasattr(entry, "min_length")), None)
    longest = next((entry.max_length for entry in metadata if hasattr(entry, "max_length")), None)
    if longest is None:
        return "" if shortest is None else f" of {shortest} or more {things}"
    return f" of {shortest or 0} to {longest} {things}"


def own_words(detail: ErrorDetails) -> str:
    """The words of a validator about a wrong value; empty for those that only say that it is "not a …"."""
    if detail["type"] not in ("value_error", "assertion_error"):
        return ""
    words = str(detail.get("ctx", {}).get("error", detail["msg"]))
    return "" if words.startswith("not a") else words


def from_text(field: FieldInfo, text: str) -> object:
    """Parses a variable's text as a value for a key. Text that cannot be parsed is returned as it is and fails
    validation later. A list is a TOML array or words separated by commas; a table is an inline TOML table.
    """
    annotation = without_none(field.annotation)
    origin = get_origin(annotation)
    if origin is tuple or origin is Mapping:
        if text.lstrip().startswith(("[", "{")):
            try:
                return tomllib.loads(f"value = {text}")["value"]
            except (ValueError, RecursionError):
                return text
        return [word.strip() for word in text.split(",") if word.strip()] if origin is tuple else text
    kinds = set(map(type, field.metadata))
    if (Accepts in kinds and Strict not in kinds) or origin is Literal:  # what is strict takes no text
        return text
    if bool in (annotation, *get_args(annotation)):
        return _FLAGS.get(text.strip().lower(), text)
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def shown(value: object) -> str:
    """A value as the file would hold it, cut when it is long."""
    from trunkline.config.toml_text import toml_text  # only needed to explain a mistake

    text = toml_text(value)
    return text if len(text) <= 80 else text[:77] + "..."
