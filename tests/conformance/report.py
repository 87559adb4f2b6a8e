"""docs/conformance.md: which test shows which statement. Written by `python -m tests.conformance.report`."""

import importlib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from tests.conformance.statement import Statement
from tests.conformance.statements_v5 import V5
from tests.conformance.statements_v311 import V311

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "conformance.md"

_INTRODUCTION = """\
# Conformance

Every numbered statement of the two specifications, in a few words of our own, and the tests that show how Trunkline
keeps it. Statements that no test shows say why. The tests are in `tests/conformance/`: they speak raw packets over
TCP, built and read by code that shares nothing with Trunkline's codec. `pytest -k 3.1.2-4` runs the tests of one
statement.

For a statement that binds the client, a test shows what Trunkline does when a client does not keep it. Statements of
3.1.1 are written `MQTT3-…`, because both specifications use the same numbers.

`python -m tests.conformance.report` writes this page.
"""


def demonstrations() -> dict[str, list[str]]:
    """Statement ids and the tests that show them, as `module::test`."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(HERE.glob("test_*.py")):
        module = importlib.import_module(f"tests.conformance.{path.stem}")
        for name, test in vars(module).items():
            if name.startswith("test_"):
                for id in getattr(test, "shows", ()):
                    found[id].append(f"{path.stem}::{name}")
    return found


def _rows(statements: Iterable[Statement], shown: dict[str, list[str]]) -> Iterable[str]:
    yield "| statement | binds | in short | shown by |"
    yield "|---|---|---|---|"
    for statement in statements:
        tests = [f"`{test}`" for test in shown.get(statement.id, ())]
        where = ", ".join(tests) if tests else f"not shown: {statement.unseen}"
        summary = statement.summary.replace("|", "\\|")
        yield f"| {statement.id} | {statement.binds} | {summary} | {where} |"


def _part(title: str, statements: tuple[Statement, ...], shown: dict[str, list[str]]) -> str:
    seen = sum(statement.id in shown for statement in statements)
    count = f"{seen} of {len(statements)} statements are shown by tests."
    return "\n".join([f"## {title}", "", count, "", *_rows(statements, shown), ""])


def page() -> str:
    shown = demonstrations()
    return "\n".join([_INTRODUCTION, _part("MQTT 5.0", V5, shown), _part("MQTT 3.1.1", V311, shown)])


if __name__ == "__main__":
    PAGE.write_text(page())
