"""Options as text, as Spark hands them over, and what they mean. Every error names the option and its value."""

import difflib
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple

from trunkline.analytics.source.offsets import OffsetError, parse
from trunkline.analytics.source.settings import Position, Settings

#: The two ways of reading.
Mode = Literal["batch", "stream"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: Begins the options that are handed to the file system.
STORAGE: Final = "fs."


class OptionError(ValueError):
    """An option that is unknown, missing, or has a value that it cannot have."""


class Option(NamedTuple):
    name: str
    #: Which attribute of `Settings` it becomes.
    setting: str
    parse: Callable[[str], Any]
    #: What it takes, in words.
    accepts: str
    #: Where it means nothing to the other.
    only: Mode | None = None


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError
    return text


def _one_of(*words: str) -> tuple[Callable[[str], str], str]:
    def parse_word(text: str) -> str:
        if text.lower() not in words:
            raise ValueError
        return text.lower()

    return parse_word, " or ".join(words)


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError
    return text.lower() == "true"


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise ValueError
    return names


def _node_names(text: str) -> frozenset[str]:
    return frozenset(_names(text))


def _kinds(text: str) -> tuple[str, ...]:
    from trunkline.events.schema import OWN_KINDS
    from trunkline.hooks.points import POINTS

    known = {kind.name for kind in OWN_KINDS} | {point.name for point in POINTS}
    names = _names(text)
    for name in names:
        group = name.removesuffix("*")
        if name in known or (group != name and any(one.startswith(group) for one in known)):
            continue
        near = difflib.get_close_matches(name, known, 1)
        raise OptionError(f"there is no kind {name!r}" + (f", perhaps {near[0]!r}?" if near else ""))
    return names


def _time(text: str) -> int:
    moment = datetime.fromisoformat(text.strip())
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    span = moment - _EPOCH
    return (span.days * 86_400 + span.seconds) * 1_000_000 + span.microseconds


def _position(text: str) -> Position:
    word = text.strip().lower()
    if word == "earliest":
        return "earliest"
    if word == "latest":
        return "latest"
    try:
        return parse(text)
    except OffsetError as error:
        raise OptionError(str(error)) from None


def _count(text: str) -> int:
    if not re.fullmatch(r"[0-9]+", text.strip()) or int(text) == 0:
        raise ValueError
    return int(text)


def _size(text: str) -> int:
    from trunkline.config.units import parse_size

    size = parse_size(text)
    if size == 0:
        raise ValueError
    return size


def _duration(text: str) -> float:
    from trunkline.config.units import parse_duration

    return parse_duration(text)


def _consumer(text: str) -> str:
    from trunkline.events.positions import is_name

    if not is_name(text):
        raise ValueError
    return text


_COUNT = (_count, "a whole number, 1 or more")
_SIZE = (_size, 'bytes, 1 or more, or text such as "64MiB"')
_DURATION = (_duration, 'seconds, or text such as "500ms", "10s"')
_FLAG = (_flag, "true or false")
_TIME = (_time, 'a time such as "2026-03-01T12:00:00Z", UTC unless it says otherwise')
_POLICY = _one_of("fail", "skip")
_POSITION = (_position, 'earliest, latest, or JSON such as {"n1@1763739192123": 5000}')

OPTIONS: Final = (
    Option("path", "path", _text, "a directory, or a URI such as s3://bucket/events"),
    Option("nodes", "nodes", _node_names, "names of nodes, or node keys, with commas between"),
    Option("kinds", "kinds", _kinds, 'kinds of events with commas between; "client.*" stands for all that begin so'),
    Option("since", "since", *_TIME),
    Option("until", "until", *_TIME),
    Option("startingOffsets", "starting", *_POSITION),
    Option("endingOffsets", "ending", *_POSITION, only="batch"),
    Option("onCorrupt", "on_corrupt", *_POLICY),
    Option("onLoss", "on_loss", *_POLICY),
    Option("verify", "verify", *_FLAG),
    Option("maxRowsPerPartition", "rows_per_partition", *_COUNT),
    Option("maxBytesPerPartition", "bytes_per_partition", *_SIZE),
    Option("maxRowsPerTrigger", "rows_per_trigger", *_COUNT, only="stream"),
    Option("maxBytesPerTrigger", "bytes_per_trigger", *_SIZE, only="stream"),
    Option("alignEventTime", "align", *_FLAG, only="stream"),
    Option("alignWithin", "align_within", *_DURATION, only="stream"),
    Option("maxWait", "max_wait", *_DURATION, only="stream"),
    Option(
        "consumer",
        "consumer",
        _consumer,
        "1 to 100 letters, digits, dots, dashes and underscores, no dot or dash in front",
        only="stream",
    ),
    Option("pushFilters", "push_filters", *_FLAG, only="batch"),
)
_BY_NAME: Final = {option.name.lower(): option for option in OPTIONS}


def understood(options: Mapping[str, str], mode: Mode | None = None) -> Settings:
    """The settings that the options ask for. Names are taken in any case, as everywhere in Spark.

    What only means something to the other mode is checked, and does nothing; except for what would silently give other
    rows than were asked for. Without a mode, that is not looked at.

    Raises: OptionError.
    """
    values: dict[str, Any] = {}
    storage: dict[str, str] = {}
    for name, text in options.items():
        if name.lower().startswith(STORAGE):
            storage[name.lower().removeprefix(STORAGE)] = text
            continue
        option = _BY_NAME.get(name.lower())
        if option is None:
            raise _unknown(name)
        try:
            values[option.setting] = option.parse(text)
        except OptionError as error:
            raise OptionError(f"option {option.name}={text!r}: {error}") from None
        except ValueError:
            raise OptionError(f"option {option.name}={text!r}: expected {option.accepts}") from None
    if "path" not in values:
        raise OptionError("option path is missing: the directory or URI of an event log")
    _check_together(values, mode)
    return Settings(storage=storage, **values)


def _check_together(values: Mapping[str, Any], mode: Mode | None) -> None:
    if mode == "stream" and "ending" in values:
        raise OptionError("option endingOffsets: a stream has no end; read with spark.read, or with availableNow")
    if mode == "batch" and values.get("starting") == "latest":
        raise OptionError("option startingOffsets='latest': only streams begin there; a batch would be empty")
    if values.get("ending") == "earliest":
        raise OptionError("option endingOffsets='earliest': expected latest, or JSON: a batch would be empty")
    since, until = values.get("since"), values.get("until")
    if since is not None and until is not None and since >= until:
        raise OptionError("options since and until: since must be before until")


def _unknown(name: str) -> OptionError:
    near = difflib.get_close_matches(name.lower(), _BY_NAME, 1)
    names = ", ".join(option.name for option in OPTIONS)
    guess = f"perhaps {_BY_NAME[near[0]].name}?" if near else f"there are {names}, and {STORAGE}* for the storage"
    return OptionError(f"unknown option {name}: {guess}")
