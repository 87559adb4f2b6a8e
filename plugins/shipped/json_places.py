"""Finds a value in a JSON text, so that an error message can name the line."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_DECODER: Final = json.JSONDecoder()


def line_of(text: str, path: Iterable[str | int]) -> int:
    """The line, counted from 1, of the value that the keys and indexes lead to in a JSON text; if they lead nowhere, of
    the last value on the way."""
    place = found = _skip(text, 0)
    for step in path:
        if text[place] not in "{[":
            break
        place = _enter(text, place, step)
        if place < 0:
            break
        found = place
    return text.count("\n", 0, found) + 1


def _enter(text: str, place: int, step: str | int) -> int:
    """The position of a value in the object or array that begins at `place`; -1 if it does not have this key or
    index."""
    is_object, index = text[place] == "{", 0
    place = _skip(text, place + 1)
    while text[place] not in "}]":
        key: object = index
        if is_object:
            key, place = _DECODER.raw_decode(text, place)
            place = _skip(text, _skip(text, place) + 1)  # past the colon
        if key == step:
            return place
        _, place = _DECODER.raw_decode(text, place)
        place = _skip(text, place)
        if text[place] == ",":
            place = _skip(text, place + 1)
        index += 1
    return -1


def _skip(text: str, place: int) -> int:
    found = _SPACE.match(text, place)
    assert found is not None
    return found.end()
