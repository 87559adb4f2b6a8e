"""Topics that become other topics: JetStream's subject transforms.

The source is a topic filter. Each `+` in it is a wildcard with a number, from 1 on; a `#` stands for what is left. A
`+` right before it has no number, and says that one level at least is left. The destination is a topic in which a level
may be a function of the wildcards, and the last one `#`, if the source has one:

| | |
|---|---|
| `{{wildcard(1)}}`, `$1` | the level as it is |
| `{{partition(10)}}`, `{{partition(10,1,2)}}` | a number below 10, always the same for the topic, or for these levels |
| `{{random(10)}}` | a number below 10 |
| `{{left(1,3)}}`, `{{right(1,3)}}` | its first or last characters |
| `{{split(1,-)}}` | a level for each part between the signs |
| `{{splitfromleft(1,3)}}`, `{{splitfromright(1,3)}}` | two levels: its first characters and the rest, or its last |
| `{{slicefromleft(1,3)}}`, `{{slicefromright(1,3)}}` | a level for every so many characters |

Topics that begin with `$` match wildcards here as others do: which messages there are is not the question.
"""

from __future__ import annotations

import re
from functools import partial
from random import randrange
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from trunkline.streams.errors import InvalidTransform

if TYPE_CHECKING:
    from collections.abc import Callable

#: The levels that one level of the destination becomes: of a topic, and of what its wildcards stand for.
Make: TypeAlias = "Callable[[str, list[str]], list[str]]"

#: Nothing in it is tried again with less: a level may be a million spaces.
_FUNCTION: Final = re.compile(r"\{\{\s*+([A-Za-z-]*+)\s*+\(([^)]*+)\)\s*+\}\}")
_LEGACY: Final = re.compile(r"\$([0-9]+)")
_MOST_LEVELS: Final = 128
#: The largest argument, as servers take them.
_MOST: Final = (1 << 31) - 1
#: FNV-1a of 32 bits.
_OFFSET, _PRIME, _BITS = 2166136261, 16777619, 0xFFFFFFFF


class TopicTransform:
    def __init__(self, source: str, destination: str) -> None:
        """
        Raises:
            InvalidTransform: they do not fit together, or one of them is nothing.
        """
        self._levels = source.split("/")
        rest = self._levels[-1] == "#"
        if rest:
            self._levels.pop()
        #: How many levels the rest has at least; None: there is none.
        self._rest: int | None = 0 if rest else None
        if rest and self._levels and self._levels[-1] == "+":
            self._levels.pop()
            self._rest = 1
        wildcards = self._levels.count("+")
        levels = destination.split("/")
        if len(levels) > _MOST_LEVELS:
            raise InvalidTransform(f"invalid mapping destination: more than {_MOST_LEVELS} tokens")
        if ((levels[-1] == "#") != rest) or "+" in levels or "#" in levels[:-1] or not destination:
            raise InvalidTransform("invalid subject")
        self._makers: list[Make] = [_maker(level, wildcards) for level in (levels[:-1] if rest else levels)]
        #: Matches all that topics become.
        self.filter = _filter_of(levels)

    def __call__(self, topic: str) -> str | None:
        """What the topic becomes; None: it does not match the source, or what it would become is no topic."""
        levels = topic.split("/")
        known = len(self._levels)
        if len(levels) < known + (self._rest or 0) or (self._rest is None and len(levels) > known):
            return None
        wildcards: list[str] = []
        for wanted, level in zip(self._levels, levels, strict=False):
            if wanted == "+":
                wildcards.append(level)
            elif wanted != level:
                return None
        made: list[str] = []
        for make in self._makers:
            made += make(topic, wildcards)
            if len(made) > _MOST_LEVELS:
                return None
        if self._rest is not None:
            made += levels[known:]
        found = "/".join(made)
        return found if 0 < len(found.encode()) <= 65_535 and len(made) <= _MOST_LEVELS else None


def _filter_of(levels: list[str]) -> str:
    found: list[str] = []
    for level in levels:
        match = _FUNCTION.fullmatch(level)
        if level == "#" or (match is not None and match[1].lower().replace("-", "").startswith(("split", "slice"))):
            return "/".join([*found, "#"])
        found.append("+" if match is not None or _LEGACY.fullmatch(level) else level)
    return "/".join(found)


