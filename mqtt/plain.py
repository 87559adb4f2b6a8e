"""What packets hold as plain values, dict, list, str, bytes, int, float, bool and None: the one form in which stores,
control sockets, plugins and journals get it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

_IN_JSON: Final = (str, int, float, type(None))


def plain(value: Any) -> Any:
    """With a dict in place of each mapping and a list in place of each sequence: the decoder and programs make property
    values in several forms, which mean the same."""
    if isinstance(value, Mapping):
        return {name: plain(inner) for name, inner in cast("Mapping[object, object]", value).items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [plain(inner) for inner in cast("Sequence[object]", value)]
    return value


def in_words(value: object) -> Any:
    """For people who read JSON: what JSON has no form for is told as its text. Not for what a program reads back."""
    value = plain(value)
    if isinstance(value, dict):
        return {str(name): in_words(inner) for name, inner in cast("dict[object, object]", value).items()}
    if isinstance(value, list):
        return [in_words(inner) for inner in cast("list[object]", value)]
    return value if isinstance(value, _IN_JSON) else str(value)
