"""Dataclasses to the JSON of JetStream's API and back.

A field has the name that it has in JSON, and its value stands there as it is, unless its annotation says otherwise.
What has its default is left out, as Go's servers and clients do it. What a newer server has and this client does not
know is kept in `unknown`, and goes back with an update: it is not this client's to take it away.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, dataclass, fields
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeVar, cast, get_args, get_origin, get_type_hints

from trunkline.nats.errors import NatsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

_SECOND: Final = 1_000_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: Microseconds of the last second that has a year of four digits.
_LAST: Final = 253_402_300_799_000_000
#: The time that Go has in place of none.
NO_TIME: Final = "0001-01-01T00:00:00Z"
UNKNOWN: Final = "unknown"


class BadReply(NatsError):
    """A server has said what JetStream does not say."""


@dataclass(frozen=True, slots=True)
class Form:
    """How a value stands in JSON."""

    #: Empty: that of the field.
    name: str = ""
    #: Whether it is written although it has its default.
    always: bool = False

    def write(self, value: Any) -> Any:
        return value

    def read(self, value: Any) -> Any:
        return value


class Seconds(Form):
    """Nanoseconds in JSON."""

    __slots__ = ()

    def write(self, value: float) -> int:
        return round(value * _SECOND)

    def read(self, value: int) -> float:
        return value / _SECOND


class ManySeconds(Form):
    __slots__ = ()

    def write(self, value: Iterable[float]) -> list[int]:
        return [round(each * _SECOND) for each in value]

    def read(self, value: Iterable[int]) -> tuple[float, ...]:
        return tuple([each / _SECOND for each in value])


class Texts(Form):
    __slots__ = ()

    def write(self, value: Iterable[str]) -> list[str]:
        if isinstance(value, str):  # its letters would be texts
            raise TypeError(f"a tuple of texts, not {value!r}")
        return list(value)

    def read(self, value: Any) -> tuple[str, ...]:
        found = tuple(cast("Iterable[Any]", value)) if isinstance(value, list) else None
        if found is None or not _are_texts(found):
            raise TypeError("no list of texts")
        return found


class Labels(Form):
    """Names with a text each."""

    __slots__ = ()

    def read(self, value: Any) -> dict[str, str]:
        if not isinstance(value, dict) or not _are_texts((found := cast("dict[str, Any]", value)).values()):
            raise TypeError("no object of texts")
        return found


def _are_texts(values: Iterable[Any]) -> bool:
    return all(isinstance(each, str) for each in values)


class Moment(Form):
    """Text in JSON, and seconds since the epoch here. What lies behind the last year that has four digits, as a pause
    without end may, is written as its end."""

    __slots__ = ()

    def write(self, value: float) -> str:
        microseconds = round(min(value * 1_000_000, _LAST))
        return (_EPOCH + timedelta(microseconds=microseconds)).isoformat().replace("+00:00", "Z")

    def read(self, value: str) -> float | None:
        """Servers write nanoseconds, and Python reads microseconds.

        Raises:
            ValueError, OverflowError: it is no moment, or has no time zone.
        """
        if value == NO_TIME:
            return None
        whole, _, rest = value.partition(".")
        digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
        zone = rest[len(digits) :] or ("Z" if not whole.endswith("Z") else "")
        at = datetime.fromisoformat(f"{whole}.{digits[:6]:0<6}{zone}" if digits else value)
        if at.tzinfo is None:
            raise ValueError("no time zone")
        return (at.astimezone(UTC) - _EPOCH).total_seconds()


@dataclass(frozen=True, slots=True)
class Word(Form):
    """One of several words. One that is not known is kept as text."""

    kind: type[Enum] = Enum

    def write(self, value: Any) -> Any:
        return value.value if isinstance(value, Enum) else value

    def read(self, value: Any) -> Any:
        return next((member for member in self.kind if member.value == value), value)


@dataclass(frozen=True, slots=True)
class Part(Form):
    """Another dataclass."""

    kind: type[DataclassInstance] | None = None

    def write(self, value: Any) -> Any:
        return to_json(value)

    def read(self, value: Any) -> Any:
        assert self.kind is not None
        return from_json(self.kind, value)


class Parts(Part):
    __slots__ = ()

    def write(self, value: Any) -> Any:
        return [to_json(each) for each in value]

    def read(self, value: Any) -> Any:
        assert self.kind is not None
        return tuple([from_json(self.kind, each) for each in value])


class PartsByName(Part):
    __slots__ = ()

    def write(self, value: Any) -> Any:
        return {name: to_json(each) for name, each in value.items()}

    def read(self, value: Any) -> Any:
        assert self.kind is not None
        return {name: from_json(self.kind, each) for name, each in value.items()}


class _Known(NamedTuple):
    """A field, its name in JSON, and its form. What JSON has a type for is of that type."""

    field: Field[Any]
    name: str
    form: Form
    type: type | None


@cache
def _known(kind: type[DataclassInstance]) -> list[_Known]:
    """All fields but `unknown`."""
    hints = get_type_hints(kind, include_extras=True)
    found: list[_Known] = []
    for each in fields(kind):
        if each.name != UNKNOWN:
            hint = hints[each.name]
            own, *said = get_args(hint) if get_origin(hint) is Annotated else (hint,)
            form = said[0] if said else Form()
            is_plain = type(form) is Form and own in (str, int, bool)
            found.append(_Known(each, form.name or each.name, form, own if is_plain else None))
    return found


def _default(each: Field[Any]) -> Any:
    return each.default_factory() if each.default_factory is not MISSING else each.default


def to_json(value: DataclassInstance) -> dict[str, Any]:
    """
    Raises:
        TypeError: a field has a value of another type. It is named.
    """
    found: dict[str, Any] = {}
    for each, name, form, _ in _known(type(value)):
        own = getattr(value, each.name)
        if own != _default(each) or form.always:
            try:
                found[name] = form.write(own)
            except (TypeError, ValueError, AttributeError, OverflowError) as error:
                raise TypeError(
                    f"{type(value).__name__}, {each.name}: {own!r:.80}, of type {each.type}: {error}"
                ) from None
    return found | cast("dict[str, Any]", getattr(value, UNKNOWN, {}))


def from_json(kind: type[T], json: Any) -> T:
    """
    Raises:
        BadReply: it is no object, or something in it is of another type.
    """
    if not isinstance(json, dict):
        raise BadReply(f"{kind.__name__}: {json!r:.80} is no object")
    left = dict(cast("dict[str, Any]", json))
    values: dict[str, Any] = {}
    for each, name, form, wanted in _known(kind):
        value = left.pop(name, None)
        if value is not None:
            if wanted is not None and type(value) is not wanted:
                raise BadReply(f"{kind.__name__}, {name}: {value!r:.80}")
            try:
                values[each.name] = form.read(value)
            except (TypeError, ValueError, AttributeError, OverflowError) as error:
                raise BadReply(f"{kind.__name__}, {name}: {value!r:.80}") from error
        elif _default(each) is MISSING:
            raise BadReply(f"{kind.__name__} has no {name}")
    return kind(**values, **{UNKNOWN: left})


def missing_in(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """The names of what stands in one object of JSON and is not nothing, and does not stand in another; also in objects
    inside, `OUTER.INNER` then."""
    names = [name for name, value in wanted.items() if value and name not in found]
    for name, value in wanted.items():
        for own, its in zip(_objects(value), _objects(found.get(name)), strict=False):
            names += [f"{name}.{inner}" for inner in missing_in(its, own)]
    return names


def _objects(value: Any) -> list[dict[str, Any]]:
    """Those that the value is, or has."""
    values = cast("Iterable[Any]", value) if isinstance(value, list) else [value]
    return [cast("dict[str, Any]", each) for each in values if isinstance(each, dict)]
