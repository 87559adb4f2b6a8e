"""What docs/faults.md shows is what is in examples/, and it works."""

import re
import subprocess
import sys
from pathlib import Path

from trunkline.testing.faults import Faults

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
SHOWN = dict(re.findall(r"<!-- (examples/\S+) -->\n```python\n(.*?)```", PAGE, re.DOTALL))


def test_every_block_of_python_is_an_example() -> None:
    assert len(SHOWN) == PAGE.count("```python") == 3
    for name, block in SHOWN.items():
        assert block == (ROOT / name).read_text(encoding="utf-8"), name


def test_examples_that_are_tests_pass(tmp_path: Path) -> None:
    examples = [str(ROOT / name) for name in SHOWN if name.endswith("_test.py")]
    assert len(examples) == 2
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    command = [sys.executable, "-m", "pytest", "-q", "-c", str(tmp_path / "pytest.ini"), "-p", "no:cacheprovider"]
    for other in ("trio", "asyncio", "anyio"):
        command += ["-p", f"no:{other}"]
    done = subprocess.run([*command, *examples], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^\d+ passed in", done.stdout, re.MULTILINE), done.stdout


def test_replaying(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples" / "replay.py"), str(tmp_path / "journal")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert f"```text\n{done.stdout}```" in PAGE
    command = [sys.executable, "-m", "trunkline", "journal", "show", str(tmp_path / "journal"), "--client", "mary"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert re.findall(r"#1 mary .*", shown)[1:5] == re.findall(r"#1 mary .*", PAGE)[1:5]


def test_every_fault_is_documented() -> None:
    methods = {name for name in vars(Faults) if not name.startswith("_")} - {"clear", "remove", "portal"}
    assert methods == set(
        re.findall(r"`(\w+)\(", PAGE.partition("| fault |")[2].partition("A fault selects packets")[0])
    )