class _Function(NamedTuple):
    #: Arguments: how many at least, and at most.
    least: int
    most: int
    #: Of the whole numbers and, last, the word among them.
    make: Callable[..., Make]
    #: Which of the arguments, from which on, are numbers of wildcards.
    wildcards: slice = slice(1)


def _maker(level: str, wildcards: int) -> Make:
    """
    Raises:
        InvalidTransform: it is a function that there is not, or that has wrong arguments.
    """
    legacy = _LEGACY.fullmatch(level)
    if legacy is not None:
        level = f"{{{{wildcard({legacy[1]})}}}}"
    if not (level.startswith("{{") and level.endswith("}}")):
        return lambda topic, found: [level]
    match = _FUNCTION.fullmatch(level)
    function = None if match is None else _FUNCTIONS.get(match[1].lower().replace("-", ""))
    if match is None or function is None:
        raise _bad("unknown function", level)
    given = [each.strip() for each in match[2].split(",")] if match[2].strip() else []
    if len(given) < function.least:
        raise _bad("not enough arguments passed to the function", level)
    if len(given) > function.most:
        raise _bad("too many arguments passed to the function", level)
    words = 1 if function.make is _split else 0
    numbers = [_number(each, level) for each in given[: len(given) - words]]
    indices = numbers[function.wildcards]
    if not all(1 <= index <= wildcards for index in indices):
        raise InvalidTransform(
            f"invalid mapping destination: wildcard index out of range in {level}: "
            f"[{next(index for index in indices if not 1 <= index <= wildcards)}]"
        )
    return function.make(*numbers, *given[len(given) - words :])


def _number(text: str, level: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= _MOST):
        raise _bad("function argument is invalid or in the wrong format", level)
    return int(text)


def _bad(why: str, level: str) -> InvalidTransform:
    return InvalidTransform(f"invalid mapping destination: {why} in {level}")


# Functions: each gets its arguments, and makes what makes levels


def _wildcard(index: int) -> Make:
    return lambda _, found: [found[index - 1]]


def _partition(count: int, *indices: int) -> Make:
    def make(topic: str, found: list[str]) -> list[str]:
        # servers count the sign between levels as a dot
        key = "".join([found[index - 1] for index in indices]) if indices else topic.replace("/", ".")
        return [str(_hash(key) % count if count else 0)]

    return make


def _hash(text: str) -> int:
    value = _OFFSET
    for byte in text.encode():
        value = ((value ^ byte) * _PRIME) & _BITS
    return value


def _random(count: int) -> Make:
    return lambda _, __: [str(randrange(count) if count else 0)]


def _cut(index: int, size: int, *, cut: Callable[[str, int], list[str]]) -> Make:
    """A level that is long enough is cut; others stay as they are."""

    def make(_: str, found: list[str]) -> list[str]:
        level = found[index - 1]
        return cut(level, size) if 0 < size < len(level) else [level]

    return make


def _split(index: int, sign: str) -> Make:
    return lambda _, found: [part for part in found[index - 1].split(sign) if part] or [""]


def _slices(level: str, size: int) -> list[str]:
    starts = range(0, len(level), size)[: _MOST_LEVELS + 1]  # more are none
    return [level[start : start + size] for start in starts]


def _slices_from_right(level: str, size: int) -> list[str]:
    rest = len(level) % size
    return [*([level[:rest]] if rest else []), *_slices(level[rest:], size)]


_FUNCTIONS: Final = {
    "wildcard": _Function(1, 1, _wildcard),
    "partition": _Function(1, 1 << 10, _partition, slice(1, None)),
    "random": _Function(1, 1, _random, slice(0)),
    "split": _Function(2, 2, _split),
    "left": _Function(2, 2, partial(_cut, cut=lambda level, size: [level[:size]])),
    "right": _Function(2, 2, partial(_cut, cut=lambda level, size: [level[-size:]])),
    "splitfromleft": _Function(2, 2, partial(_cut, cut=lambda level, size: [level[:size], level[size:]])),
    "splitfromright": _Function(2, 2, partial(_cut, cut=lambda level, size: [level[:-size], level[-size:]])),
    "slicefromleft": _Function(2, 2, partial(_cut, cut=_slices)),
    "slicefromright": _Function(2, 2, partial(_cut, cut=_slices_from_right)),
}
