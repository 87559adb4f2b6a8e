"""The command group `trunkline streams`: the operations on streams, as `trunkline ctl streams` has them."""

from typing import cast

import click

from trunkline.management.ctl import control_options
from trunkline.management.meant import HintingGroup


class _StreamOperations(HintingGroup):
    def _group(self) -> click.Group:
        from trunkline.management.ctl_commands import commands

        return cast("click.Group", commands()["streams"])

    def list_commands(self, ctx: click.Context) -> list[str]:
        return self._group().list_commands(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self._group().get_command(ctx, cmd_name)


@click.group(cls=_StreamOperations)
@control_options
def streams() -> None:
    """Streams of a running broker on this machine, and their consumers.

    --socket or --node select the broker, or else the configuration does; without any of these it is the only running
    one.
    """
