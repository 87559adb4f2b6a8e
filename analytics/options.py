"""Options as Spark hands them over: text by name. A class of settings declares each of its options once.

The option `startingOffsets` is the field `starting_offsets`. Names are taken in any case, as everywhere in Spark.
"""

from collections.abc import Callable, Mapping
from dataclasses import Field, field, fields
from difflib import get_close_matches
from typing import Any, Final, NamedTuple


class OptionError(ValueError):
    """An option that is unknown, missing, or has a value that it cannot have; the text names it."""


class Takes(NamedTuple):
    """What an option can be."""

    parse: Callable[[str], Any]
    #: The same in words.
    accepts: str


def option(takes: Takes, default: Any = "", *, secret: bool = False) -> Any:
    """A field of a dataclass of settings."""
    return field(default=default, repr=not secret, metadata={"takes": takes})


def by_option(kind: type[Any]) -> "dict[str, Field[Any]]":
    """Fields of the settings by the names of their options."""
    return {_camel(each.name): each for each in fields(kind) if "takes" in each.metadata}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def parse(kind: type[Any], options: Mapping[str, str], *, also: str = "") -> dict[str, Any]:
    """The values of the settings that the options give; `also` names further options that are taken elsewhere.

    Raises:
        OptionError: there is no such option, or it has a value that it cannot have.
    """
    known = by_option(kind)
    names = {name.lower(): name for name in known}
    found: dict[str, Any] = {}
    for given, value in options.items():
        if given.lower() not in names:
            near = get_close_matches(given.lower(), names, 1)
            hint = f"perhaps {names[near[0]]}?" if near else f"there are {', '.join(known)}{also}"
            raise OptionError(f"unknown option {given}: {hint}")
        name = names[given.lower()]
        each = known[name]
        takes: Takes = each.metadata["takes"]
        shown = f"option {name}={value!r}" if each.repr else f"option {name}"
        try:
            found[each.name] = takes.parse(value)
        except OptionError as error:
            raise OptionError(f"{shown}: {error}") from None
        except (ValueError, KeyError):
            raise OptionError(f"{shown}: expected {takes.accepts}") from None
    return found


def _text(given: str) -> str:
    if not given.strip():
        raise ValueError
    return given


def _names(given: str) -> tuple[str, ...]:
    found = tuple(name.strip() for name in given.split(",") if name.strip())
    if not found:
        raise ValueError
    return found


def _size(given: str) -> int:
    from trunkline.config.units import parse_size

    if not (size := parse_size(given)):
        raise ValueError
    return size


def _duration(given: str) -> float:
    from trunkline.config.units import parse_duration

    return parse_duration(given)


def text(accepts: str) -> Takes:
    return Takes(_text, accepts)


def one_of(*words: str) -> Takes:
    by_word = {word: word for word in words}
    return Takes(lambda given: by_word[given.lower()], " or ".join(words))


def whole(low: int, high: int | None, accepts: str) -> Takes:
    def number(given: str) -> int:
        if not given.strip().isascii() or not low <= int(given) <= (int(given) if high is None else high):
            raise ValueError
        return int(given)

    return Takes(number, accepts)


NAMES: Final = Takes(_names, "names with commas between")
FLAG: Final = Takes(lambda given: {"true": True, "false": False}[given.lower()], "true or false")
COUNT: Final = whole(1, None, "a whole number, 1 or more")
SIZE: Final = Takes(_size, 'bytes, 1 or more, or text such as "64MiB"')
DURATION: Final = Takes(_duration, 'seconds, or text such as "500ms", "10s"')
