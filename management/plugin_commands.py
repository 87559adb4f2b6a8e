"""The command group `trunkline plugins`. What a command needs is imported when it runs: plugins may bring much along."""

import json
import shutil
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict
from pathlib import Path

import click

from trunkline.management.command_line import BAD_USAGE, FAILED, NO_BROKER, config_option, fail

_now_option = click.option("--now", is_flag=True, help="Tell the running broker too.")
_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def plugins() -> None:
    """List plugins, look at one, enable it, write one of your own."""


@plugins.command("list")
@config_option
@_json_option
def list_installed(path: Path | None, as_json: bool) -> None:
    """List the plugins that are installed, and whether the configuration enables them."""
    from trunkline.management.ctl_output import print_rows
    from trunkline.management.plugin_listing import as_table, installed_rows

    with _problems_told(path):
        rows = installed_rows(path)
    print_rows("installed", [[asdict(row) if as_json else as_table(row) for row in rows]], as_json)


@plugins.command()
@click.argument("name")
@_json_option
def show(name: str, as_json: bool) -> None:
    """Say what the plugin NAME does, and what its settings and its hooks are."""
    from trunkline.management.plugin_listing import as_page, plugin_page

    with _problems_told(None):
        page = plugin_page(name)
    if as_json:
        click.echo(json.dumps(asdict(page)))
    else:
        click.echo(as_page(page, min(shutil.get_terminal_size().columns, 120)))


@plugins.command()
@click.argument("name")
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE]...")
@config_option
@click.option("--create", is_flag=True, help="Make the file if there is none.")
@_now_option
def enable(name: str, settings: Sequence[str], path: Path | None, create: bool, now: bool) -> None:
    """Have a broker with this configuration run the plugin NAME, with these settings.

    A value is written as in an environment variable: lists as a TOML array or as words with commas between, tables as an
    inline TOML table. Nothing is written unless all of it is right.
    """
    from trunkline.management import plugin_enabling, plugin_telling

    path = _needed(path)
    pairs: list[tuple[str, str]] = []
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise click.BadParameter(f"{setting!r} is not KEY=VALUE", param_hint="[KEY=VALUE]...")
        pairs.append((key, value))
    if not create and not path.exists():
        fail([f"{path}: no such file; --create makes it"], FAILED)
    with _problems_told(path):
        changed = plugin_enabling.enable(path, name, pairs, create=create)
    _say_what_became(f"{path} enables {name}", changed, now)
    if now:
        with _problems_told(path):
            told = plugin_telling.start(path, name)
        click.echo(f"{name}: {told}.")


@plugins.command()
@click.argument("name")
@config_option
@_now_option
def disable(name: str, path: Path | None, now: bool) -> None:
    """Have brokers with this configuration no longer run the plugin NAME. Its settings stay in the file."""
    from trunkline.management import plugin_enabling, plugin_telling

    path = _needed(path)
    with _problems_told(path):
        changed = plugin_enabling.disable(path, name)
    _say_what_became(f"{path} does not enable {name}", changed, now)
    if now:
        with _problems_told(path):
            told = plugin_telling.stop(path, name)
        click.echo(f"{name}: {told}.")


@plugins.command()
@click.argument("name")
@config_option
def reload(name: str, path: Path | None) -> None:
    """Have the running broker stop the plugin NAME, import its code anew and start it with the settings as they are now.
    The configuration says where the broker is."""
    from trunkline.management import plugin_telling

    with _problems_told(path):
        told = plugin_telling.reload(path, name)
    click.echo(f"{name}: {told}.")


@plugins.command()
@click.argument("name")
@click.option(
    "--directory",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The folder to make for it. [default: trunkline-NAME]",
)
def new(name: str, directory: Path | None) -> None:
    """Write the package of a plugin NAME that works and tests itself, to be changed into what you need."""
    from trunkline.management.plugin_template import write_plugin

    directory = directory or Path(f"trunkline-{name}")
    with _problems_told(directory):
        write_plugin(name, directory)
    click.echo(f"{directory} is a plugin. To install it, with what its tests need, and to test it:\n")
    click.echo(f"    python -m pip install --editable '{directory}[test]'\n    python -m pytest {directory}\n")
    click.echo(f"{directory / 'README.md'} says more.")


def _needed(path: Path | None) -> Path:
    if path is None:
        raise click.UsageError("which configuration file? Name it with --config")
    return path


def _say_what_became(what: str, changed: bool, now: bool) -> None:
    if not changed:
        what += ". Nothing was to be changed"
    elif not now:
        what += ". A broker that runs takes this up when it is started again, or at once with --now"
    click.echo(f"{what}.")


@contextmanager
def _problems_told(path: Path | None) -> Generator[None, None, None]:
    """Ends the command with what is wrong, and keeps what plugins print while they are imported out of the output."""
    from trunkline.config.errors import ConfigError
    from trunkline.management.control_choice import SeveralBrokers
    from trunkline.management.control_client import ControlError, NoBroker
    from trunkline.plugins.errors import PluginError

    try:
        with redirect_stdout(sys.stderr):
            yield
    except (ConfigError, PluginError) as error:
        fail(error.problems, BAD_USAGE)
    except NoBroker as error:
        fail([error], NO_BROKER)
    except SeveralBrokers as error:
        fail([error], BAD_USAGE)
    except ControlError as error:
        fail([error], FAILED)
    except ValueError as error:
        fail([f"{path}: {error}" if path else error], BAD_USAGE)
    except OSError as error:
        fail([f"{error.filename or path}: {error.strerror or error}"], FAILED)
