"""`trunkline journal`: journals of brokers in tests, for people."""

import json
import sys
from pathlib import Path

import click

from trunkline.management.command_line import FAILED, fail


@click.group()
def journal() -> None:
    """Look at what a broker in a test has recorded."""


@journal.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--json", "as_json", is_flag=True, help="A JSON object for each line.")
@click.option("--client", metavar="ID", help="Only connections of this client.")
def show(file: Path, as_json: bool, client: str | None) -> None:
    """Print a line for each packet in FILE: seconds since the beginning, connection and client, direction (-> to the broker,
    <- from it) and what is in it."""
    # imported here: no other command needs them
    from trunkline.management.journal_file import Journal, JournalError
    from trunkline.management.journal_view import as_records, as_text

    try:
        opened = Journal(file)
        if as_json:
            for record in as_records(opened, client):
                click.echo(json.dumps(record, ensure_ascii=False))
        else:
            for line in as_text(opened, client):
                click.echo(line)
    except BrokenPipeError:
        sys.exit(0)  # who reads has seen enough
    except JournalError as error:
        fail([error], FAILED)
    except OSError as error:
        fail([f"{file}: {error.strerror or error}"], FAILED)
