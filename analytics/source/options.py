"""The options of the source, and what they mean."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any, Final, Literal

from trunkline.analytics.options import (
    COUNT,
    DURATION,
    FLAG,
    NAMES,
    SIZE,
    OptionError,
    Takes,
    one_of,
    option,
    parse,
    text,
)
from trunkline.analytics.source import offsets
from trunkline.analytics.source.offsets import Offsets

#: The two ways of reading.
Mode = Literal["batch", "stream"]
Policy = Literal["fail", "skip"]
#: Rows that are there when a query first starts, or from where on.
Position = Literal["earliest", "latest"] | Offsets

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: Begins the options that are handed to the file system.
STORAGE: Final = "fs."


def _kinds(given: str) -> tuple[str, ...]:
    from trunkline.events.schema import OWN_KINDS
    from trunkline.hooks.points import POINTS

    known = {kind.name for kind in OWN_KINDS} | {point.name for point in POINTS}
    names: tuple[str, ...] = NAMES.parse(given)
    for name in names:
        group = name.removesuffix("*")
        if name not in known and (group == name or not any(one.startswith(group) for one in known)):
            near = get_close_matches(name, known, 1)
            raise OptionError(f"there is no kind {name!r}" + (f", perhaps {near[0]!r}?" if near else ""))
    return names


def _time(given: str) -> int:
    moment = datetime.fromisoformat(given.strip())
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    span = moment - _EPOCH
    return (span.days * 86_400 + span.seconds) * 1_000_000 + span.microseconds


def _position(given: str) -> Position:
    match given.strip().lower():
        case "earliest":
            return "earliest"
        case "latest":
            return "latest"
        case _:
            try:
                return offsets.parse(given)
            except offsets.OffsetError as error:
                raise OptionError(str(error)) from None


def _consumer(given: str) -> str:
    from trunkline.events.positions import is_name

    if not is_name(given):
        raise ValueError
    return given


_NODES: Final = Takes(lambda given: frozenset(NAMES.parse(given)), "names of nodes, or node keys, with commas between")
_KINDS: Final = Takes(_kinds, 'kinds of events with commas between; "client.*" stands for all that begin so')
_TIME: Final = Takes(_time, 'a time such as "2026-03-01T12:00:00Z", UTC unless it says otherwise')
_POLICY: Final = one_of("fail", "skip")
_POSITION: Final = Takes(_position, 'earliest, latest, or JSON such as {"n1@1763739192123": 5000}')
_CONSUMER: Final = Takes(_consumer, "1 to 100 letters, digits, dots, dashes and underscores, no dot or dash in front")


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """The options, with their defaults. Times are microseconds since the epoch, durations are in seconds."""

    path: str = option(text("a directory, or a URI such as s3://bucket/events"))
    nodes: frozenset[str] = option(_NODES, frozenset())
    kinds: tuple[str, ...] = option(_KINDS, ())
    since: int | None = option(_TIME, None)
    until: int | None = option(_TIME, None)
    starting_offsets: Position = option(_POSITION, "earliest")
    ending_offsets: Position = option(_POSITION, "latest")
    on_corrupt: Policy = option(_POLICY, "fail")
    on_loss: Policy = option(_POLICY, "fail")
    verify: bool = option(FLAG, True)
    max_rows_per_partition: int = option(COUNT, 250_000)
    max_bytes_per_partition: int = option(SIZE, 64 * 2**20)
    max_rows_per_trigger: int | None = option(COUNT, None)
    max_bytes_per_trigger: int | None = option(SIZE, None)
    align_event_time: bool = option(FLAG, True)
    align_within: float = option(DURATION, 0.5)
    max_wait: float = option(DURATION, 10.0)
    consumer: str | None = option(_CONSUMER, None)
    push_filters: bool = option(FLAG, False)
    storage: dict[str, str] = field(default_factory=dict[str, str], repr=False)


def understood(options: Mapping[str, str], mode: Mode | None = None) -> SourceSettings:
    """The settings that the options ask for.

    What only means something to the other mode is checked, and does nothing; except for what would silently give other
    rows than were asked for. Without a mode, that is not looked at.

    Raises:
        OptionError: an option is unknown, missing, or has a value that it cannot have.
    """
    storage = {
        name.lower().removeprefix(STORAGE): value for name, value in options.items() if name.lower().startswith(STORAGE)
    }
    others = {name: value for name, value in options.items() if not name.lower().startswith(STORAGE)}
    values = parse(SourceSettings, others, also=f", and {STORAGE}* for the storage")
    if "path" not in values:
        raise OptionError("option path is missing: the directory or URI of an event log")
    _check_together(values, mode)
    return SourceSettings(storage=storage, **values)


def _check_together(values: Mapping[str, Any], mode: Mode | None) -> None:
    if mode == "stream" and "ending_offsets" in values:
        raise OptionError("option endingOffsets: a stream has no end; read with spark.read, or with availableNow")
    if mode == "batch" and values.get("starting_offsets") == "latest":
        raise OptionError("option startingOffsets='latest': only streams begin there; a batch would be empty")
    if values.get("ending_offsets") == "earliest":
        raise OptionError("option endingOffsets='earliest': expected latest, or JSON: a batch would be empty")
    since, until = values.get("since"), values.get("until")
    if since is not None and until is not None and since >= until:
        raise OptionError("options since and until: since must be before until")
