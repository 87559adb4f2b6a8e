"""`trunkline analytics report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from trunkline.analytics.command_line import check_folder, need_spark, period_options, spark_options, spark_session
from trunkline.management.command_line import BAD_USAGE, FAILED, fail

if TYPE_CHECKING:
    from datetime import datetime


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
    required=True,
    metavar="FILE",
    help="The page to write.",
)
@period_options
@spark_options
def report(
    source: str, html: Path, since: datetime | None, until: datetime | None, master: str | None, java: str | None,
    conf: dict[str, str],
) -> None:  # fmt: skip
    """Write a page about the state of a broker: its traffic, latency, clients, refusals, losses, and whether the event
    log is complete. The page needs no network, and can be sent or printed."""
    need_spark()
    if since is not None and until is not None and since >= until:
        fail(["--since must be before --until"], BAD_USAGE)
    # imported here: they take a second, and pip may not have brought them
    from trunkline.analytics.report.collecting import NothingRecorded, period
    from trunkline.analytics.report.page import write
    from trunkline.analytics.running import interruptible
    from trunkline.events.layout import LogError

    def say(step: str) -> None:
        click.echo(f"{step} …", err=True)

    try:
        period(source, since, until)  # before Spark starts, which takes longer
    except (NothingRecorded, LogError, OSError) as error:
        fail([f"{source}: {error}" if isinstance(error, NothingRecorded) else error], FAILED)
    say("Spark starts")
    with spark_session("report", master, java, conf) as spark, interruptible(spark.stop):
        write(spark, source, html, since=since, until=until, say=say)
    click.echo(f"to open in a browser: {html.absolute().as_uri()}", err=True)
    click.echo(html)
