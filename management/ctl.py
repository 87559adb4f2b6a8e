"""The command group `trunkline ctl`. Its commands are imported when one of them is called."""

from collections.abc import Callable, Collection
from functools import wraps
from pathlib import Path

import click

from trunkline.management.command_line import ChosenBroker, config_option
from trunkline.management.meant import HintingGroup, choice


class _Operations(HintingGroup):
    """Its commands are the broker's operations."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        from trunkline.management.ctl_commands import commands

        return sorted(commands())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        from trunkline.management.ctl_commands import commands

        return commands().get(cmd_name)

    def hint(self, name: str, known: Collection[str]) -> str:
        from trunkline.management.ctl_commands import called

        return choice(called(name)) or super().hint(name, known)


def control_options(command: Callable[..., object]) -> Callable[..., object]:
    """Of a group of commands: which broker they are for."""

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
    @wraps(command)
    def chosen(context: click.Context, path: Path | None, socket: Path | None, node: str | None) -> None:
        context.obj = ChosenBroker(path, socket, node)
        command()

    return chosen


@click.group(cls=_Operations)
@control_options
def ctl() -> None:
    """Inspect and change a running broker on this machine.

    --socket or --node select the broker, or else the configuration does; without any of these it is the only running
    one.

    Lists are printed as tables, or with --json as one JSON object per line. The exit code is 1 if something does not
    exist or cannot be done, 2 if the command is wrong, and 3 if no broker runs.
    """
