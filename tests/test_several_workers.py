"""What is not tried with several workers is there, and has a reason."""

import ast
from pathlib import Path

import pytest

from tests import several_workers
from tests.several_workers import ONE_WORKER, environment

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", ONE_WORKER)
def test_what_is_listed_is_there(name: str) -> None:
    module, _, test = name.partition("::")
    tree = ast.parse((ROOT / module).read_text(encoding="utf-8"))
    assert not test or test.partition("[")[0] in {getattr(each, "name", "") for each in tree.body}


def test_a_process_has_as_many_as_the_run_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(several_workers, "count", 1)
    assert environment() == {}
    monkeypatch.setattr(several_workers, "count", 3)
    assert environment() == {"TRUNKLINE_NODE__WORKERS": "3"}
