"""What others write, and what is suggested."""

import click
import pytest
from click.testing import CliRunner

from trunkline.management.cli import cli
from trunkline.management.operations import OPERATIONS


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("ctl plugins load bans", "No such command 'load'; did you mean enable?"),
        ("ctl plugins unload bans", "No such command 'unload'; did you mean disable?"),
        ("ctl client list", "No such command 'client'; did you mean clients?"),
        ("ctl clients lst", "No such command 'lst'; did you mean list?"),
        ("ctl streams consumer list", "No such command 'consumer'; did you mean consumers?"),
        ("streams crate", "No such command 'crate'; did you mean create?"),
        ("client list", "No such command 'client'; did you mean trunkline ctl clients?"),
        ("retaind list", "No such command 'retaind'; did you mean trunkline ctl retained?"),
        ("publish a/b x", "No such command 'publish'; did you mean pub?"),
        ("confg check", "No such command 'confg'; did you mean config?"),
        ("plugin list", "No such command 'plugin'; did you mean plugins?"),
        ("start", "No such command 'start'; did you mean serve?"),
        ("run", "No such command 'run'; did you mean serve?"),
        ("ctl plugins start bans", "No such command 'start'; did you mean enable?"),
        ("ctl kick a", "No such command 'kick'; did you mean clients kick?"),
        ("ctl bans delete client_id a", "No such command 'delete'; did you mean remove?"),
        ("ctl retained remove a", "No such command 'remove'; did you mean delete?"),
        ("mosquitto.conf", "No such command 'mosquitto.conf'; the file of the configuration is --config FILE"),
        ("passwd -c users ann", "No such option '-c'; a file that is not there is made"),
        ("passwd -D users ann", "No such option '-D'; a name is removed with --delete"),
        ("passwd -b users ann secret", "No such option '-b'; a password is read from standard input with --stdin"),
        ("passwd users ann secret", "extra argument (secret); a password is read from standard input with --stdin"),
        ("ctl status --node two", "'--node'; it stands right behind ctl: trunkline ctl --node NAME …"),
        ("streams list --socket x", "'--socket'; it stands right behind ctl: trunkline ctl --socket PATH …"),
        ("ctl clients list --config x", "'--config'; it stands right behind ctl: trunkline ctl --config FILE …"),
        ("kick a", "No such command 'kick'; did you mean trunkline ctl clients kick?"),
        ("list", "No such command 'list'; trunkline ctl has several: "),
        ("xyzzy", "No such command 'xyzzy'."),
        ("--port 1883", "No such option '--port'; a broker listens by URL: --listen tcp://127.0.0.1:1883"),
        ("-p 1883", "No such option '-p'; a broker listens by URL: --listen tcp://127.0.0.1:1883"),
        ("-c mosquitto.conf", "No such option '-c'; the file of the configuration is --config FILE"),
        ("--stor x", "No such option '--stor'"),
        ("sub #", "Got unexpected extra argument (#); topics and messages are options: -t TOPIC, -m TEXT"),
        ("pub a/b x", "Got unexpected extra arguments (a/b x); topics and messages are options: -t TOPIC, -m TEXT"),
    ],
)
def test_hints(line: str, hint: str) -> None:
    result = CliRunner().invoke(cli, line.split())
    assert result.exit_code == 2
    output = " ".join(result.output.split())
    assert hint in output
    assert "?." not in output


OURS = set(cli.list_commands(click.Context(cli)))


@pytest.mark.parametrize("word", sorted({word for name in OPERATIONS for word in name.split(".")} - OURS))
def test_what_is_typed_without_ctl(word: str) -> None:
    result = CliRunner().invoke(cli, [word])
    assert result.exit_code == 2
    output = " ".join(result.output.split())
    assert f"No such command '{word}'; " in output
    # others' words for commands of our own come first
    assert "trunkline ctl" in output or word in ("publish", "start", "stop", "delete", "remove", "subscribe")
