"""Objects of JSON, as anybody may send them."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any, Final, cast

_MOST_DIGITS: Final = 20


def read_object(payload: bytes) -> dict[str, Any]:
    """An object of JSON, whose numbers have 64 bits and whose texts can be written.

    Raises:
        ValueError: it is none.
    """
    try:
        found = json.loads(payload, parse_int=_whole, parse_float=_finite, parse_constant=_finite)
        json.dumps(found, ensure_ascii=False).encode()  # half a character is no text
    except RecursionError:
        raise ValueError("too deep") from None
    if isinstance(found, dict):
        return cast("dict[str, Any]", found)
    raise ValueError("no object")


def _whole(digits: str) -> int:
    if len(digits) > _MOST_DIGITS or not -(1 << 63) <= (number := int(digits)) < 1 << 63:
        raise ValueError("a number of more than 64 bits")
    return number


def _finite(text: str) -> float:
    if not isfinite(number := float(text)):
        raise ValueError(f"{text} is no number")
    return number
