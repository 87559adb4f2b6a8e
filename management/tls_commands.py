"""`trunkline tls`: certificates for development."""

import re
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import click

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
    use those of a real authority. Existing files are kept."""
    try:
        # imported here: an extra brings it
        import trustme
    except ImportError:
        fail(["this needs the library trustme: install trunkline[tls]"], FAILED)
    wrong = [name for name in clients if name in ("ca", "server") or not re.fullmatch(r"[\w-][\w.-]*", name)]
    if wrong:
        fail([f"{name!r} cannot be the name of a client's files" for name in wrong], BAD_USAGE)
    until = datetime.now(UTC) + timedelta(days=days)
    authority = trustme.CA(organization_name="Trunkline development", key_type=trustme.KeyType.ECDSA)
    names = hosts or ("localhost", "127.0.0.1", "::1")
    server = authority.issue_cert(*names, common_name=names[0], not_after=until)
    files = {"ca.pem": authority.cert_pem.bytes(), "ca.key": authority.private_key_pem.bytes()}
    made = {"server": server, **{name: authority.issue_cert(common_name=name, not_after=until) for name in clients}}
    for name, certificate in made.items():
        files[f"{name}.pem"] = b"".join(blob.bytes() for blob in certificate.cert_chain_pems)
        files[f"{name}.key"] = certificate.private_key_pem.bytes()
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
    click.echo(f"\ntrunkline --listen 'tls://127.0.0.1:8883?cert={folder / 'server.pem'}&key={folder / 'server.key'}'")


def _replaced(text: str, _former: str) -> str:
    return text
