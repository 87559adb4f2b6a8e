"""The command group `trunkline ctl`. What its commands need is imported when one of them is asked for."""

from dataclasses import dataclass
from pathlib import Path

import click

from trunkline.broker.settings import NodeSettings


@dataclass(frozen=True, slots=True)
class Target:
    """Which broker."""

    path: Path | None
    node: str


class _Operations(click.Group):
    """Its commands are the broker's operations."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        from trunkline.management.ctl_commands import commands

        return sorted(commands())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        from trunkline.management.ctl_commands import commands

        return commands().get(cmd_name)


@click.group(cls=_Operations)
@click.option(
    "--socket",
    "path",
    type=click.Path(path_type=Path),
    envvar="TRUNKLINE_CONTROL__PATH",
    metavar="PATH",
    help="The broker's control socket. [variable: TRUNKLINE_CONTROL__PATH]",
)
@click.option(
    "--node",
    envvar="TRUNKLINE_NODE__NAME",
    default=NodeSettings().name,
    show_default=True,
    metavar="NAME",
    help="Name of the broker's node, whose socket is in the usual place. [variable: TRUNKLINE_NODE__NAME]",
)
@click.pass_context
def ctl(context: click.Context, path: Path | None, node: str) -> None:
    """Look at a running broker on this machine, and change it.

    Lists are tables, or with --json an object a line. The exit code is 1 where something is not there or cannot be done,
    2 where the command is wrong, and 3 where no broker runs.
    """
    context.obj = Target(path, node)
