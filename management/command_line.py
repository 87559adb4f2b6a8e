"""What all commands share: how they end when something is wrong, and where they find the configuration."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Never

import click

from trunkline.broker.config import FILE_VARIABLE
from trunkline.management.logs import printable

FAILED: Final = 1
#: Of the command or of the configuration.
BAD_USAGE: Final = 2
#: There is none to be told.
NO_BROKER: Final = 3

config_option = click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path),
    envvar=FILE_VARIABLE,
    metavar="FILE",
    help=f"Configuration file (TOML). [variable: {FILE_VARIABLE}]",
)


def fail(problems: Iterable[object], code: int) -> Never:
    """Say what is wrong, a line each, and end with this exit code. Clients choose their names, and may be named here."""
    for problem in problems:
        click.echo(f"trunkline: {printable(str(problem))}", err=True)
    sys.exit(code)
