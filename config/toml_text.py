"""Values as a TOML file has them."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import date, time
from typing import Final, cast

_BARE: Final = re.compile("[A-Za-z0-9_-]+")


def toml_text(value: object) -> str:
    """A value on one line. What TOML has no form for is told as text; keys without a value are left out."""
    if isinstance(value, Mapping):
        entries = [(str(key), inner) for key, inner in cast("Mapping[object, object]", value).items()]
        inside = ", ".join(
            f"{key if _BARE.fullmatch(key) else toml_text(key)} = {toml_text(inner)}"
            for key, inner in entries
            if inner is not None
        )
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return "[" + ", ".join(map(toml_text, cast("Sequence[object]", value))) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, date | time):
        return value.isoformat()
    if value is None or isinstance(value, int | float):
        return json.dumps(value)
    # JSON writes text as TOML does, but for characters past 16 bits, which it splits, and DEL; half a character is told
    text = json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007F")
    return text.encode("utf-8", "backslashreplace").decode()
