"""The example of docs/protocol.md is the one in examples/, and says what the page says."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")


def test_the_page_shows_the_example() -> None:
    found = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    assert found[1] == (ROOT / "examples" / "codec.py").read_text(encoding="utf-8")


def test_it_prints_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "codec.py"))
    found = re.search(r"```text\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    assert capsys.readouterr().out == found[1]
