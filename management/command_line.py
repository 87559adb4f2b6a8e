"""Shared by all commands: how they report errors, and where they find the configuration."""

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import ClassVar, Final, NamedTuple, Never, TypeVar

import click
from click.core import ParameterSource

from trunkline.config.files import FILE_VARIABLE
from trunkline.config.units import parse_duration
from trunkline.management.logs import printable
from trunkline.management.meant import HintingGroup

T = TypeVar("T")

FAILED: Final = 1
#: The command or the configuration is wrong.
BAD_USAGE: Final = 2
#: No broker runs.
NO_BROKER: Final = 3

#: The default name of the configuration file.
FILE_NAME: Final = "trunkline.toml"

_WITHOUT: Final = "trunkline.without_file"


def usual_files() -> list[Path]:
    """Where a configuration file is looked for: in the current folder, then where the system keeps such files."""
    system = Path(os.environ.get("PROGRAMDATA", "C:/ProgramData")) if os.name == "nt" else Path("/etc")
    return [Path(FILE_NAME), system / "trunkline" / FILE_NAME]


def no_file() -> str:
    """States that there is no configuration file, and where it was searched for."""
    context = click.get_current_context()
    return "no configuration file" + (
        "" if _WITHOUT in context.meta else f" (neither {' nor '.join(map(str, usual_files()))})"
    )


def _without(context: click.Context, parameter: click.Parameter, given: bool) -> None:
    if given:
        context.meta[_WITHOUT] = True


def _found(context: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    if _WITHOUT in context.meta:
        if context.get_parameter_source("path") is ParameterSource.COMMANDLINE:
            raise click.UsageError("--config and --no-config exclude each other")
        return None
    return path or next((file for file in usual_files() if os.path.lexists(file)), None)


class ChosenBroker(NamedTuple):
    """The broker that a command names: by its configuration, its control socket or its node."""

    config: Path | None
    socket: Path | None
    node: str | None


def config_option(command: Callable[..., T]) -> Callable[..., T]:
    """Passes the configuration file to the command as `path`: the named one, else the usual one, else None."""
    command = click.option(
        "--no-config", is_flag=True, is_eager=True, expose_value=False, callback=_without, help="Read no file."
    )(command)
    return click.option(
        "--config",
        "path",
        type=click.Path(path_type=Path),
        envvar=FILE_VARIABLE,
        callback=_found,
        metavar="FILE",
        help=f"Configuration file (TOML). [variable: {FILE_VARIABLE}; default: {FILE_NAME} here or in the system's "
        "folder]",
    )(command)


def read_pairs(context: click.Context, parameter: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    """The callback of an argument or option that is `KEY=VALUE` and may be repeated."""
    table: dict[str, str] = {}
    for value in values:
        key, equals, text = value.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{value!r} is not KEY=VALUE", context, parameter)
        if key in table:
            raise click.BadParameter(f"{key} is given twice", context, parameter)
        table[key] = text
    return table


def read_duration(context: click.Context, parameter: click.Parameter, value: str) -> float:
    """The callback of an option that is a duration."""
    try:
        return parse_duration(value)
    except ValueError:
        raise click.BadParameter(f'{value!r}: accepted is seconds, or text such as "15m"', context, parameter) from None


def fail(problems: Iterable[object], code: int) -> Never:
    """Print the problems, one line each, and end with this exit code. The text is escaped, because clients choose their
    names."""
    for problem in problems:
        click.echo(f"trunkline: {printable(str(problem))}", err=True)
    sys.exit(code)


class LazyGroup(HintingGroup):
    """A group with commands that are imported only when they are called: their imports may be slow, or missing. A
    subclass names them in `elsewhere`."""

    #: By name: the module with the command of this name, and a description for the group's help.
    elsewhere: ClassVar[Mapping[str, tuple[str, str]]] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *self.elsewhere])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.elsewhere:
            return super().get_command(ctx, cmd_name)
        command: click.Command = getattr(import_module(self.elsewhere[cmd_name][0]), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the commands of other modules without importing them."""
        rows = [(name, words) for name, (_, words) in self.elsewhere.items()]
        rows += [(name, command.get_short_help_str(120)) for name, command in self.commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl(sorted(rows))
