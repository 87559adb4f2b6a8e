"""Every example about hooks runs, and so does every block of Python and of rules in the two documents."""

import re
import runpy
from pathlib import Path

import pytest

from trunkline.hooks.acl_file import DEFAULT_RULES, parse_rules

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("hooks_*.py"))


def blocks(document: str, language: str) -> list[str]:
    text = (ROOT / "docs" / document).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 3


@pytest.mark.parametrize("path", [path for path in EXAMPLES if path.stem != "hooks_login"], ids=lambda path: path.stem)
def test_an_example_runs(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out


async def test_the_example_that_waits_runs(capsys: pytest.CaptureFixture[str]) -> None:
    namespace = runpy.run_path(str(ROOT / "examples" / "hooks_login.py"))
    await namespace["main"]()
    assert "token" in capsys.readouterr().out


def test_the_first_example_is_its_file_and_prints_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    example = ROOT / "examples" / "hook.py"
    assert blocks("hooks.md", "python")[0] == example.read_text(encoding="utf-8")
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out == blocks("hooks.md", "text")[0]


@pytest.mark.parametrize("number", range(len(blocks("hooks.md", "python"))))
def test_python_in_the_document_runs(number: int) -> None:
    source = blocks("hooks.md", "python")[number]
    exec(compile(source, f"docs/hooks.md, block {number}", "exec"), {"__name__": "example"})  # noqa: S102 - our own document


@pytest.mark.parametrize("number", range(len(blocks("security.md", "toml"))))
def test_rules_in_the_document_are_read(number: int) -> None:
    source = blocks("security.md", "toml")[number]
    assert "[auth]" in source or "[acl]" in source or parse_rules(source)


def test_the_document_shows_the_rules_that_ship() -> None:
    assert DEFAULT_RULES in blocks("security.md", "toml")
