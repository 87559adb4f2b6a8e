"""The page of the shipped plugins: its examples work, and it knows them all."""

import re
import runpy
import tomllib
from pathlib import Path

import pytest

from trunkline.config.errors import ConfigError, Problem
from trunkline.config.reader import from_mapping
from trunkline.plugins.finding import settings_model, shipped

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "plugins-shipped.md").read_text(encoding="utf-8")
TABLES = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
EXAMPLES = re.findall(r"<!-- (examples/\S+) -->\n```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("text", TABLES, ids=lambda text: text.splitlines()[0].strip("[]"))
def test_its_tables_are_configurations(text: str) -> None:
    """But for the files that they name."""
    table, problems = tomllib.loads(text), list[Problem]()
    try:
        assert from_mapping(table, settings_model).plugins.keys() == table["plugins"].keys()
    except ConfigError as error:
        problems = error.problems
    assert [problem for problem in problems if not problem.text.startswith("no file")] == []


@pytest.mark.parametrize(("name", "block"), EXAMPLES)
def test_its_examples_are_files(name: str, block: str) -> None:
    assert block == (ROOT / name).read_text(encoding="utf-8")


def test_every_block_is_one_of_these() -> None:
    assert PAGE.count("```python") == len(EXAMPLES)
    assert PAGE.count("```toml") == len(TABLES)


def test_its_sections_are_plugins() -> None:
    sections = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
    listed = re.findall(r"^\| \[(.+?)\]\(#(.+?)\)", PAGE, re.MULTILINE)
    assert set(sections) <= set(shipped())
    assert listed == [(name, name) for name in sections]


def test_the_faults_example(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "faults.py"), run_name="__main__")
    said = capsys.readouterr().out.splitlines()
    assert said == ["disconnected: Server busy", "acknowledged", "disconnected: Normal disconnection"]
