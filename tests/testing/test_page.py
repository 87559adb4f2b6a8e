"""What docs/faults.md shows is what is in examples/, and it works."""

import re
import runpy
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from trunkline.management.cli import cli
from trunkline.testing.faults import Faults

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
SHOWN = dict(re.findall(r"<!-- (examples/\S+) -->\n```python\n(.*?)```", PAGE, re.DOTALL))


def test_every_block_of_python_is_an_example() -> None:
    assert len(SHOWN) == PAGE.count("```python") == 4
    for name, block in SHOWN.items():
        assert block == (ROOT / name).read_text(encoding="utf-8"), name


def test_replaying(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    journal = str(tmp_path / "journal")
    monkeypatch.setattr(sys, "argv", ["replay.py", journal])
    runpy.run_path(str(ROOT / "examples" / "replay.py"), run_name="__main__")
    assert f"```text\n{capsys.readouterr().out}```" in PAGE
    shown = CliRunner().invoke(cli, ["journal", "show", journal, "--client", "mary"], catch_exceptions=False).output
    assert re.findall(r"#1 mary .*", shown)[1:5] == re.findall(r"#1 mary .*", PAGE)[1:5]


def test_every_fault_is_documented() -> None:
    methods = {name for name in vars(Faults) if not name.startswith("_")} - {
        "clear",
        "remove",
        "portal",
        "check",
        "seen",
    }
    assert methods == set(
        re.findall(r"`(\w+)\(", PAGE.partition("| fault |")[2].partition("A fault selects packets")[0])
    )
