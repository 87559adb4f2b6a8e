"""`trunkline events`: inspects and compacts the event log. The broker need not run."""

from __future__ import annotations

import json
import sys
import time
from base64 import b64encode
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import click

from trunkline.management.command_line import BAD_USAGE, FAILED, fail, read_duration, read_pairs
from trunkline.management.ctl_output import print_columns
from trunkline.management.logs import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trunkline.events.reader import EventLog

_root = click.argument("root", metavar="[LOG]", default="event-log")
_as_json = click.option("--json", "as_json", is_flag=True, help="As JSON, one object per line.")


class _Command(click.Command):
    """A command that reports an error in one line. Its help works without the extra."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            from pyarrow import ArrowException

            from trunkline.events.layout import LogError
        except ImportError as error:
            fail([f"needs {error.name}: pip install 'trunkline[events]'"], FAILED)
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # from `| head`: click ends silently then
            raise
        except (LogError, OSError, ArrowException) as error:
            fail([error], FAILED)


class _Log(click.Group):
    command_class = _Command


@click.group(cls=_Log)
def events() -> None:
    """Look at the event log.

    LOG is its folder (event-log, if not given), or a place that pyarrow knows, such as s3://bucket/log.
    """


def _open(root: str) -> EventLog:
    from trunkline.events.layout import LogError, local_root
    from trunkline.events.reader import EventLog

    local = local_root(root)
    if local is not None and local.is_file():
        raise LogError(f"{root} is a file, and an event log is a folder")
    log = EventLog(root)
    log.refresh()
    if not log.nodes() and not any(log.files().values()):
        raise LogError(f"no event log is in {root}")
    return log


@events.command()
@_root
@click.option("-n", "count", type=click.IntRange(min=0), default=20, show_default=True, help="Show this many events.")
@click.option("-f", "--follow", is_flag=True, help="Go on with new events.")
@click.option("--node", default="", help="Only of this node: its name, or name@incarnation.")
@click.option("--kind", "kinds", multiple=True, metavar="PATTERN", help="Only of this kind, such as message.*.")
@click.option("--client", "clients", multiple=True, metavar="PATTERN", help="Only about this client, such as dev-*.")
@click.option("--topic", "topics", multiple=True, metavar="FILTER", help="Only with a topic that matches.")
@_as_json
def tail(
    root: str,
    count: int,
    follow: bool,
    node: str,
    kinds: tuple[str, ...],
    clients: tuple[str, ...],
    topics: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show the newest events."""
    from trunkline.events.inspection import Selection, following, newest
    from trunkline.mqtt.errors import ProtocolError
    from trunkline.mqtt.topics import validate_filter

    for topic in topics:
        try:
            validate_filter(topic)
        except ProtocolError as error:
            raise click.BadParameter(str(error), param_hint="--topic") from None
    for kind in kinds:
        _check_kind(kind)
    log = _open(root)
    choice = Selection(node, kinds, clients, topics)
    if node and not follow and not any(map(choice.has_node, log.nodes())):
        raise click.BadParameter(f"no node {node} is in {root}, only {', '.join(log.nodes())}", param_hint="--node")
    show: Callable[[Mapping[str, Any]], str] = _json if as_json else _line
    rows, ends = newest(log, choice, count)
    for row in rows:
        click.echo(show(row))
    try:
        while follow:
            time.sleep(0.2)
            for row in following(log, choice, ends):
                click.echo(show(row))
    except KeyboardInterrupt:
        pass


def _check_kind(pattern: str) -> None:
    """Refuse a pattern that does not match any kind of event: nothing would ever be shown."""
    from fnmatch import fnmatchcase

    from trunkline.config.key_path import nearest
    from trunkline.events.schema import OWN_KINDS
    from trunkline.hooks.points import POINTS

    known = sorted({kind.name for kind in OWN_KINDS} | {point.name for point in POINTS})
    if not any(fnmatchcase(kind, pattern) for kind in known):
        hint = nearest(pattern, known) or f"; there are {', '.join(known)}"
        raise click.BadParameter(f"no kind of event matches {pattern!r}{hint}", param_hint="--kind")


def _json(row: Mapping[str, Any]) -> str:
    return json.dumps({name: _plain(name, value) for name, value in row.items() if value is not None})


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, bytes):
        return value.hex() if name == "guid" else b64encode(value).decode()
    return value


def _line(row: Mapping[str, Any]) -> str:
    """Time, place and kind, then the other columns. Clients choose names, so nothing unprintable is printed."""
    head = f"{_plain('time', row['time'])} {row['node']} {row['seq']} {row['kind']}"
    rest = [
        f"{name}={json.dumps(_plain(name, value))}"
        if isinstance(value, str | list)
        else f"{name}={_plain(name, value)}"
        for name, value in row.items()
        if value is not None
        and name not in ("time", "node", "incarnation", "seq", "kind")
        and (name, value) != ("weight", 1)
    ]
    return printable(" ".join([head, *rest]))


