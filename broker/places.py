"""Places in a configuration, as messages name them."""

import json
from collections.abc import Iterable
from difflib import get_close_matches

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


def nearest(name: str, names: Iterable[str]) -> str:
    found = get_close_matches(name, list(names), n=1, cutoff=0.65)  # "persistence" is no slip for "listeners", at 0.6
    return f"; did you mean {found[0]}?" if found else ""
