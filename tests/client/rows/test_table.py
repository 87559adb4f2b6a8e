"""Every row of the published tables is a test or has a reason, and every test is of a row."""

import ast
from pathlib import Path

from tests.client.rows.table import TABLES, NotApplicable

#: How many rows the tables have.
ROWS = {"session client": 67, "normative": 35}


def names() -> list[str]:
    """The names of the test functions in this folder."""
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in Path(__file__).parent.glob("test_*.py")]
    functions = (
        node for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return [function.name for function in functions if function.name.startswith("test_")]


def test_the_tables_are_complete() -> None:
    assert {name: len(rows) for name, rows in TABLES.items()} == ROWS


def test_every_row_is_shown_or_does_not_apply() -> None:
    found = names()
    missing = [
        f"{table}: {row}"
        for table, rows in TABLES.items()
        for row, shown in rows.items()
        if (not shown.reason if isinstance(shown, NotApplicable) else not shown or set(shown) - set(found))
    ]
    assert missing == []
    # of two functions with one name only the second would run, and which of two files a row means would be open
    assert len(found) == len(set(found))


def test_every_test_is_of_a_row() -> None:
    rows = [shown for rows in TABLES.values() for shown in rows.values() if not isinstance(shown, NotApplicable)]
    own = {name for name, value in globals().items() if name.startswith("test_") and callable(value)}
    assert set(names()) - {name for shown in rows for name in shown} == own
