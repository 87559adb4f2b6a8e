import pytest


@pytest.mark.parametrize("command", [["streams"], ["ctl", "streams"], ["streams", "consumers", "create"]])
def test_the_commands_are_there_under_two_names(command: list[str]) -> None:
    from click.testing import CliRunner

    from trunkline.management.cli import cli

    shown = CliRunner().invoke(cli, [*command, "--help"])
    assert shown.exit_code == 0
    assert "consumers" in shown.output or "CONSUMER" in shown.output
