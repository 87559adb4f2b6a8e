"""Journals with some entries, and how a command shows them."""

from pathlib import Path

from click.testing import CliRunner, Result

from trunkline.management.cli import cli
from trunkline.management.journal_file import Entry, JournalHeader, pack_entry, pack_header


def show(path: Path, *options: str) -> Result:
    return CliRunner().invoke(cli, ["journal", "show", str(path), *options])


def write(path: Path, *entries: Entry) -> Path:
    path.write_bytes(b"".join([pack_header(JournalHeader(1000.0, "1.2.3")), *map(pack_entry, entries)]))
    return path
