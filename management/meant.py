"""What people write who come from other brokers and clients, or who guess, and what is meant."""

from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar, Final

import click

from trunkline.config.key_path import nearest

#: Words that others have for commands, and these commands.
_WORDS: Final = {
    "start": ("enable", "serve"),
    "run": ("serve",),
    "delete": ("remove",),
    "remove": ("delete",),
    "load": ("enable",),
    "unload": ("disable",),
    "stop": ("disable",),
    "publish": ("pub",),
    "subscribe": ("sub",),
    "ban": ("bans",),
    "kick": ("disconnect",),
}
#: Command lines in one suggestion.
MAX_CHOICE: Final = 3
CONFIG: Final = "the file of the configuration is --config FILE"
_PASSWORD: Final = "a password is read from standard input with --stdin"
_LISTEN: Final = "a broker listens by URL: --listen tcp://127.0.0.1:1883"


def others_word(name: str, known: Collection[str]) -> list[str]:
    return [word for word in _WORDS.get(name, ()) if word in known][:1]


def choice(lines: Sequence[str]) -> str:
    """Suggests command lines; none of too many."""
    return f"; did you mean {' or '.join(lines)}?" if 0 < len(lines) <= MAX_CHOICE else ""


class HintingGroup(click.Group):
    """Suggests a command where there is none of a name."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, known = args[0], self.list_commands(ctx)
        if name in known or name.startswith("-"):
            return super().resolve_command(ctx, args)
        raise click.UsageError(f"No such command {name!r}{self.hint(name, known) or '.'}", ctx)

    def hint(self, name: str, known: Collection[str]) -> str:
        return choice(others_word(name, known)) or nearest(name, known)


class HintingCommand(click.Command):
    """Says what is meant by an option or argument that it does not have."""

    #: By the beginning of click's own message.
    hints: ClassVar[Mapping[str, str]]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            hint = next((hint for begin, hint in self.hints.items() if error.format_message().startswith(begin)), "")
            if not hint:
                raise
            raise click.UsageError(f"{error.format_message().split('. ')[0].rstrip('.')}; {hint}", ctx) from None


class ServeCommand(HintingCommand):
    hints: ClassVar[Mapping[str, str]] = {
        "No such option '--port'": _LISTEN,
        "No such option '-p'": _LISTEN,
        "No such option '-c'": CONFIG,
        "No such option '-v'": "more is logged with --log-level debug",
    }


def _behind_ctl(option: str) -> str:
    return f"it stands right behind ctl: trunkline ctl {option} …"


class OperationCommand(HintingCommand):
    hints: ClassVar[Mapping[str, str]] = {
        "No such option '--node'": _behind_ctl("--node NAME"),
        "No such option '--socket'": _behind_ctl("--socket PATH"),
        "No such option '--config'": _behind_ctl("--config FILE"),
    }


class PasswdCommand(HintingCommand):
    """For those who know `mosquitto_passwd`."""

    hints: ClassVar[Mapping[str, str]] = {
        "No such option '-c'": "a file that is not there is made",
        "No such option '-D'": "a name is removed with --delete",
        "No such option '-b'": _PASSWORD,
        "Got unexpected extra argument": _PASSWORD,
    }