@events.command()
@_root
@_as_json
def stat(root: str, as_json: bool) -> None:
    """Show the rows of each node, what is missing of them, and how far each consumer has read. The exit code is 1 if a
    file cannot be read. Damage within files is found by `check`."""
    from dataclasses import asdict

    from trunkline.events.figures import figures

    found = figures(_open(root), root)
    nodes = [
        {
            **asdict(node),
            "oldest": _moment(node.oldest),
            "newest": _moment(node.newest),
        }
        for node in found.nodes
    ]
    readers = [asdict(reader) for reader in found.consumers]
    if as_json:
        for row in [*nodes, *readers]:
            click.echo(json.dumps(row))
    else:
        _print(nodes, "node rows missing first end ended segments size oldest newest")
        for node in found.nodes:
            for note in node.notes:
                click.echo(printable(f"{node.node}: {note}"))
        if readers:
            click.echo()
            _print(readers, "consumer lag missed updated")
    if found.problems:
        fail(found.problems, FAILED)


def _moment(microseconds: int) -> str:
    return datetime.fromtimestamp(microseconds / 1e6, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _print(rows: list[dict[str, Any]], names: str) -> None:
    columns = names.split()
    cells = [[printable(_cell(row[name])) for name in columns] for row in rows]
    print_columns(columns, cells, [])


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


@events.command()
@_root
@_as_json
def check(root: str, as_json: bool) -> None:
    """Read the whole log, verify its checksums, and report what is wrong: then the exit code is 1."""
    from trunkline.events.checking import check as check_log

    files = rows = problems = 0
    #: Where each node's files end so far: rows may be in several, for a while or for good.
    ends: dict[str, int] = {}
    for found in check_log(_open(root)):
        files += 1
        before = max(found.first, ends.get(found.node, 0))
        ends[found.node] = max(before, found.end)
        rows += ends[found.node] - before
        for finding in found.findings:
            problems += 1
            if as_json:
                click.echo(json.dumps(finding._asdict()))
            else:
                rows_found = f"rows {finding.first} to {finding.end - 1} of " if finding.first < finding.end else ""
                click.echo(printable(f"{finding.problem}: {finding.path}: {rows_found}{finding.node}: {finding.text}"))
    if not as_json:
        click.echo(
            f"{files:,} file{'s' * (files != 1)} with {rows:,} rows: {problems or 'no'} problem{'s' * (problems != 1)}"
        )
    if problems:
        raise SystemExit(FAILED)


@events.command()
@_root
def repair(root: str) -> None:
    """Make indexes again that are gone or end before the rows of their files, as `check` finds them. No broker may
    write the log meanwhile. The exit code is 1 if rows stay that cannot be read."""
    from trunkline.events.layout import local_root
    from trunkline.events.repairing import repair as repair_log

    folder = local_root(root)
    if folder is None or not folder.is_dir():
        fail([f"{root} is no folder of this machine"], BAD_USAGE)
    files = left = 0
    for found in repair_log(folder):
        files += 1
        left += bool(found.problem)
        words = f"not read: {found.problem}" if found.problem else "read again"
        click.echo(printable(f"{found.path}: {found.rows:,} rows are {words}"))
    if not files:
        click.echo("no rows lack their index: nothing is changed")
    if left:
        raise SystemExit(FAILED)


@events.command()
@_root
@click.option("--to", "target", metavar="PLACE", help="A folder or URI. Without it, into the log itself.")
@click.option("--format", "form", type=click.Choice(["parquet", "delta"]), default="parquet", show_default=True)
@click.option(
    "--settle",
    default="1h",
    callback=read_duration,
    metavar="TIME",
    show_default=True,
    help="How long a few rows wait for more of their day.",
)
@click.option("--rows-per-file", type=click.IntRange(min=1), default=5_000_000, show_default=True, help="At most.")
@click.option("--skip-damaged", is_flag=True, help="Skip rows that cannot be read, and count them.")
@click.option("--remove", is_flag=True, help="Without --to: delete the segments whose rows are in files.")
@click.option("--consumer", default="compaction", show_default=True, help="Name that the log keeps the position under.")
@click.option(
    "--storage",
    multiple=True,
    callback=read_pairs,
    metavar="KEY=VALUE",
    help="For a Delta table: options of its store. May be repeated.",
)
def compact(
    root: str,
    target: str | None,
    form: Literal["parquet", "delta"],
    settle: float,
    rows_per_file: int,
    skip_damaged: bool,
    remove: bool,
    consumer: str,
    storage: dict[str, str],
) -> None:
    """Turn finished segments into a few large Parquet files, or a Delta table."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    from trunkline.events.compaction import compact as compact_log

    log = _open(root)
    columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.completed:,} of {task.total:,} rows"))
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("")
        done = compact_log(
            log,
            target,
            format=form,
            storage_options=storage or None,
            rows_per_file=rows_per_file,
            settle=settle,
            damaged="skip" if skip_damaged else "fail",
            remove=remove,
            consumer=consumer,
            progress=lambda step: bar.update(task, completed=step.rows, total=step.total),
        )
    made = ("commit" if form == "delta" else "file") + ("" if done.files == 1 else "s")
    words = f"{done.rows:,} rows in {done.files:,} {made}"
    unfinished = f", {done.unfinished:,} are in segments that are still written to" if done.unfinished else ""
    click.echo(f"{words}; {done.waiting:,} wait for more{unfinished}, {done.missing:,} could not be read")
