"""The command line. The function that starts a broker is passed in, so that the management plane never imports the
node."""

import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import redirect_stdout
from getpass import GetPassWarning
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Never, TypeAlias
from warnings import catch_warnings, simplefilter

import click

from trunkline import __version__
from trunkline.config.errors import ConfigError
from trunkline.management.command_line import BAD_USAGE, FAILED, LazyGroup, config_option, fail, no_file
from trunkline.management.meant import CONFIG, PasswdCommand, ServeCommand, choice, others_word

if TYPE_CHECKING:
    from trunkline.config.config import Config
    from trunkline.config.reader import Loaded
    from trunkline.config.section import PluginSettings

#: Runs a broker until a signal stops it, and returns the exit code. Its first argument reads the configuration, at the
#: start and at each reload; the second one names its source; the third one is of a worker, the descriptor that leads to
#: its supervisor.
Run: TypeAlias = "Callable[[Callable[[], Config], str, int | None], int]"


class _Trunkline(LazyGroup):
    """`trunkline` and `trunkline --listen …` mean `trunkline serve …`. Modules that need an extra, and those that
    serving does not need, are imported only when their command is called."""

    elsewhere: ClassVar = {
        "analytics": ("trunkline.analytics.commands", "Run jobs over recorded events, in Spark."),
        "ctl": ("trunkline.management.ctl", "Inspect and change a running broker on this machine."),
        "events": ("trunkline.management.event_commands", "Look at the event log."),
        "journal": ("trunkline.management.journal_commands", "Show the journal of a broker in a test."),
        "plugins": (
            "trunkline.management.plugin_commands",
            "List, show, enable and create plugins.",
        ),
        "pub": (
            "trunkline.management.client_commands.pub",
            "Publish messages, and wait until the server has taken them.",
        ),
        "rr": ("trunkline.management.client_commands.rr", "Publish a request, and print the responses."),
        "spark": ("trunkline.analytics.spark_commands", "Spark and its Java."),
        "streams": ("trunkline.management.stream_commands", "Streams of a running broker, and their consumers."),
        "sub": ("trunkline.management.client_commands.sub", "Print the messages of topic filters."),
        "tls": ("trunkline.management.tls_commands", "Certificates for development."),
        "store": ("trunkline.management.store_commands", "Look at the store, copy it and repair it."),
    }

    def hint(self, name: str, known: Collection[str]) -> str:
        from trunkline.management.ctl_commands import called, commands

        if "." in name or "/" in name:
            return f"; {CONFIG}"
        ours, below = others_word(name, known), called(name)
        if ours or not below:
            return super().hint(name, known) or super().hint(name, commands()).replace("mean ", "mean trunkline ctl ")
        return choice([f"trunkline ctl {line}" for line in below]) or (
            f"; trunkline ctl has several: {', '.join(line.rpartition(' ')[0] for line in below)}"
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ("-h", "--help", "--version")):
            args = ["serve", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Trunkline, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="trunkline")
def cli() -> None:
    """Trunkline, an MQTT broker. Without a command it serves."""


@cli.command(cls=ServeCommand)
@config_option
@click.option(
    "--listen",
    multiple=True,
    metavar="URL",
    help="Listen here instead: tcp://HOST:PORT, with tls, ws, wss or nats likewise, or unix:///PATH. May be repeated.",
)
@click.option("--store", metavar="FILE", help="Keep sessions and messages in this file. [default: see store.path]")
@click.option("--log-level", metavar="LEVEL", help="debug, info, warning or error.")
@click.option("--log-format", metavar="FORMAT", help="text or json.")
@click.option("--worker", type=int, hidden=True, help="A supervisor starts this as one of its workers.")
@click.pass_obj
def serve(
    run: Run,
    path: Path | None,
    listen: Sequence[str],
    store: str | None,
    log_level: str | None,
    log_format: str | None,
    worker: int | None,
) -> None:
    """Run the broker until a signal stops it (Ctrl-C, SIGTERM). SIGHUP reads configuration and files again."""
    # imported here: the commands of a client do not need it
    from trunkline.config.reader import Override, load

    overrides: dict[str, Override] = {}
    if listen:
        overrides["listeners"] = Override("--listen", list(listen))
    if store is not None:
        overrides["store.path"] = Override("--store", store)
    if log_level is not None:
        overrides["log.level"] = Override("--log-level", log_level)
    if log_format is not None:
        overrides["log.format"] = Override("--log-format", log_format)
    try:
        code = run(lambda: load(path, None, overrides, _plugin_settings).config, _source(path), worker)
    except ConfigError as error:
        _refuse(error)
    sys.exit(code)


