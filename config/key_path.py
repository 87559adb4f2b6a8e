"""Keys of a configuration, as they are named in messages."""

import json
from collections.abc import Iterable

#: A key in tables: ("mqtt", "max_qos").
Keys = tuple[str, ...]
#: A key within an array: ("listeners", 0, "url").
KeyPath = tuple[str | int, ...]


def dotted(path: KeyPath) -> str:
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            word = part if part.replace("-", "_").isidentifier() else json.dumps(part, ensure_ascii=False)
            text += f".{word}" if text else word
    return text


def nearest(name: str, names: Iterable[str], cutoff: float = 0.65) -> str:
    """Suggests the name that may have been meant. (With a cutoff of 0.6, "persistence" does not suggest
    "listeners".)"""
    from difflib import get_close_matches  # only needed to explain a mistake

    found = get_close_matches(name, list(names), n=1, cutoff=cutoff)
    return f"; did you mean {found[0]}?" if found else ""
