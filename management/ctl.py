"""The command group `trunkline ctl`. What its commands need is imported when one of them is asked for."""

from pathlib import Path

import click

from trunkline.management.command_line import ChosenBroker, config_option


class _Operations(click.Group):
    """Its commands are the broker's operations."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        from trunkline.management.ctl_commands import commands

        return sorted(commands())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        from trunkline.management.ctl_commands import commands

        return commands().get(cmd_name)


@click.group(cls=_Operations)
@config_option
@click.option(
    "--socket",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="The broker's control socket. [variable: TRUNKLINE_CONTROL__PATH]",
)
@click.option(
    "--node",
    metavar="NAME",
    help="Name of the broker's node, whose socket is in the usual place. [variable: TRUNKLINE_NODE__NAME]",
)
@click.pass_context
def ctl(context: click.Context, path: Path | None, socket: Path | None, node: str | None) -> None:
    """Inspect and change a running broker on this machine.

    --socket or --node select the broker, or else the configuration does; without any of them it is the only one that
    runs.

    Lists are tables, or with --json an object a line. The exit code is 1 where something is not there or cannot be
    done, 2 where the command is wrong, and 3 where no broker runs.
    """
    context.obj = ChosenBroker(path, socket, node)