@cli.group()
def config() -> None:
    """Check or show the configuration."""


@config.command()
@config_option
def check(path: Path | None) -> None:
    """Report everything that would keep a broker from starting, without opening listeners or starting plugins."""
    # imported here: no other command needs it
    from trunkline.management.start_check import obstacles

    if problems := obstacles(_load(path).config):
        fail(problems, BAD_USAGE)
    click.echo(f"Good: {_source(path)}.")


@config.command()
@config_option
@click.option("--format", "form", type=click.Choice(["toml", "json"]), default="toml", show_default=True)
def show(path: Path | None, form: str) -> None:
    """Print all settings in force, and the source of each. Secrets are not shown."""
    # imported here: no other command needs it
    from trunkline.management.config_view import as_json, as_toml

    loaded = _load(path)
    text = as_json(loaded) if form == "json" else f"# {_source(path)}\n{as_toml(loaded)}"
    if sys.stdout.isatty():
        _print_coloured(text, form)
    else:
        click.echo(text)


def _print_coloured(text: str, form: str) -> None:
    # imported here: it takes as long as all the rest
    from rich.console import Console
    from rich.syntax import Syntax

    Console().print(Syntax(text, form, background_color="default", word_wrap=True))


@cli.command(cls=PasswdCommand)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("name")
@click.option("--delete", is_flag=True, help="Remove the name from the file.")
@click.option("--scram", is_flag=True, help="FILE is for auth.scram_file.")
@click.option("--stdin", is_flag=True, help="Read the password from standard input (one line), without asking.")
def passwd(file: Path, name: str, delete: bool, scram: bool, stdin: bool) -> None:
    """Set the password of NAME in FILE, a file of user names or of client ids (both have the same form)."""
    # imported here: no other command needs them
    from trunkline.hooks.credentials import CredentialsError
    from trunkline.management.credential_files import change_credentials, check_change

    try:
        password: str | None = None
        if stdin and not delete:
            password = sys.stdin.buffer.readline().decode().rstrip("\r\n")
        elif not delete:
            check_change(file, name, scram=scram)
            password = _ask()
        change_credentials(file, name, password, scram=scram)
    except CredentialsError as error:
        fail([*error.problems, f"{file} is unchanged"], BAD_USAGE)
    except ValueError as error:
        fail([error], BAD_USAGE)
    except LookupError as error:
        fail([f"{file}: {error.args[0]}"], FAILED)
    except OSError as error:
        fail([f"{file}: {error.strerror or error}"], FAILED)


def _ask() -> str:
    with catch_warnings():
        simplefilter("error", GetPassWarning)
        try:
            password: str = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
        except GetPassWarning:
            raise ValueError("there is no terminal to ask for the password: --stdin reads it") from None
    return password


def _plugin_settings(name: str) -> "type[PluginSettings]":
    # imported here: a configuration may have no plugins
    from trunkline.plugins.finding import settings_model

    return settings_model(name)


def _source(path: Path | None) -> str:
    return f"configuration {path}" if path is not None else f"{no_file()}, defaults"


def _load(path: Path | None) -> "Loaded":
    # imported here: as above
    from trunkline.config.reader import load

    try:
        with redirect_stdout(sys.stderr):  # plugins may print when they are imported
            return load(path, find_plugin=_plugin_settings)
    except ConfigError as error:
        _refuse(error)


def _refuse(error: ConfigError) -> Never:
    fail(error.problems, BAD_USAGE)
