"""The example works."""

import runpy

import pytest

from tests.test_examples import ROOT


def test_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "client.py"), run_name="__main__")
    assert capsys.readouterr().out == "garden/door open\ngarden/lamp on\n"
