"""The options of the source, and what they mean."""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic.alias_generators import to_camel

from trunkline.analytics.options import (
    Count,
    OptionalBytes,
    OptionalCount,
    OptionalWord,
    OptionError,
    OptionModel,
    Seconds,
    SomeNames,
    read,
)
from trunkline.analytics.source import offsets
from trunkline.analytics.source.offsets import Offsets
from trunkline.config.key_path import nearest
from trunkline.config.units import Accepts, Size
from trunkline.events.times import to_microseconds

#: The two ways of reading.
Mode = Literal["batch", "stream"]

#: Begins the options that are handed to the file system.
STORAGE: Final = "fs."
#: Begins the options of a table among its properties.
_OPTION: Final = "option."
#: What Kafka's source calls an option.
_ALIASES: Final = {"maxRowsPerTrigger": "maxOffsetsPerTrigger"}
#: Digits of a date, as in 20260301. More of them are milliseconds.
_DATE: Final = 8
#: A size as Spark has it: `512k`, `1g`.
_SPARK_SIZE: Final = re.compile(r"\s*(\d+)\s*([kmgt])b?\s*", re.IGNORECASE)


def _known_kinds(names: tuple[str, ...]) -> tuple[str, ...]:
    from trunkline.events.kinds import FILLED, matching_kinds

    for name in names:
        if not matching_kinds([name]):
            raise ValueError(f"there is no kind {name!r}{nearest(name, FILLED)}")
    return names


def _known_table(name: str) -> str:
    from trunkline.events.kinds import TABLES

    if name not in TABLES:
        raise ValueError(f"there is no table {name!r}{nearest(name, TABLES) or '; there are ' + ', '.join(TABLES)}")
    return name


def _parse_time(given: object) -> int:
    text = str(given).strip()
    if text.isdecimal() and len(text) > _DATE:
        return int(text) * 1000
    try:
        return to_microseconds(datetime.fromisoformat(text))
    except ValueError:
        raise ValueError("not a time") from None


def _spark_size(given: object) -> object:
    found = _SPARK_SIZE.fullmatch(given) if isinstance(given, str) else None
    return f"{found[1]}{found[2].upper()}iB" if found else given


def _parse_position(given: object) -> object:
    text = str(given).strip()
    return text.lower() if text.lower() in ("earliest", "latest") else offsets.parse(text)


def _check_consumer(name: str) -> str:
    from trunkline.events.positions import is_name

    if not is_name(name):
        raise ValueError("not a consumer's name")
    return name


#: Rows that are there when a query first starts, or from where on.
Position = Annotated[
    Literal["earliest", "latest"] | Offsets,
    Accepts('earliest, latest, or JSON such as {"n1@1763739192123": 5000}'),
    BeforeValidator(_parse_position),
]
Policy = Annotated[Literal["fail", "skip"], BeforeValidator(str.lower)]
Kinds = Annotated[SomeNames, AfterValidator(_known_kinds)]
Table = Annotated[str | None, Accepts("text"), BeforeValidator(str.lower), AfterValidator(_known_table)]
Time = Annotated[
    int | None,
    Accepts('a time such as "2026-03-01T12:00:00Z", UTC unless it says otherwise, or milliseconds since the epoch'),
    BeforeValidator(_parse_time),
]
Consumer = Annotated[
    str | None,
    Accepts("1 to 100 letters, digits, dots, dashes and underscores, no dot or dash in front"),
    AfterValidator(_check_consumer),
]


class SourceSettings(OptionModel):
    """The options, with their defaults. Times are microseconds since the epoch, durations are in seconds."""

    path: OptionalWord = None
    paths: SomeNames = ()
    table: Table = None
    nodes: SomeNames = ()
    kinds: Kinds = ()
    starting_timestamp: Time = None
    ending_timestamp: Time = None
    starting_offsets: Position = "earliest"
    ending_offsets: Position = "latest"
    on_corrupt: Policy = "fail"
    fail_on_data_loss: bool = True
    verify: bool = True
    min_partitions: OptionalCount = None
    max_rows_per_partition: Count = 1_000_000
    max_bytes_per_partition: Annotated[Size, Field(ge=1), BeforeValidator(_spark_size)] = 128 * 2**20
    max_rows_per_trigger: OptionalCount = None
    max_files_per_trigger: OptionalCount = None
    max_bytes_per_trigger: Annotated[OptionalBytes, BeforeValidator(_spark_size)] = None
    align_event_time: bool = True
    align_within: Seconds = 0.5
    max_wait: Seconds = 10.0
    consumer: Consumer = None
    push_filters: bool = False
    #: Options of the file system.
    storage: dict[str, str] = Field({}, repr=False, exclude=True)

    @property
    def roots(self) -> tuple[str, ...]:
        """Of all logs that are read as one."""
        return self.paths if self.path is None else (self.path,)

    @property
    def place(self) -> str:
        """The roots, for people."""
        return " and ".join(self.roots)


def of_table(options: Mapping[str, str]) -> dict[str, str] | None:
    """The options of a table in Spark's catalog (`CREATE TABLE … USING trunkline`), which Spark hands over among the
    table's properties. None: these are of a query."""
    given = {name.lower(): value for name, value in options.items()}
    if not given.keys() >= {"owner", "provider"}:
        return None
    path = {"path": given["path"]} if "path" in given else {}
    return path | {name.removeprefix(_OPTION): text for name, text in given.items() if name.startswith(_OPTION)}


def _names(given: Iterable[str]) -> Callable[[str], str]:
    """From a field to its option, as the reader of its errors knows it.

    Raises: OptionError, for an option that has both of its names.
    """
    lowered = {name.lower() for name in given}
    used = {own: alias for own, alias in _ALIASES.items() if alias.lower() in lowered}
    for own, alias in used.items():
        if own.lower() in lowered:
            raise OptionError(f"options {own} and {alias}: they are the same; leave one of them out")
    return lambda field: used.get(to_camel(field), to_camel(field))


def _kinds_of(table: str, kinds: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the table, unless some are named: of it, or of the record itself, without which a stream's time stands
    still."""
    from trunkline.events.kinds import RECORD, TABLES, matching_kinds

    allowed = {*TABLES[table].kinds, *TABLES[RECORD].kinds}
    for name in kinds:
        if strange := [kind for kind in matching_kinds([name]) if kind not in allowed]:
            raise OptionError(f"options table={table!r} and kinds={name!r}: {strange[0]} is not in that table")
    return kinds or TABLES[table].kinds


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
    also = f", and {STORAGE}* for the storage"
    settings = read(SourceSettings, others, name=_names(others), also=also, storage=storage)
    if not settings.roots:
        raise OptionError("option path is missing")
    if settings.path is not None and settings.paths:
        raise OptionError("options path and paths: name all logs in one of them")
    if settings.table is not None:
        settings = settings.model_copy(update={"kinds": _kinds_of(settings.table, settings.kinds)})
    if mode == "stream" and "ending_offsets" in settings.model_fields_set:
        raise OptionError("option endingOffsets: a stream has no end; read with spark.read, or with availableNow")
    if mode == "batch" and settings.starting_offsets == "latest":
        raise OptionError(
            "option startingOffsets='latest': a batch would be empty; leave it out, or read with spark.readStream"
        )
    if settings.ending_offsets == "earliest":
        raise OptionError("option endingOffsets='earliest': expected latest, or JSON: a batch would be empty")
    begin, end = settings.starting_timestamp, settings.ending_timestamp
    if begin is not None and end is not None and begin >= end:
        raise OptionError("options startingTimestamp and endingTimestamp: the first must be before the second")
    return settings
