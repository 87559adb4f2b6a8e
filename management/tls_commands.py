"""`trunkline tls`: certificates for development."""

from functools import partial
from pathlib import Path

import click

from trunkline.management.certificates import Authority
from trunkline.management.command_line import BAD_USAGE, FAILED, fail
from trunkline.management.rewriting import rewrite


@click.group()
def tls() -> None:
    """Certificates for development."""


@tls.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default="tls")
@click.option(
    "--host", "hosts", multiple=True, metavar="NAME", help="A name or address of the broker. May be repeated."
)
@click.option(
    "--client", "clients", multiple=True, metavar="NAME", help="Make a client's certificate. May be repeated."
)
@click.option("--days", type=click.IntRange(1, 3650), default=365, show_default=True, help="How long they are valid.")
def selfsigned(folder: Path, hosts: tuple[str, ...], clients: tuple[str, ...], days: int) -> None:
    """Make an authority in FOLDER, and the certificates of a broker and of clients that it signs. For production,
    use those of a real authority. An authority that FOLDER has already signs further certificates, such as those of
    more clients. Existing files are kept."""
    own, server = (folder / "ca.pem", folder / "ca.key"), (folder / "server.pem", folder / "server.key")
    try:
        files: dict[str, bytes] = {}
        if all(file.exists() for file in own):
            authority = Authority(days, *(file.read_bytes() for file in own))
        else:
            authority = Authority(days)
            files |= authority.own_files()
        if hosts or not (clients and all(file.exists() for file in server)):
            files |= authority.issue_server(*hosts)
        for name in clients:
            files |= authority.issue_client(name)
    except ImportError as error:
        fail([str(error)], FAILED)
    except ValueError as error:
        fail([str(error)], BAD_USAGE)
    except OSError as error:
        fail([f"{error.filename}: {error.strerror}"], FAILED)
    present = [str(folder / name) for name in files if (folder / name).exists()]
    if present:
        fail([f"{each} exists already" for each in present], FAILED)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            rewrite(folder / name, partial(_replaced, data.decode()), private=name.endswith(".key"))
    except OSError as error:
        fail([f"{error.filename}: {error.strerror}"], FAILED)
    for name in files:
        click.echo(folder / name)
    click.echo(f"\ntrunkline --listen 'tls://127.0.0.1:8883?cert={server[0]}&key={server[1]}'")


def _replaced(text: str, _former: str) -> str:
    return text
