"""The examples run, print what the document says, and stand in it as they are."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
import trio
import trio.testing

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "actors.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"<!-- (examples/\S+) -->\n```python\n(.*?)```\n.*?```text\n(.*?)```", DOCUMENT, re.DOTALL)


def test_all_examples_are_in_the_document() -> None:
    assert sorted(path for path, _, _ in EXAMPLES) == [
        f"examples/{file.name}" for file in sorted((ROOT / "examples").glob("actors_*.py"))
    ]


@pytest.mark.parametrize(("path", "code", "output"), EXAMPLES, ids=[path for path, _, _ in EXAMPLES])
def test_example(path: str, code: str, output: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert (ROOT / path).read_text(encoding="utf-8") == code
    main = runpy.run_path(str(ROOT / path))["main"]
    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert capsys.readouterr().out == output
