"""What all commands share."""

import sys
from typing import ClassVar

import click
import pytest
from click.testing import CliRunner

from trunkline.management.command_line import LazyGroup, fail


def test_each_problem_is_a_line_of_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        fail(["one", ValueError("two")], 3)
    assert ended.value.code == 3
    assert capsys.readouterr() == ("", "trunkline: one\ntrunkline: two\n")


class Lazy(LazyGroup):
    elsewhere: ClassVar = {
        "check": ("trunkline.management.cli", "Looks."),
        "gone": ("trunkline.no_such_module", "Is not there."),
    }


@click.group(cls=Lazy)
def group() -> None: ...


@group.command()
def near() -> None:
    """Is here."""
    click.echo("here")


def test_help_has_all_of_them_and_imports_none() -> None:
    before = set(sys.modules)
    shown = CliRunner().invoke(group, ["--help"]).output.split("Commands:")[1].split()
    assert shown == ["check", "Looks.", "gone", "Is", "not", "there.", "near", "Is", "here."]
    assert "trunkline.no_such_module" not in set(sys.modules) - before


def test_a_command_comes_from_where_it_is() -> None:
    assert CliRunner().invoke(group, ["near"]).output == "here\n"
    assert (
        "Report everything that would keep a broker from starting"
        in CliRunner().invoke(group, ["check", "--help"]).output
    )
    assert CliRunner().invoke(group, ["far"]).exit_code == 2
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        CliRunner().invoke(group, ["gone"], catch_exceptions=False)
