"""What becomes of a stream's messages: under which topics it keeps them, where they are published once more, and which
other streams it takes them from. Topics are written as `TopicTransform` reads them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar, cast

from trunkline.streams.errors import InvalidStreamConfig
from trunkline.streams.transforms import TopicTransform

if TYPE_CHECKING:
    from collections.abc import Mapping

    from _typeshed import DataclassInstance

S = TypeVar("S", bound="DataclassInstance")


@dataclass(frozen=True, slots=True)
class TopicChange:
    """Messages of topics that match the source get another topic."""

    source: str
    #: Empty: the topic that they have.
    destination: str

    def transform(self) -> TopicTransform | None:
        """
        Raises:
            InvalidTransform: they do not fit together.
        """
        return TopicTransform(self.source, self.destination) if self.destination else None

    @property
    def filter(self) -> str:
        """Matches all topics that they become; empty if they stay as they are."""
        transform = self.transform()
        return "" if transform is None else transform.filter


@dataclass(frozen=True, slots=True)
class Republication:
    """Messages of the stream whose topics match the source are published once more, when they are stored."""

    source: str
    destination: str
    headers_only: bool = False

    @property
    def change(self) -> TopicChange:
        return TopicChange(self.source, self.destination)


@dataclass(frozen=True, slots=True)
class StreamOrigin:
    """A stream of the same broker from which another one takes messages."""

    stream: str
    #: Where it begins: at a sequence, 0 for the first one; or at a time, in seconds since the epoch.
    start_sequence: int = 0
    start_time: float | None = None
    #: Only messages whose topics match; empty: all of them.
    filter: str = ""
    #: Only messages whose topics match the source of one of these; empty: all of them.
    changes: tuple[TopicChange, ...] = ()

    @property
    def key(self) -> str:
        """What tells origins of one stream apart: another one has a place of its own."""
        changes = ",".join(f"{change.source} {change.destination}" for change in self.changes)
        return f"{self.stream} {self.filter} {changes}"


def shape_from_plain(kind: type[S], plain: Any) -> S | None:
    """One of the above as `dataclasses.asdict` has made it.

    Raises:
        TypeError: it is something else.
    """
    if plain is None:
        return None
    if not isinstance(plain, dict):
        raise TypeError(f"{plain!r:.80} is no object")
    given = cast("Mapping[str, Any]", plain)
    kinds: dict[str, Any] = {"str": str, "bool": bool, "int": int, "float | None": (float, int, type(None))}
    values: dict[str, Any] = {}
    for each in fields(kind):
        if each.name not in given:
            continue
        value = given[each.name]
        if each.name == "changes":
            value = tuple(shape_from_plain(TopicChange, change) for change in value)
        elif not isinstance(value, kinds[str(each.type)]):
            raise TypeError(f"{each.name} is {value!r:.80}")
        values[each.name] = value
    if unknown := given.keys() - values.keys():
        raise TypeError(f"{', '.join(sorted(unknown))} is not known")
    return kind(**values)


def check_origins(name: str, mirror: StreamOrigin | None, sources: tuple[StreamOrigin, ...]) -> None:
    """
    Raises:
        InvalidStreamConfig: the stream of this name cannot take messages from these.
    """
    origins = sources if mirror is None else (mirror,)
    if mirror is not None and sources:
        raise InvalidStreamConfig(f"the stream {name!r} cannot be a mirror and have sources")
    if len({origin.key for origin in sources}) < len(sources):
        raise InvalidStreamConfig(f"two sources of the stream {name!r} are the same")
    for origin in origins:
        if origin.stream == name:
            raise InvalidStreamConfig(f"the stream {name!r} cannot take messages from itself")
        if origin.filter and origin.changes:
            raise InvalidStreamConfig(f"a source of the stream {name!r} has a filter and changes of topics")
        if origin.start_sequence < 0:
            raise InvalidStreamConfig("start_sequence is negative")
        for change in origin.changes:
            change.transform()
