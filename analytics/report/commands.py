"""`trunkline analytics report`."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

import click

from trunkline.analytics.command_line import check_folder, need_spark, period_options, spark_options, spark_session
from trunkline.analytics.report.findings import SEVERITIES, FindingName, failing, findings
from trunkline.management.command_line import BAD_USAGE, FAILED, fail, read_pairs

if TYPE_CHECKING:
    from trunkline.analytics.report.findings import Severity

#: The exit code of a report with findings.
FOUND: Final = 4
_STDOUT: Final = Path("-")


def _read_allowed(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, int]:
    allowed: dict[str, int] = {}
    for name, text in read_pairs(ctx, param, values).items():
        if name not in get_args(FindingName):
            names = ", ".join(get_args(FindingName))
            raise click.BadParameter(f"there is no finding {name!r}; there are {names}", ctx, param)
        if not text.isdecimal():
            raise click.BadParameter(f"{name}={text}: expected a whole number, 0 or more", ctx, param)
        allowed[name] = int(text)
    return allowed


@click.command()
@click.option(
    "--input",
    "source",
    required=True,
    metavar="LOG",
    help="The event log: a folder, a pattern of several, or a URI such as s3://….",
)
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    callback=check_folder,
    metavar="FILE",
    help="The page to write.",
)
@click.option(
    "--json",
    "document",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    callback=check_folder,
    metavar="FILE",
    help="Sums and findings for programs, as one object; - is standard output.",
)
@click.option(
    "--fail-on",
    type=click.Choice(SEVERITIES),
    help=f"End with {FOUND} if there is a finding of this severity or a worse one.",
)
@click.option(
    "--allow",
    "allowed",
    multiple=True,
    callback=_read_allowed,
    metavar="FINDING=NUMBER",
    help="Up to so many of a finding are no failure, such as dropped=100. May be repeated.",
)
@period_options
@spark_options
def report(
    source: str, html: Path | None, document: Path | None, fail_on: Severity | None, allowed: dict[str, int],
    since: datetime | None, until: datetime | None, master: str | None, java: str | None, conf: dict[str, str],
) -> None:  # fmt: skip
    """Write a page about the state of a broker: its traffic, latency, clients, refusals, losses, and whether the event
    log is complete. The page needs no network, and can be sent or printed.

    For cron and CI, --json writes what it found for programs, and --fail-on makes an exit code of it.
    """
    need_spark()
    if html is None and document is None:
        fail(["nothing to write: name a file with --html or --json"], BAD_USAGE)
    if allowed and fail_on is None:
        fail(["--allow says what is no failure: it goes with --fail-on"], BAD_USAGE)
    if since is not None and until is not None and since >= until:
        fail(["--since must be before --until"], BAD_USAGE)
    # imported here: they take a second, and pip may not have brought them
    from trunkline.analytics.report.collecting import QUICK, NothingRecorded, collect, is_small, period
    from trunkline.analytics.report.page import write
    from trunkline.analytics.report.summary import summary
    from trunkline.analytics.running import interruptible
    from trunkline.events.layout import LogError

    def say(step: str) -> None:
        click.echo(f"{step} …", err=True)

    try:
        period(source, since, until)  # before Spark starts, which takes longer
        is_quick = is_small(source)
    except (NothingRecorded, LogError, OSError) as error:
        fail([f"{source}: {error}" if isinstance(error, NothingRecorded) else error], FAILED)
    say("Spark starts")
    settings = {**QUICK, **conf} if is_quick else conf
    with (
        spark_session("report", master, java, settings, fast_start=is_quick) as spark,
        interruptible(spark.stop),
    ):
        if html is None:
            results = collect(spark, source, now=datetime.now(UTC), since=since, until=until, say=say)
        else:
            results = write(spark, source, html, since=since, until=until, say=say)
    if html is not None:
        click.echo(f"to open in a browser: {html.absolute().as_uri()}", err=True)
        click.echo(html, err=document == _STDOUT)
    if document is not None:
        with click.open_file(str(document), "w", encoding="utf-8") as file:
            file.write(summary(results))
    failures = failing(findings(results), fail_on, allowed) if fail_on else []
    for finding in failures:
        click.echo(f"{finding.severity}: {finding.name}: {finding.text}", err=True)
    if failures:
        sys.exit(FOUND)
