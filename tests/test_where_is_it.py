"""The page "Where is it?" leads to code that is there."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "where-is-it.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (.+) \| `(.+)` \| (.+) \|$", PAGE, re.MULTILINE)


def defined(tree: ast.Module) -> Iterator[str]:
    """The names that a module defines, and those in its classes, as `Class.name`."""
    for node in tree.body:
        for name in names(node):
            yield name
            if isinstance(node, ast.ClassDef):
                yield from (f"{name}.{inner}" for part in node.body for inner in names(part))


def names(node: ast.stmt) -> list[str]:
    match node:
        case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
            return [name]
        case ast.Assign(targets):
            return [target.id for target in targets if isinstance(target, ast.Name)]
        case ast.AnnAssign(ast.Name(name)):
            return [name]
        case ast.If() | ast.Try():
            return [name for part in node.body for name in names(part)]
        case _:
            return []


def test_every_row_is_read() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| Term ")]
    assert len(ROWS) == len(rows) >= 40


@pytest.mark.parametrize(("term", "module", "symbols"), ROWS, ids=[row[0] for row in ROWS])
def test_a_term_is_where_the_page_says(term: str, module: str, symbols: str) -> None:
    text = (ROOT / module).read_text(encoding="utf-8")
    assert set(re.findall(r"`([\w.]+)`", symbols)) <= set(defined(ast.parse(text)))
    assert [clause for clause in re.findall(r"\[MQTT[^\]]+\]", symbols) if clause not in text] == []
