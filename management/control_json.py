"""The JSON that the control socket takes and gives, and `trunkline ctl --json` prints.

JSON has no bytes: they are text if they are text, else base64, and a member beside them, `NAME_encoding`, says which.
Nor has it infinity, which is null.
"""

import json
from base64 import b64decode, b64encode
from codecs import getincrementaldecoder
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from math import isfinite
from typing import Any, Final, cast

_SUFFIX: Final = "_encoding"


def to_json(value: object) -> str:
    """Dataclasses and mappings become objects, sequences arrays.

    Raises:
        TypeError: JSON has no such value.
    """
    return json.dumps(_plain(value), allow_nan=False)


def from_json(data: bytes) -> Any:
    """What `to_json` made.

    Raises:
        ValueError: it is not JSON.
    """
    try:
        return json.loads(data, object_hook=_with_bytes)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def as_text(payload: bytes, cut: bool = False) -> str | None:
    """The bytes as text, if they are text; if they are `cut`, they may end within a character."""
    try:
        text = getincrementaldecoder("utf-8")().decode(payload, final=not cut)
    except UnicodeDecodeError:
        return None
    return text if all(letter.isprintable() or letter in "\t\r\n" for letter in text) else None


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return _table(cast("Mapping[str, Any]", value))
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_plain(inner) for inner in cast("Sequence[object]", value)]
    return value


def _table(table: Mapping[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, bytes):
            text = as_text(value, table.get("size", len(value)) > len(value))
            plain[name] = b64encode(value).decode() if text is None else text
            plain[name + _SUFFIX] = "base64" if text is None else "text"
        else:
            plain[name] = _plain(value)
    return plain


def _with_bytes(table: dict[str, Any]) -> dict[str, Any]:
    for name in [name.removesuffix(_SUFFIX) for name in table if name.endswith(_SUFFIX)]:
        value, encoding = table.get(name), table[name + _SUFFIX]
        if isinstance(value, str) and encoding in ("text", "base64"):
            table[name] = value.encode() if encoding == "text" else b64decode(value, validate=True)
            del table[name + _SUFFIX]
    return table
