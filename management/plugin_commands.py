"""The command group `trunkline plugins`. A command's imports happen when it runs: plugins may import much."""

import json
import shutil
import sys
from collections.abc import Generator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import click

from trunkline.management.command_line import BAD_USAGE, FAILED, FILE_NAME, config_option, fail, read_pairs

_now_option = click.option("--now", is_flag=True, help="Apply it to the running broker, too.")
_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def plugins() -> None:
    """List, show, enable and create plugins."""


@plugins.command("list")
@config_option
@_json_option
def list_installed(path: Path | None, as_json: bool) -> None:
    """List the plugins that are installed, and whether the configuration enables them."""
    from trunkline.management.ctl_output import print_rows
    from trunkline.management.plugin_listing import as_cells, installed_rows

    with _problems_reported(path):
        rows = installed_rows(path)
    print_rows("installed", [rows if as_json else list(map(as_cells, rows))], as_json)


@plugins.command()
@click.argument("name")
@_json_option
def show(name: str, as_json: bool) -> None:
    """Describe the plugin NAME, its settings and its hooks."""
    from trunkline.management.plugin_listing import page_lines, plugin_page

    with _problems_reported(None):
        page = plugin_page(name)
    width = min(shutil.get_terminal_size().columns, 120)
    click.echo(json.dumps(page) if as_json else "\n".join(page_lines(page, width)))


@plugins.command()
@click.argument("name")
@click.argument("settings", nargs=-1, callback=read_pairs, metavar="[KEY=VALUE]...")
@config_option
@click.option(
    "--create", is_flag=True, help=f"Make the file if there is none: {FILE_NAME} here, if --config names no other."
)
@_now_option
def enable(name: str, settings: dict[str, str], path: Path | None, create: bool, now: bool) -> None:
    """Enable the plugin NAME in the configuration file, with these settings.

    A value is written as in an environment variable: lists as a TOML array or as words with commas between, tables as
    an inline TOML table. Nothing is written if any of it is wrong.
    """
    from trunkline.management import plugin_enabling

    path = Path(FILE_NAME) if path is None and create else _needed(path)
    is_new = not path.exists()
    if is_new and not create:
        fail([f"{path}: no such file; --create makes it"], FAILED)
    with _problems_reported(path):
        changed = plugin_enabling.enable(path, name, settings, create=create)
    if is_new:
        click.echo(f"{path} is new, and enables {name}: `trunkline --config {path}` starts a broker with it.")
    else:
        _report_change(f"{path} enables {name}", changed, now)
    if now:
        _change_broker(path, name, "enable")


@plugins.command()
@click.argument("name")
@config_option
@_now_option
def disable(name: str, path: Path | None, now: bool) -> None:
    """Disable the plugin NAME in the configuration file. Its settings stay there."""
    from trunkline.management import plugin_enabling

    path = _needed(path)
    with _problems_reported(path):
        changed = plugin_enabling.disable(path, name)
    _report_change(f"{path} {'no longer enables' if changed else 'does not enable'} {name}", changed, now)
    if now:
        _change_broker(path, name, "disable")


@plugins.command()
@click.argument("name")
@config_option
def reload(name: str, path: Path | None) -> None:
    """Restart the plugin NAME in the running broker, with its code imported anew and the current settings. The
    configuration says where the broker is."""
    _change_broker(path, name, "reload")


@plugins.command()
@click.argument("name")
@click.option(
    "--directory",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The folder to create. [default: trunkline-NAME]",
)
def new(name: str, directory: Path | None) -> None:
    """Create the package of a plugin NAME that works and has tests, as a start for your own."""
    from trunkline.management.plugin_template import write_plugin

    directory = directory or Path(f"trunkline-{name}")
    with _problems_reported(directory):
        write_plugin(name, directory)
    click.echo(f"{directory} is a plugin. To install it, with what its tests need, and to test it:\n")
    click.echo(f"    python -m pip install --editable '{directory}[test]'\n    python -m pytest {directory}\n")
    click.echo(f"{directory / 'README.md'} says more.")


def _needed(path: Path | None) -> Path:
    if path is None:
        raise click.UsageError(f"there is no configuration file, {FILE_NAME} here, say: name one with --config")
    return path


def _report_change(what: str, changed: bool, now: bool) -> None:
    if not changed:
        what += ". Nothing was changed"
    elif not now:
        what += ". A running broker applies this at its next reload or start, or at once with --now"
    click.echo(f"{what}.")


def _change_broker(path: Path | None, name: str, change: str) -> None:
    """Have the running broker of this configuration enable, disable or reload a plugin."""
    from trunkline.management.control_choice import connected

    with connected(path) as broker:
        status = next((row["status"] for row in broker.rows("plugins.list") if row["name"] == name), "")
        running = status in ("running", "starting", "in worker 0")
        if change == "disable" and not running:
            click.echo(f"{name}: it does not run in the broker {broker.node}.")
            return
        if change == "enable" and running:
            change = "reload"
        broker.call(f"plugins.{change}", name=name)
        done = {"enable": "started it", "reload": "started it anew", "disable": "stopped it"}[change]
        click.echo(f"{name}: the broker {broker.node} has {done}.")


@contextmanager
def _problems_reported(path: Path | None) -> Generator[None]:
    """Ends the command with an error line, and keeps text that plugins print while they are imported out of the
    output."""
    from trunkline.config.errors import ConfigError
    from trunkline.plugins.errors import PluginError

    try:
        with redirect_stdout(sys.stderr):
            yield
    except (ConfigError, PluginError) as error:
        fail(error.problems, BAD_USAGE)
    except ValueError as error:
        fail([f"{path}: {error}" if path else error], BAD_USAGE)
    except OSError as error:
        fail([f"{error.filename or path}: {error.strerror or error}"], FAILED)
