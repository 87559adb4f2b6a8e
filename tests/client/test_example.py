"""The examples work."""

import runpy

import pytest

from tests.test_examples import ROOT


@pytest.mark.parametrize("name", ["client.py", "client_sync.py"])
def test_the_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
    assert capsys.readouterr().out == "garden/door open\ngarden/lamp on\n"
