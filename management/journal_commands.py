"""`trunkline journal`: shows the journals of brokers in tests."""

import json
import sys
from math import inf
from pathlib import Path

import click

from trunkline.management.command_line import FAILED, fail


@click.group()
def journal() -> None:
    """Show the journal of a broker in a test."""


@journal.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--json", "as_json", is_flag=True, help="A JSON object for each line.")
@click.option("--client", metavar="ID", help="Only connections of this client.")
@click.option(
    "--packet", metavar="TYPE", multiple=True, help="Only packets of this type, such as PUBLISH; may be repeated."
)
@click.option("--topic", metavar="FILTER", help="Only PUBLISH packets whose topic matches.")
@click.option("--after", metavar="SECONDS", default=0.0, help="Only from this time on, in seconds since the beginning.")
@click.option("--before", metavar="SECONDS", default=inf, help="Only up to this time.", show_default=False)
def show(
    file: Path,
    as_json: bool,
    client: str | None,
    packet: tuple[str, ...],
    topic: str | None,
    after: float,
    before: float,
) -> None:
    """Print a line for each packet in FILE: seconds since the beginning, connection and client, direction (-> to the
    broker, <- from it) and its contents."""
    # imported here: no other command needs them
    from trunkline.management.journal_file import Journal, JournalError
    from trunkline.management.journal_view import Chosen, as_records, as_text
    from trunkline.mqtt.errors import ProtocolError
    from trunkline.mqtt.packets import PacketType
    from trunkline.mqtt.topics import validate_filter

    types = tuple(name.upper() for name in packet)
    known = [kind.name for kind in PacketType if kind is not PacketType.WILL]
    if unknown := [name for name in types if name not in known]:
        raise click.BadParameter(
            f"no packet is called {unknown[0]!r}; there are {', '.join(known)}", param_hint="--packet"
        )
    try:
        validate_filter(topic or "#")
    except ProtocolError as error:
        raise click.BadParameter(str(error), param_hint="--topic") from None
    chosen = Chosen(client, types, topic, after, before)
    try:
        opened = Journal(file)
        if as_json:
            for record in as_records(opened, chosen):
                click.echo(json.dumps(record, ensure_ascii=False))
        else:
            for line in as_text(opened, chosen):
                click.echo(line)
    except BrokenPipeError:
        sys.exit(0)  # the reader of the pipe has closed it
    except JournalError as error:
        fail([error], FAILED)
    except OSError as error:
        fail([f"{file}: {error.strerror or error}"], FAILED)
