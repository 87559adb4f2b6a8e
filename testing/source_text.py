"""What a function is called in a failure: as the test has it."""

from __future__ import annotations

import ast
import inspect
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType

#: Characters of a value that a failure shows.
WIDTH: Final = 120


def written_as(function: Callable[..., object]) -> str:
    """The text of a lambda, as far as its source can be read; the name of another function."""
    name = getattr(function, "__qualname__", "") or repr(function)
    code: Any = getattr(function, "__code__", None)
    return (name.endswith("<lambda>") and _text(code)) or name


def shortened(text: str) -> str:
    return text if len(text) <= WIDTH else f"{text[:WIDTH]}…"


@lru_cache  # a message that is waited for is compared with every other
def _text(code: CodeType) -> str:
    try:
        source = "".join(inspect.findsource(code)[0])
        tree = ast.parse(source)
    except (OSError, SyntaxError):  # typed at a prompt, changed since
        return ""
    places = {*code.co_positions()}
    for node in ast.walk(tree):
        if isinstance(node, ast.Lambda):
            body = node.body  # of several lambdas in a line, the one whose code this is
            if (body.lineno, body.end_lineno, body.col_offset, body.end_col_offset) in places:
                return f"`{shortened(' '.join((ast.get_source_segment(source, node) or '').split()))}`"
    return ""
