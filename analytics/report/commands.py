"""`trunkline analytics report`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trunkline.broker.units import parse_duration
from trunkline.management.command_line import BAD_USAGE, FAILED, fail

if TYPE_CHECKING:
    from collections.abc import Callable

#: What of `trunkline[spark]` has to be there.
LIBRARIES = ("pyspark", "pyarrow", "pandas", "jinja2")


def need_spark() -> None:
    """End with a line that says what to install, if anything is missing."""
    missing = [name for name in LIBRARIES if find_spec(name) is None]
    if missing:
        fail([f"{', '.join(missing)}: not installed; pip install 'trunkline[spark]'"], FAILED)


def spark_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options of commands that start Spark."""
    java = click.option(
        "--java", metavar="CHOICE", help="bundled, system, or the path of a Java. [variable: TRUNKLINE_JAVA]"
    )
    master = click.option("--master", metavar="URL", help="Where Spark runs, such as spark://host:7077: else here.")
    return java(master(command))


def moment(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """A time, or how long before now."""
    if value is None:
        return None
    try:
        time = datetime.fromisoformat(value)
        return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    except ValueError:
        pass
    try:
        return datetime.now(UTC) - timedelta(seconds=parse_duration(value))
    except (ValueError, OverflowError):
        wrong = f'{value!r} is no time such as "2026-03-01T12:00", in UTC, and no duration such as "2h"'
        raise click.BadParameter(wrong, ctx, param) from None


@click.command()
@click.option(
    "--input", "source", required=True, metavar="LOG", help="The event log: a folder, or a URI such as s3://…."
)
@click.option(
    "--html", type=click.Path(path_type=Path, dir_okay=False), required=True, metavar="FILE", help="The page to write."
)
@click.option("--since", callback=moment, metavar="TIME", help="Begin there: a time (UTC), or a duration before now.")
@click.option("--until", callback=moment, metavar="TIME", help="End there.")
@spark_options
def report(
    source: str, html: Path, since: datetime | None, until: datetime | None, master: str | None, java: str | None
) -> None:
    """Write a page that tells how a broker is: its traffic, latency, clients, refusals, losses, and what was recorded of
    them. The page needs no network, and can be sent or printed."""
    need_spark()
    if since is not None and until is not None and since >= until:
        fail(["--since must be before --until"], BAD_USAGE)
    # imported here: they take a second, and pip may not have brought them
    from pyspark.errors import PySparkException

    from trunkline.analytics.report.collecting import NothingRecorded, period
    from trunkline.analytics.report.writing import write
    from trunkline.analytics.spark import JavaError, SparkError, session
    from trunkline.events.layout import LogError

    def say(step: str) -> None:
        click.echo(f"{step} …", err=True)

    try:
        period(source, since, until)  # before Spark starts, which takes longer
        say("Spark starts")
        spark = session("trunkline-report", master=master, java=java)
        try:
            write(spark, source, html, since=since, until=until, say=say)
        finally:
            spark.stop()
    except (NothingRecorded, LogError, SparkError, JavaError, PySparkException, OSError) as error:
        fail([f"{source}: {error}" if isinstance(error, NothingRecorded) else error], FAILED)
    click.echo(html)
