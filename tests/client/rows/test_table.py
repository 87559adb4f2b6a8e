"""Every row of the published tables is a test or has a reason, and every test is of a row."""

import ast
from collections.abc import Iterable
from pathlib import Path

from tests.client.rows.table import TABLES, NotApplicable

#: How many rows the tables have.
ROWS = {
    "session client": 67,
    "normative": 35,
    "ordered acknowledgements": 18,
    "faultable broker": 10,
    "receivers": 24,
    "integration": 23,
}


HERE = Path(__file__).parent


def names(files: Iterable[Path]) -> list[str]:
    """The names of the test functions in these files."""
    nodes = (node for file in files for node in ast.parse(file.read_text(encoding="utf-8")).body)
    functions = (node for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))
    return [function.name for function in functions if function.name.startswith("test_")]


def test_the_tables_are_complete() -> None:
    assert {name: len(rows) for name, rows in TABLES.items()} == ROWS


def test_every_row_is_shown_or_does_not_apply() -> None:
    found = {*names(HERE.parent.rglob("test_*.py"))}
    missing = [
        f"{table}: {row}"
        for table, rows in TABLES.items()
        for row, shown in rows.items()
        if (not shown.reason if isinstance(shown, NotApplicable) else not shown or set(shown) - found)
    ]
    assert missing == []


def test_every_test_is_of_a_row() -> None:
    rows = [shown for rows in TABLES.values() for shown in rows.values() if not isinstance(shown, NotApplicable)]
    own = {name for name, value in globals().items() if name.startswith("test_") and callable(value)}
    assert set(names(HERE.glob("test_*.py"))) - {name for shown in rows for name in shown} == own
