"""Mutants are other programs than the module, and one place each."""

import ast
from pathlib import Path

import pytest

from tests import mutants

MODULE = '''\
def f(a: int, b: list[int]) -> int:
    """What it does."""
    if a < 1 and not b:
        b.append(a)
        a += 1
    elif a == 7:
        return len(b)
    return a + 1
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "m.py").write_text(MODULE)
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    return "m.py"


def test_where_a_module_is_tested() -> None:
    assert mutants.tests_of("nats/client/requests.py") == "nats/client/test_requests.py"
    assert mutants.tests_of("src/trunkline/network_reads.py") == "test_network_reads.py"


def test_every_kind_of_change(module: str) -> None:
    assert {each.what for each in mutants.mutants(module)} >= {
        "`if a <= 1 and (not b):` for `if a < 1 and (not b):`",
        "`if a < 1 or not b:` for `if a < 1 and (not b):`",
        "`if a < 1 and (not not b):` for `if a < 1 and (not b):`",
        "`if a < 2 and (not b):` for `if a < 1 and (not b):`",
        "`if a != 7:` for `if a == 7:`",
        "`a -= 1` for `a += 1`",
        "`b.append(a)` after `a += 1`",
        "without `b.append(a)`",
        "`return None` for `return len(b)`",
        "`return a - 1` for `return a + 1`",
    }


def test_each_is_a_program_of_its_own(module: str) -> None:
    sources = [each.source() for each in mutants.mutants(module)]
    trees = [ast.dump(ast.parse(source)) for source in sources]
    assert len(trees) > 12
    assert ast.dump(ast.parse(MODULE)) not in trees


def test_a_mutant_is_noticed_by_the_tests_of_its_module_and_does_not_stay(module: str, tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_m.py").write_text("from m import f\n\n\ndef test_f():\n    assert f(3, []) == 4\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    noticed = next(each for each in mutants.mutants(module) if each.what == "`if a != 7:` for `if a == 7:`")
    assert mutants.notices(noticed, tmp_path, 60)
    harmless = next(each for each in mutants.mutants(module) if each.what == "without `b.append(a)`")
    assert not mutants.notices(harmless, tmp_path, 60)
    assert (tmp_path / "m.py").read_text() == MODULE


def test_forks_try_the_mutants_one_after_another(
    module: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "__init__.py").touch()
    freezing = "import gc\n\n\ndef pytest_collection_finish():\n    gc.freeze()\n"
    (tmp_path / "tests" / "conftest.py").write_text(freezing)  # as that of the repository
    (tmp_path / "tests" / "mutant_forks.py").symlink_to(Path(mutants.__file__).with_name("mutant_forks.py"))
    first = "def test_f():\n    assert f(0, []) == 2\n"
    second = "def test_g():\n    assert f(3, []) == 4\n"
    (tmp_path / "tests" / "test_m.py").write_text(f"from m import f\n\n\n{first}\n\n{second}")
    frozen = "import gc\n\n\ndef pytest_collection_finish() -> None:\n    gc.freeze()\n"  # as tests/conftest.py does it
    (tmp_path / "tests" / "conftest.py").write_text(frozen)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    every = [*mutants.mutants(module)]
    assert mutants.tried("test_m.py", every, tmp_path, float("inf"))[1] == len(every)
    survived = capsys.readouterr().out
    assert "`if a <= 1 and (not b):`" in survived
    assert "without `b.append(a)`" in survived
    assert "`a -= 1` for `a += 1`" not in survived
    assert "`if a != 7:`" not in survived
    assert "without `return a + 1`" not in survived
    assert (tmp_path / "m.py").read_text() == MODULE
