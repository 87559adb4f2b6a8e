"""A group of commands of which some are imported only when they are called: what they need may take long, or be missing."""

from collections.abc import Mapping
from importlib import import_module
from typing import ClassVar

import click


class LazyGroup(click.Group):
    """Subclass it, and say in `elsewhere` which commands there are besides those that are added to it."""

    #: By name: the module that has the command under this name, and what it does, for the group's help.
    elsewhere: ClassVar[Mapping[str, tuple[str, str]]] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *self.elsewhere])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.elsewhere:
            return super().get_command(ctx, cmd_name)
        command: click.Command = getattr(import_module(self.elsewhere[cmd_name][0]), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Of commands that are elsewhere without importing them."""
        rows = [(name, words) for name, (_, words) in self.elsewhere.items()]
        rows += [(name, command.get_short_help_str(120)) for name, command in self.commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl(sorted(rows))
